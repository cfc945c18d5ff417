#include "libs/hostcann/hccl/mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/hccl/hccl_api.h"

namespace jumar::hostcann {
namespace {

constexpr uint32_t kMagic = 0x4c43484a;  // "JHCL"
enum Kind : uint8_t { kData = 0, kFailed = 1, kDone = 2 };

// Other ranks of this machine answer within microseconds, if they have a core: polling is quicker than sleeping then.
constexpr auto kSpin = std::chrono::microseconds(50);
// How often a task that sleeps looks whether its stream was aborted.
constexpr int kLookMilliseconds = 20;
constexpr size_t kMaxReason = 4096;
constexpr auto kFarewellTime = std::chrono::milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Connect(const Options& options) {
  const Deadline deadline = Clock::now() + options.timeout;
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  std::unique_ptr<Mesh> mesh(new Mesh(options.rank, options.ranks, std::move(wake)));
  if (options.ranks == 1) return mesh;

  Endpoint mine;
  absl::StatusOr<Fd> listener = Listen(options.host, &mine);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<std::vector<Endpoint>> endpoints =
      JoinGroup(options.root, options.group, options.rank, options.ranks, mine, options.timeout);
  if (!endpoints.ok()) return endpoints.status();

  Hello hello;
  hello.group = options.group;
  hello.rank = options.rank;
  hello.ranks = options.ranks;
  for (uint32_t peer = 0; peer < options.rank; ++peer) {
    absl::StatusOr<Fd> fd = ConnectWithToken((*endpoints)[peer], options.root.token, hello, deadline);
    if (!fd.ok()) return absl::Status(fd.status().code(), absl::StrCat("rank ", peer, ": ", fd.status().message()));
    mesh->peers_[peer].fd = *std::move(fd);
  }
  Acceptor acceptor(*std::move(listener), options.root.token);
  uint32_t missing = options.ranks - 1 - options.rank;
  while (missing > 0) {
    acceptor.Poll(PollMilliseconds(deadline, 1000), -1, [&](Fd fd, const Hello& theirs) {
      const bool fits = theirs.group == options.group && theirs.ranks == options.ranks && theirs.rank > options.rank &&
                        theirs.rank < options.ranks && !mesh->peers_[theirs.rank].fd.valid();
      if (!fits) return;
      mesh->peers_[theirs.rank].fd = std::move(fd);
      --missing;
    });
    if (missing > 0 && Clock::now() >= deadline) {
      std::string absent;
      for (uint32_t peer = options.rank + 1; peer < options.ranks; ++peer) {
        if (!mesh->peers_[peer].fd.valid()) absl::StrAppend(&absent, absent.empty() ? "" : ", ", peer);
      }
      return absl::DeadlineExceededError(absl::StrCat("these ranks came but did not connect: ", absent));
    }
  }
  return mesh;
}

void Mesh::Send(uint32_t peer, MessageHeader header, const void* data, uint64_t bytes) {
  header.magic = kMagic;
  header.kind = kData;
  header.bytes = bytes;
  peers_[peer].out.messages.push_back({header, static_cast<char*>(const_cast<void*>(data)), 0});
}

void Mesh::Receive(uint32_t peer, MessageHeader expected, void* data, uint64_t bytes) {
  expected.magic = kMagic;
  expected.kind = kData;
  expected.bytes = bytes;
  peers_[peer].in.messages.push_back({expected, static_cast<char*>(data), 0});
}

void Mesh::Transfer(const Wait& wait) {
  CheckInterrupted(wait);
  Deadline spin_end = Clock::now() + kSpin;
  for (;;) {
    bool moved = false, done = true;
    for (uint32_t peer = 0; peer < peers_.size(); ++peer) {
      if (peers_[peer].idle()) continue;
      moved |= Write(peer);
      moved |= Read(peer, wait.describe);
      done &= peers_[peer].idle();
    }
    if (done) break;
    if (moved) {
      spin_end = Clock::now() + kSpin;
    } else if (Clock::now() < spin_end) {
      std::this_thread::yield();
    } else {
      Sleep(wait);
    }
  }
  for (Peer& peer : peers_) peer.out.Clear(), peer.in.Clear();
}

bool Mesh::Write(uint32_t rank) {
  Peer& peer = peers_[rank];
  bool moved = false;
  while (!peer.out.empty()) {
    Message& message = peer.out.messages[peer.out.next];
    const uint64_t of_header = std::min<uint64_t>(message.done, sizeof(MessageHeader));
    const uint64_t of_data = message.done - of_header;
    iovec parts[2] = {{reinterpret_cast<char*>(&message.header) + of_header, sizeof(MessageHeader) - of_header},
                      {message.data + of_data, message.header.bytes - of_data}};
    msghdr request{};
    request.msg_iov = parts;
    request.msg_iovlen = 2;
    const ssize_t sent = sendmsg(peer.fd.get(), &request, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      const int error = errno;
      // It may have said why it left.
      MessageHeader header;
      if (recv(peer.fd.get(), &header, sizeof(header), MSG_DONTWAIT) == sizeof(header) && header.kind != kData) TellFarewell(rank, header);
      Lost(rank, std::strerror(error));
    }
    moved = true;
    message.done += static_cast<uint64_t>(sent);
    if (message.done == message.total()) ++peer.out.next;
  }
  return moved;
}

bool Mesh::Read(uint32_t rank, const Describe& describe) {
  Peer& peer = peers_[rank];
  bool moved = false;
  while (!peer.in.empty()) {
    Message& message = peer.in.messages[peer.in.next];
    const bool header = message.done < sizeof(MessageHeader);
    char* at = header ? reinterpret_cast<char*>(&peer.incoming) + message.done : message.data + (message.done - sizeof(MessageHeader));
    const uint64_t left = (header ? sizeof(MessageHeader) : message.total()) - message.done;
    const ssize_t got = left == 0 ? 0 : recv(peer.fd.get(), at, left, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      Lost(rank, std::strerror(errno));
    }
    if (got == 0 && left > 0) Lost(rank, "its connection ended");
    moved = true;
    message.done += static_cast<uint64_t>(got);
    if (header && message.done == sizeof(MessageHeader)) CheckHeader(rank, message, describe);
    if (message.done == message.total()) ++peer.in.next;
  }
  return moved;
}

void Mesh::CheckHeader(uint32_t rank, const Message& expected, const Describe& describe) {
  const MessageHeader& theirs = peers_[rank].incoming;
  if (theirs.magic != kMagic) throw CollectiveError(kHcclTcpTransfer, absl::StrCat("rank ", rank, " sent what is no message"));
  if (theirs.kind != kData) TellFarewell(rank, theirs);
  if (std::memcmp(&theirs, &expected.header, sizeof(theirs)) == 0) return;
  // The texts are the same if only the numbers differ that a description leaves out.
  const auto full = [&](const MessageHeader& header) {
    return absl::StrCat(describe(header), ", number ", header.sequence, ", part ", header.part, ", ", header.bytes, " bytes");
  };
  throw CollectiveError(kHcclParameter, absl::StrCat("the ranks don't call the same collective: rank ", rank_, " is in ",
                                                     full(expected.header), ", rank ", rank, " in ", full(theirs)));
}

void Mesh::Lost(uint32_t rank, const std::string& how) {
  throw CollectiveError(kHcclRemote, absl::StrCat("rank ", rank, " is gone (", how,
                                                  "): its process has ended, it failed amid a message, or its machine can't be reached"));
}

void Mesh::TellFarewell(uint32_t rank, const MessageHeader& header) {
  if (header.kind == kDone) throw CollectiveError(kHcclRemote, absl::StrCat("rank ", rank, " has destroyed its communicator"));
  std::string reason(std::min<uint64_t>(header.bytes, kMaxReason), '\0');
  if (!ReceiveAll(peers_[rank].fd.get(), reason.data(), reason.size(), Clock::now() + kFarewellTime).ok()) reason = "no reason told";
  throw CollectiveError(kHcclRemote, absl::StrCat("rank ", rank, " failed: ", reason));
}

void Mesh::CheckInterrupted(const Wait& wait) {
  if (interrupted_.load()) throw CollectiveError(kHcclSuspending, "the communicator was destroyed meanwhile");
  if (wait.interrupted && wait.interrupted()) throw CollectiveError(kHcclSuspending, "the stream was aborted meanwhile");
}

void Mesh::Sleep(const Wait& wait) {
  CheckInterrupted(wait);
  if (Clock::now() >= wait.deadline) throw CollectiveError(kHcclTimeout, Unanswered());
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.idle()) continue;
    const int events = (peer.in.empty() ? 0 : POLLIN) | (peer.out.empty() ? 0 : POLLOUT);
    fds.push_back({peer.fd.get(), static_cast<short>(events), 0});
  }
  poll(fds.data(), fds.size(), PollMilliseconds(wait.deadline, kLookMilliseconds));
}

std::string Mesh::Unanswered() const {
  std::string silent;
  for (uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (!peers_[peer].idle()) absl::StrAppend(&silent, silent.empty() ? "" : ", ", peer);
  }
  return absl::StrCat("no answer in time from rank(s) ", silent);
}

void Mesh::Interrupt() {
  interrupted_.store(true);
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void Mesh::Leave(const std::string& reason) {
  MessageHeader header;
  header.magic = kMagic;
  header.kind = reason.empty() ? kDone : kFailed;
  const std::string text = reason.substr(0, kMaxReason);
  header.bytes = text.size();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += text;
  for (Peer& peer : peers_) {
    if (!peer.fd.valid()) continue;
    // In the middle of a message nothing else can be said.
    const bool between = peer.out.empty() || peer.out.messages[peer.out.next].done == 0;
    if (between) (void)!send(peer.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(peer.fd.get(), SHUT_WR);
  }
}

}  // namespace jumar::hostcann
