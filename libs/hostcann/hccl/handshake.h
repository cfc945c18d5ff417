// How two processes prove to each other that they have the root information's secret before anything else is read from a connection.
//
//   acceptor -> connector   a nonce
//   connector -> acceptor   a nonce, what it wants (Hello), and their code under the secret
//   acceptor -> connector   the code of the connector's nonce under the secret
//
// The secret itself never travels. What is sent afterwards is neither encrypted nor signed, as on hardware.
#ifndef LIBS_HOSTCANN_HCCL_HANDSHAKE_H_
#define LIBS_HOSTCANN_HCCL_HANDSHAKE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/hostcann/hccl/socket.h"

namespace jumar::hostcann {

using Token = std::array<uint8_t, 16>;
using Nonce = std::array<uint8_t, 16>;

Token RandomToken();

// SipHash-2-4 (Aumasson and Bernstein, 2012): a message authentication code of 64 bits.
uint64_t SipHash(const Token& key, const void* data, size_t bytes);

// What a connection is for. Sent as it is in memory: all ranks run the same program.
struct Hello {
  uint64_t group = 0;  // which communicator of the root's store
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint32_t timeout_ms = 0;
  uint16_t port = 0;  // where this rank listens for the others
  char host[66] = {};
};

// Connects and proves the secret; the connection is ready for use.
absl::StatusOr<Fd> ConnectWithToken(const Endpoint& endpoint, const Token& token, const Hello& hello, Deadline deadline);

// The accepting side. A connection that doesn't know the secret, or keeps silent, is dropped and holds nothing up.
class Acceptor {
 public:
  using OnHello = std::function<void(Fd, const Hello&)>;
  Acceptor(Fd listener, const Token& token) : listener_(std::move(listener)), token_(token) {}

  // Waits up to `timeout_ms`, or until `wake_fd` (-1: none) is readable, and gives every connection that is proven to `on_hello`.
  void Poll(int timeout_ms, int wake_fd, const OnHello& on_hello);

 private:
  struct Answer {
    Nonce nonce;
    Hello hello;
    uint64_t code;
  };
  struct Pending {
    Fd fd;
    Nonce nonce;
    Answer answer;
    size_t received = 0;
    Deadline deadline;
  };
  void Accept();
  // Returns false while the answer isn't complete. A connection that fails is closed.
  bool Advance(Pending& pending, const OnHello& on_hello);
  friend absl::StatusOr<Fd> ConnectWithToken(const Endpoint&, const Token&, const Hello&, Deadline);
  static uint64_t CodeOfAnswer(const Token& token, const Nonce& nonce, const Answer& answer);

  Fd listener_;
  Token token_;
  std::vector<Pending> pending_;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_HANDSHAKE_H_
