#include "libs/hostcann/hccl/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace jumar::hostcann {
namespace {

constexpr int kBacklog = 1024;

absl::Status SystemError(const std::string& what) { return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno))); }

// Fills in a socket address and returns its length, or 0 when `host` is no numeric address.
socklen_t ToSocketAddress(const Endpoint& endpoint, sockaddr_storage& storage) {
  std::memset(&storage, 0, sizeof(storage));
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  if (inet_pton(AF_INET, endpoint.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    return sizeof(*v4);
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET6, endpoint.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(endpoint.port);
    return sizeof(*v6);
  }
  return 0;
}

absl::Status WaitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, PollMilliseconds(deadline, 60000));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SystemError("poll");
    if (Clock::now() >= deadline) return absl::DeadlineExceededError("no answer in time");
  }
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

int PollMilliseconds(Deadline deadline, int most) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, most));
}

void ConfigureConnection(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

absl::StatusOr<Fd> Listen(const std::string& host, Endpoint* bound) {
  sockaddr_storage storage;
  socklen_t length = ToSocketAddress({host, 0}, storage);
  if (length == 0) return absl::InvalidArgumentError(absl::StrCat("'", host, "' is not an IPv4 or IPv6 address"));
  Fd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("socket");
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 || listen(fd.get(), kBacklog) != 0) {
    return SystemError(absl::StrCat("listening on ", host));
  }
  length = sizeof(storage);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return SystemError("getsockname");
  const uint16_t port = storage.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&storage)->sin_port
                                                     : reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port;
  *bound = {host, ntohs(port)};
  return fd;
}

absl::StatusOr<Fd> Connect(const Endpoint& endpoint, Deadline deadline) {
  sockaddr_storage storage;
  const socklen_t length = ToSocketAddress(endpoint, storage);
  if (length == 0) return absl::InvalidArgumentError(absl::StrCat("'", endpoint.host, "' is not an IPv4 or IPv6 address"));
  const std::string what = absl::StrCat("connecting to ", endpoint.host, " port ", endpoint.port);
  Fd fd(socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("socket");
  ConfigureConnection(fd.get());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0) return fd;
  if (errno != EINPROGRESS) return SystemError(what);
  if (const absl::Status waited = WaitFor(fd.get(), POLLOUT, deadline); !waited.ok()) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": ", waited.message()));
  }
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return fd;
  errno = error;
  return SystemError(what);
}

absl::Status SendAll(int fd, const void* data, size_t bytes, Deadline deadline) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (absl::Status waited = WaitFor(fd, POLLOUT, deadline); !waited.ok()) return waited;
    } else if (errno != EINTR) {
      return SystemError("send");
    }
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(int fd, void* data, size_t bytes, Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(fd, at, bytes, MSG_DONTWAIT);
    if (received > 0) {
      at += received;
      bytes -= static_cast<size_t>(received);
    } else if (received == 0) {
      return absl::UnavailableError("the other side closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (absl::Status waited = WaitFor(fd, POLLIN, deadline); !waited.ok()) return waited;
    } else if (errno != EINTR) {
      return SystemError("recv");
    }
  }
  return absl::OkStatus();
}

}  // namespace jumar::hostcann
