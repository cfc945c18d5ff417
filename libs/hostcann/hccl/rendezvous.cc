#include "libs/hostcann/hccl/rendezvous.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace jumar::hostcann {
namespace {

constexpr char kMagic[8] = {'J', 'U', 'M', 'A', 'R', 'H', 'C', '1'};
constexpr uint32_t kMaxRanks = 4096;
constexpr uint32_t kMaxAnswerBytes = 1 << 20;
constexpr auto kReplyTime = std::chrono::seconds(5);

struct RootBytes {
  char magic[8];
  Token token;
  uint16_t port;
  char host[66];
};
static_assert(sizeof(RootBytes) <= kRootInfoBytes);

// The store's reply: this, and then `bytes` of endpoints or of text.
struct Reply {
  uint32_t ok;
  uint32_t bytes;
};
struct EndpointBytes {
  uint16_t port;
  char host[66];
};

template <size_t kSize>
void CopyText(const std::string& text, char (&out)[kSize]) {
  std::memset(out, 0, kSize);
  std::memcpy(out, text.data(), std::min(text.size(), kSize - 1));
}

template <size_t kSize>
std::string Text(const char (&bytes)[kSize]) {
  return std::string(bytes, strnlen(bytes, kSize));
}

void Answer(const Fd& fd, bool ok, const void* data, size_t bytes) {
  const Reply reply{ok, static_cast<uint32_t>(bytes)};
  const Deadline deadline = Clock::now() + kReplyTime;
  // A member that is gone is not told; the others notice when they connect to it.
  if (SendAll(fd.get(), &reply, sizeof(reply), deadline).ok()) SendAll(fd.get(), data, bytes, deadline).IgnoreError();
}

void Refuse(const Fd& fd, const std::string& text) { Answer(fd, false, text.data(), text.size()); }

bool IsGone(const Fd& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace

void WriteRootInfo(const RootInfo& root, char* bytes) {
  RootBytes out;
  std::memcpy(out.magic, kMagic, sizeof(kMagic));
  out.token = root.token;
  out.port = root.store.port;
  CopyText(root.store.host, out.host);
  std::memset(bytes, 0, kRootInfoBytes);
  std::memcpy(bytes, &out, sizeof(out));
}

absl::StatusOr<RootInfo> ReadRootInfo(const char* bytes) {
  RootBytes in;
  std::memcpy(&in, bytes, sizeof(in));
  if (std::memcmp(in.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("the root information is not from hostcann's HcclGetRootInfo of this version");
  }
  return RootInfo{{Text(in.host), in.port}, in.token};
}

absl::StatusOr<std::shared_ptr<RendezvousStore>> RendezvousStore::Start(const std::string& host) {
  RootInfo root;
  absl::StatusOr<Fd> listener = Listen(host, &root.store);
  if (!listener.ok()) return listener.status();
  root.token = RandomToken();
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return std::shared_ptr<RendezvousStore>(new RendezvousStore(*std::move(listener), std::move(wake), root));
}

RendezvousStore::RendezvousStore(Fd listener, Fd wake, RootInfo root)
    : root_(std::move(root)), acceptor_(std::move(listener), root_.token), wake_(std::move(wake)) {
  thread_ = std::thread([this] { Run(); });
}

RendezvousStore::~RendezvousStore() {
  stop_ = true;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void RendezvousStore::Run() {
  pthread_setname_np(pthread_self(), "jumar-hccl");
  while (!stop_) {
    acceptor_.Poll(Expire(), wake_.get(), [this](Fd fd, const Hello& hello) { Join(std::move(fd), hello); });
  }
}

void RendezvousStore::Join(Fd fd, const Hello& hello) {
  if (hello.ranks == 0 || hello.ranks > kMaxRanks || hello.rank >= hello.ranks) {
    return Refuse(fd, absl::StrCat("rank ", hello.rank, " of ", hello.ranks, " is out of range; at most ", kMaxRanks, " ranks"));
  }
  Group& group = groups_[hello.group];
  if (group.members.empty()) group.ranks = hello.ranks;
  if (group.ranks != hello.ranks) {
    return Refuse(fd, absl::StrCat("rank ", hello.rank, " says that there are ", hello.ranks, " ranks, but rank ",
                                   group.members.begin()->first, " said ", group.ranks));
  }
  const auto found = group.members.find(hello.rank);
  if (found != group.members.end() && !IsGone(found->second.fd)) {
    return Refuse(fd, absl::StrCat("two processes say that they are rank ", hello.rank));
  }
  group.members[hello.rank] = {std::move(fd), {Text(hello.host), hello.port}, Clock::now() + std::chrono::milliseconds(hello.timeout_ms)};
  if (group.members.size() < group.ranks) return;
  Complete(group);
  groups_.erase(hello.group);
}

void RendezvousStore::Complete(Group& group) {
  std::vector<EndpointBytes> list(group.ranks);
  for (const auto& [rank, member] : group.members) {
    list[rank].port = member.endpoint.port;
    CopyText(member.endpoint.host, list[rank].host);
  }
  for (const auto& [rank, member] : group.members) Answer(member.fd, true, list.data(), list.size() * sizeof(EndpointBytes));
}

int RendezvousStore::Expire() {
  const Deadline now = Clock::now();
  Deadline next = Deadline::max();
  for (auto it = groups_.begin(); it != groups_.end();) {
    Group& group = it->second;
    std::string missing;
    for (uint32_t rank = 0; rank < group.ranks; ++rank) {
      if (!group.members.count(rank)) absl::StrAppend(&missing, missing.empty() ? "" : ", ", rank);
    }
    std::erase_if(group.members, [&](const auto& entry) {
      next = std::min(next, entry.second.deadline > now ? entry.second.deadline : next);
      if (entry.second.deadline > now) return false;
      Refuse(entry.second.fd, absl::StrCat("of ", group.ranks, " ranks, these never came: ", missing));
      return true;
    });
    it = group.members.empty() ? groups_.erase(it) : std::next(it);
  }
  return next == Deadline::max() ? -1 : PollMilliseconds(next, 60000) + 1;
}

absl::StatusOr<std::vector<Endpoint>> JoinGroup(const RootInfo& root, uint64_t group, uint32_t rank, uint32_t ranks, const Endpoint& mine,
                                                std::chrono::milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  Hello hello;
  hello.group = group;
  hello.rank = rank;
  hello.ranks = ranks;
  hello.port = mine.port;
  hello.timeout_ms = static_cast<uint32_t>(std::min<int64_t>(timeout.count(), std::numeric_limits<uint32_t>::max()));
  CopyText(mine.host, hello.host);
  absl::StatusOr<Fd> fd = ConnectWithToken(root.store, root.token, hello, deadline);
  if (!fd.ok()) {
    return absl::Status(fd.status().code(),
                        absl::StrCat("the process that made the root information can't be reached: ", fd.status().message(),
                                     "; has it ended? Ranks on several machines need HCCL_IF_IP or HCCL_SOCKET_IFNAME"));
  }
  // The store tells who is missing when the time is over; it is given a moment for that.
  Reply reply;
  absl::Status got = ReceiveAll(fd->get(), &reply, sizeof(reply), deadline + kReplyTime);
  if (got.ok() && reply.bytes > kMaxAnswerBytes) got = absl::InternalError("a reply that is too long");
  std::string data(got.ok() ? reply.bytes : 0, '\0');
  if (got.ok()) got = ReceiveAll(fd->get(), data.data(), data.size(), Clock::now() + kReplyTime);
  if (!got.ok()) return absl::Status(got.code(), absl::StrCat("the store at rank 0: ", got.message()));
  if (!reply.ok) return absl::DeadlineExceededError(data);
  if (data.size() != ranks * sizeof(EndpointBytes)) return absl::InternalError("the store's list has the wrong length");
  std::vector<Endpoint> endpoints;
  for (uint32_t i = 0; i < ranks; ++i) {
    EndpointBytes entry;
    std::memcpy(&entry, data.data() + i * sizeof(entry), sizeof(entry));
    endpoints.push_back({Text(entry.host), entry.port});
  }
  return endpoints;
}

}  // namespace jumar::hostcann
