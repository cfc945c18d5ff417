// Notifies: a signal from one stream to one other. A record sets it; a wait holds its stream until it is set, and takes it back.
#ifndef LIBS_HOSTCANN_ACL_NOTIFY_H_
#define LIBS_HOSTCANN_ACL_NOTIFY_H_

#include <cstdint>
#include <memory>

#include "libs/hostcann/acl/stream.h"

namespace jumar::hostcann {

class Notify : public std::enable_shared_from_this<Notify> {
 public:
  explicit Notify(uint32_t id) : id_(id) {}
  uint32_t id() const { return id_; }

  int Record(Stream& stream);
  // The wait fails the stream with 107019 when nothing comes within `timeout_ms`; 0 waits for ever.
  int WaitAndReset(Stream& stream, uint32_t timeout_ms);
  void Reset();

 private:
  const uint32_t id_;
  const std::shared_ptr<SyncPoint> point_ = std::make_shared<SyncPoint>();  // its mutex guards the flag
  bool set_ = false;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_NOTIFY_H_
