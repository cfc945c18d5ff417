// The connections of one rank with all others of its communicator, and the exchange of messages over them.
//
// Only the thread that runs a collective touches the connections, and it alone reads and writes the buffers: they are device memory.
// Every message begins with a header that says which collective it belongs to. A header that isn't the expected one is an error that
// names both sides.
#ifndef LIBS_HOSTCANN_HCCL_MESH_H_
#define LIBS_HOSTCANN_HCCL_MESH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/hostcann/hccl/rendezvous.h"
#include "libs/hostcann/hccl/socket.h"

namespace jumar::hostcann {

// Why a collective failed, with the code that HcclGetCommAsyncError tells.
class CollectiveError : public std::runtime_error {
 public:
  CollectiveError(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// What two ranks must agree on. `bytes` is the length of this message, the rest describes the collective.
struct MessageHeader {
  uint32_t magic = 0;
  uint8_t kind = 0;
  uint8_t op = 0;
  uint8_t type = 0;
  uint8_t reduction = 0;
  uint32_t root = 0;
  uint32_t part = 0;      // messages of the same collective between the same ranks
  uint64_t sequence = 0;  // which collective of the communicator, or which message between two ranks
  uint64_t count = 0;     // elements
  uint64_t bytes = 0;
};

class Mesh {
 public:
  struct Options {
    RootInfo root;
    uint64_t group = 0;
    uint32_t rank = 0;
    uint32_t ranks = 1;
    std::string host;
    std::chrono::milliseconds timeout{};
  };
  // Meets the other ranks at the root's store and connects to them.
  static absl::StatusOr<std::unique_ptr<Mesh>> Connect(const Options& options);

  uint32_t rank() const { return rank_; }
  uint32_t ranks() const { return static_cast<uint32_t>(peers_.size()); }

  // Queues a message for the next Transfer. Messages between two ranks keep their order. `header.bytes` is set here.
  void Send(uint32_t peer, MessageHeader header, const void* data, uint64_t bytes);
  void Receive(uint32_t peer, MessageHeader expected, void* data, uint64_t bytes);

  // How a header reads in an error, e.g. "HcclAllReduce (4 x fp32, sum)".
  using Describe = std::function<std::string(const MessageHeader&)>;
  struct Wait {
    Deadline deadline = Deadline::max();
    std::function<bool()> interrupted;  // asked every now and then
    Describe describe;
  };
  // Sends and receives all that was queued, or throws a CollectiveError. The mesh is of no use after an error.
  void Transfer(const Wait& wait);

  // Any thread: a Transfer that runs, and every later one, fails at once.
  void Interrupt();

  // Tells the others why this rank leaves ("": it is done), as far as they listen, and ends the connections' sending side.
  void Leave(const std::string& reason);

 private:
  struct Message {
    MessageHeader header;
    char* data = nullptr;
    uint64_t done = 0;  // bytes of header and data
    uint64_t total() const { return sizeof(header) + header.bytes; }
  };
  struct Queue {
    std::vector<Message> messages;
    size_t next = 0;
    bool empty() const { return next == messages.size(); }
    void Clear() { messages.clear(), next = 0; }
  };
  struct Peer {
    Fd fd;
    Queue out, in;
    MessageHeader incoming;  // the header that is being read
    bool idle() const { return out.empty() && in.empty(); }
  };

  Mesh(uint32_t rank, uint32_t ranks, Fd wake) : rank_(rank), peers_(ranks), wake_(std::move(wake)) {}
  // Both return true if bytes moved.
  bool Write(uint32_t rank);
  bool Read(uint32_t rank, const Describe& describe);
  void CheckHeader(uint32_t rank, const Message& expected, const Describe& describe);
  [[noreturn]] void Lost(uint32_t rank, const std::string& how);
  [[noreturn]] void TellFarewell(uint32_t rank, const MessageHeader& header);
  void Sleep(const Wait& wait);
  void CheckInterrupted(const Wait& wait);
  std::string Unanswered() const;

  const uint32_t rank_;
  std::vector<Peer> peers_;
  Fd wake_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_MESH_H_
