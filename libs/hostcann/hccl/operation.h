// What a call of a collective asks for. The task owns it: a captured collective runs again at every replay.
#ifndef LIBS_HOSTCANN_HCCL_OPERATION_H_
#define LIBS_HOSTCANN_HCCL_OPERATION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "libs/hostcann/hccl/mesh.h"

namespace jumar::hostcann {

enum class Collective : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kScatter,
  kReduceScatter,
  kReduceScatterV,
  kAllGather,
  kAllGatherV,
  kAllToAll,
  kAllToAllV,
  kBarrier,
  kPointToPoint,  // HcclSend, HcclRecv, HcclBatchSendRecv: these meet each other
};

// A stretch of a buffer that belongs to one rank, in elements.
struct Stretch {
  uint64_t offset = 0;
  uint64_t count = 0;
};

struct PointToPoint {
  bool send = false;
  void* buffer = nullptr;
  uint64_t count = 0;
  int32_t type = 0;
  uint32_t peer = 0;
};

struct Operation {
  Collective collective = Collective::kBarrier;
  const char* name = "";  // of the C function
  const void* send = nullptr;
  void* receive = nullptr;
  uint64_t count = 0;
  int32_t type = 0;
  int32_t receive_type = 0;  // of kAllToAll*; else the same
  int32_t reduction = 0;
  uint32_t root = 0;
  // Of each rank, for the collectives whose name ends in V, and for kAllToAll.
  std::vector<Stretch> sends;
  std::vector<Stretch> receives;
  std::vector<PointToPoint> messages;
};

// "HcclAllReduce (4 x fp32, sum)"
std::string Describe(const Operation& operation);
std::string Describe(const MessageHeader& header);

// How many collectives, and messages between two ranks, a communicator has run: what both sides must agree on.
struct Counters {
  uint64_t collectives = 0;
  std::vector<uint64_t> sent, received;
};

// The beginning of what `rank` receives: where, and how many bytes. Nothing: {null, 0}.
std::pair<char*, uint64_t> ResultOf(const Operation& operation, uint32_t rank);

// Bytes of this rank's buffers that the collective reads and writes.
uint64_t BytesOf(const Operation& operation, uint32_t ranks);

// Counts the collective as run.
void Skip(const Operation& operation, Counters& counters);

// Memory that collectives of one communicator share; only grows.
class Scratch {
 public:
  char* Get(uint64_t bytes);
  std::vector<const void*> inputs;

 private:
  std::vector<char> memory_;
};

// Runs a collective, on the worker of its stream. Throws a CollectiveError.
void Run(const Operation& operation, Mesh& mesh, Counters& counters, Scratch& scratch, const Mesh::Wait& wait);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_OPERATION_H_
