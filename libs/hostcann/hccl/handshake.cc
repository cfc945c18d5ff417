#include "libs/hostcann/hccl/handshake.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace jumar::hostcann {
namespace {

constexpr size_t kMaxPending = 256;
constexpr auto kAnswerTime = std::chrono::seconds(10);

uint64_t Rotate(uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }

void RandomBytes(void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = getrandom(at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
    } else if (errno != EINTR) {
      std::abort();  // without randomness there is no secret, and this kernel call doesn't fail otherwise
    }
  }
}

// The acceptor's proof. Its first byte differs from the connector's, so that a code can't be sent back.
uint64_t CodeOfAcceptor(const Token& token, const Nonce& theirs, const Nonce& ours) {
  uint8_t message[1 + 2 * sizeof(Nonce)] = {2};
  std::memcpy(message + 1, theirs.data(), sizeof(Nonce));
  std::memcpy(message + 1 + sizeof(Nonce), ours.data(), sizeof(Nonce));
  return SipHash(token, message, sizeof(message));
}

}  // namespace

Token RandomToken() {
  Token token;
  RandomBytes(token.data(), token.size());
  return token;
}

uint64_t SipHash(const Token& key, const void* data, size_t bytes) {
  uint64_t k[2];
  std::memcpy(k, key.data(), sizeof(k));
  uint64_t v0 = k[0] ^ 0x736f6d6570736575, v1 = k[1] ^ 0x646f72616e646f6d;
  uint64_t v2 = k[0] ^ 0x6c7967656e657261, v3 = k[1] ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v1 = Rotate(v1, 13) ^ v0, v0 = Rotate(v0, 32);
      v2 += v3, v3 = Rotate(v3, 16) ^ v2;
      v0 += v3, v3 = Rotate(v3, 21) ^ v0;
      v2 += v1, v1 = Rotate(v1, 17) ^ v2, v2 = Rotate(v2, 32);
    }
  };
  const char* at = static_cast<const char*>(data);
  const auto absorb = [&](uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  for (size_t left = bytes; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    absorb(word);
  }
  uint64_t last = 0;
  std::memcpy(&last, at, bytes % 8);
  absorb(last | static_cast<uint64_t>(bytes) << 56);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

uint64_t Acceptor::CodeOfAnswer(const Token& token, const Nonce& nonce, const Answer& answer) {
  uint8_t message[1 + 2 * sizeof(Nonce) + sizeof(Hello)] = {1};
  std::memcpy(message + 1, nonce.data(), sizeof(Nonce));
  std::memcpy(message + 1 + sizeof(Nonce), answer.nonce.data(), sizeof(Nonce));
  std::memcpy(message + 1 + 2 * sizeof(Nonce), &answer.hello, sizeof(Hello));
  return SipHash(token, message, sizeof(message));
}

absl::StatusOr<Fd> ConnectWithToken(const Endpoint& endpoint, const Token& token, const Hello& hello, Deadline deadline) {
  absl::StatusOr<Fd> fd = Connect(endpoint, deadline);
  if (!fd.ok()) return fd;
  const auto failed = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("the handshake with ", endpoint.host, " port ", endpoint.port, ": ", status.message()));
  };
  Nonce nonce;
  if (const absl::Status got = ReceiveAll(fd->get(), nonce.data(), sizeof(nonce), deadline); !got.ok()) return failed(got);
  Acceptor::Answer answer;
  std::memset(static_cast<void*>(&answer), 0, sizeof(answer));
  RandomBytes(answer.nonce.data(), sizeof(Nonce));
  std::memcpy(static_cast<void*>(&answer.hello), &hello, sizeof(hello));
  answer.code = Acceptor::CodeOfAnswer(token, nonce, answer);
  if (const absl::Status sent = SendAll(fd->get(), &answer, sizeof(answer), deadline); !sent.ok()) return failed(sent);
  uint64_t code = 0;
  if (const absl::Status got = ReceiveAll(fd->get(), &code, sizeof(code), deadline); !got.ok()) return failed(got);
  if (code != CodeOfAcceptor(token, answer.nonce, nonce)) {
    return failed(absl::PermissionDeniedError("what listens there doesn't know the secret"));
  }
  return fd;
}

void Acceptor::Accept() {
  while (pending_.size() < kMaxPending) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    ConfigureConnection(fd.get());
    Pending pending;
    RandomBytes(pending.nonce.data(), sizeof(Nonce));
    pending.deadline = Clock::now() + kAnswerTime;
    // A new connection has room for 16 bytes.
    if (send(fd.get(), pending.nonce.data(), sizeof(Nonce), MSG_NOSIGNAL) != sizeof(Nonce)) continue;
    pending.fd = std::move(fd);
    pending_.push_back(std::move(pending));
  }
}

bool Acceptor::Advance(Pending& pending, const OnHello& on_hello) {
  while (pending.received < sizeof(Answer)) {
    char* at = reinterpret_cast<char*>(&pending.answer) + pending.received;
    const ssize_t got = recv(pending.fd.get(), at, sizeof(Answer) - pending.received, MSG_DONTWAIT);
    if (got > 0) {
      pending.received += static_cast<size_t>(got);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || Clock::now() > pending.deadline;
    }
  }
  if (pending.answer.code != CodeOfAnswer(token_, pending.nonce, pending.answer)) return true;
  const uint64_t code = CodeOfAcceptor(token_, pending.answer.nonce, pending.nonce);
  if (send(pending.fd.get(), &code, sizeof(code), MSG_NOSIGNAL) == sizeof(code)) on_hello(std::move(pending.fd), pending.answer.hello);
  return true;
}

void Acceptor::Poll(int timeout_ms, int wake_fd, const OnHello& on_hello) {
  std::vector<pollfd> fds = {{wake_fd, POLLIN, 0}};
  if (pending_.size() < kMaxPending) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Pending& pending : pending_) fds.push_back({pending.fd.get(), POLLIN, 0});
  const int most = pending_.empty() ? timeout_ms : std::min(timeout_ms < 0 ? 1000 : timeout_ms, 1000);
  if (poll(fds.data(), fds.size(), most) < 0 && errno != EINTR) std::abort();  // only a mistake of ours
  Accept();
  std::erase_if(pending_, [&](Pending& pending) { return Advance(pending, on_hello); });
}

}  // namespace jumar::hostcann
