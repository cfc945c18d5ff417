// TCP sockets: what the rendezvous and the mesh need, with a deadline on everything that waits.
#ifndef LIBS_HOSTCANN_HCCL_SOCKET_H_
#define LIBS_HOSTCANN_HCCL_SOCKET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::hostcann {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A numeric IPv4 or IPv6 address and a port.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

// A listening socket on an ephemeral port of `host`; `bound` is where it listens.
absl::StatusOr<Fd> Listen(const std::string& host, Endpoint* bound);
absl::StatusOr<Fd> Connect(const Endpoint& endpoint, Deadline deadline);

// All of the bytes, or an error.
absl::Status SendAll(int fd, const void* data, size_t bytes, Deadline deadline);
absl::Status ReceiveAll(int fd, void* data, size_t bytes, Deadline deadline);

// Milliseconds for poll(2): at least 0, at most `most`, rounded up.
int PollMilliseconds(Deadline deadline, int most);

// Sets what every connection of ours has: no Nagle delay, not blocking, not inherited by programs that are started.
void ConfigureConnection(int fd);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_SOCKET_H_
