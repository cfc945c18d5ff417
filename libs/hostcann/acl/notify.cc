#include "libs/hostcann/acl/notify.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/error.h"

namespace jumar::hostcann {

int Notify::Record(Stream& stream) {
  const auto record = [self = shared_from_this()] {
    std::lock_guard lock(self->point_->mutex);
    self->set_ = true;
    self->point_->cv.notify_all();
  };
  return stream.Submit("notify record", record, TaskKind::kControl);
}

int Notify::WaitAndReset(Stream& stream, uint32_t timeout_ms) {
  const auto wait = [self = shared_from_this(), timeout_ms] {
    const auto take = [&] { return std::exchange(self->set_, false); };
    Stream::AwaitWithin(self->point_, take, timeout_ms,
                        [&] { return absl::StrCat("notify ", self->id_, " was not recorded within ", timeout_ms, " ms"); });
  };
  return stream.Submit("notify wait", wait, TaskKind::kControl);
}

void Notify::Reset() {
  std::lock_guard lock(point_->mutex);
  set_ = false;
}

}  // namespace jumar::hostcann
