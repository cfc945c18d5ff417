// How the ranks of a communicator find each other.
//
// The process that makes the root information runs a store. A rank joins a group there, telling where it listens; once the group is
// complete, each of its ranks is given the list of all. A rank that waited too long is told which ranks never came.
#ifndef LIBS_HOSTCANN_HCCL_RENDEZVOUS_H_
#define LIBS_HOSTCANN_HCCL_RENDEZVOUS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/hostcann/hccl/handshake.h"
#include "libs/hostcann/hccl/socket.h"

namespace jumar::hostcann {

// What the bytes of the root information say.
struct RootInfo {
  Endpoint store;
  Token token{};
};
inline constexpr size_t kRootInfoBytes = 4108;
void WriteRootInfo(const RootInfo& root, char* bytes);
absl::StatusOr<RootInfo> ReadRootInfo(const char* bytes);

class RendezvousStore {
 public:
  // Starts a store on an ephemeral port of `host`.
  static absl::StatusOr<std::shared_ptr<RendezvousStore>> Start(const std::string& host);
  ~RendezvousStore();
  const RootInfo& root() const { return root_; }

 private:
  struct Member {
    Fd fd;
    Endpoint endpoint;
    Deadline deadline;
  };
  struct Group {
    uint32_t ranks = 0;
    std::map<uint32_t, Member> members;
  };

  RendezvousStore(Fd listener, Fd wake, RootInfo root);
  void Run();
  void Join(Fd fd, const Hello& hello);
  void Complete(Group& group);
  // Tells the members whose time is over who is missing. Returns the milliseconds until the next one's, or -1.
  int Expire();

  const RootInfo root_;
  Acceptor acceptor_;
  Fd wake_;
  std::atomic<bool> stop_{false};
  std::map<uint64_t, Group> groups_;  // only the thread's
  std::thread thread_;
};

// Joins a group and waits for the list of all its ranks.
absl::StatusOr<std::vector<Endpoint>> JoinGroup(const RootInfo& root, uint64_t group, uint32_t rank, uint32_t ranks, const Endpoint& mine,
                                                std::chrono::milliseconds timeout);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_RENDEZVOUS_H_
