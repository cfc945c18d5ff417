// libhccl.so: collectives of one rank. With one rank a collective is a copy on the stream; with more it needs a transport, which
// comes later, so that making such a communicator fails and says so.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/hccl_api.h"
#include "libs/hostcann/acl/runtime.h"

namespace {

struct Communicator {
  std::string name;
};

int Fail(int code, const std::string& text) {
  jumar::hostcann::SetRecentError("HCCL: " + text);
  return code;
}

// Bytes of one element, or 0 for a type that HCCL does not have.
uint64_t ElementBytes(int32_t type) {
  switch (type) {
    case 0:   // int8
    case 7:   // uint8
    case 14:  // hif8
    case 15:  // fp8 e4m3
    case 16:  // fp8 e5m2
    case 17:  // fp8 e8m0
      return 1;
    case 1:   // int16
    case 3:   // fp16
    case 8:   // uint16
    case 11:  // bf16
      return 2;
    case 2:  // int32
    case 4:  // fp32
    case 9:  // uint32
      return 4;
    case 5:   // int64
    case 6:   // uint64
    case 10:  // fp64
      return 8;
    case 12:  // int128
      return 16;
    default:
      return 0;
  }
}

int Create(uint32_t ranks, uint32_t rank, const char* name, void** comm) {
  if (comm == nullptr) return Fail(kHcclPointer, "a null pointer for the communicator");
  if (ranks != 1 || rank != 0) {
    return Fail(kHcclNotSupport, "a communicator of " + std::to_string(ranks) + " ranks (this one is " + std::to_string(rank) +
                                     "): hostcann has collectives within one rank only; run with a world size of 1");
  }
  static std::atomic<uint32_t> next{0};
  auto* created = new Communicator();
  created->name = name != nullptr && *name != '\0' ? name : "hostcann_" + std::to_string(next.fetch_add(1));
  *comm = created;
  return kHcclSuccess;
}

int CreateFromConfig(uint32_t ranks, uint32_t rank, const HcclConfigHead* config, void** comm) {
  return Create(ranks, rank, config == nullptr ? nullptr : config->name, comm);
}

// One rank receives what it sends, at an offset in elements on each side.
int CopySelf(const char* what, const void* send, uint64_t send_offset, const void* receive, uint64_t receive_offset, uint64_t count,
             int32_t type, void* comm, void* stream) {
  const uint64_t element = ElementBytes(type);
  if (comm == nullptr) return Fail(kHcclPointer, std::string(what) + " without a communicator");
  if (element == 0) return Fail(kHcclParameter, std::string(what) + ": there is no data type " + std::to_string(type));
  if (count == 0) return kHcclSuccess;
  if (send == nullptr || receive == nullptr) return Fail(kHcclPointer, std::string(what) + ": a null buffer");
  const char* from = static_cast<const char*>(send) + send_offset * element;
  char* to = static_cast<char*>(const_cast<void*>(receive)) + receive_offset * element;
  const uint64_t bytes = count * element;
  if (from == to) return kHcclSuccess;
  const int code = jumar::hostcann::Submit(stream, what, [=] { std::memmove(to, from, bytes); });
  return code == 0 ? kHcclSuccess : kHcclRuntime;
}

int RefuseRoot(const char* what, uint32_t root) {
  return Fail(kHcclParameter, std::string(what) + ": root " + std::to_string(root) + " in a communicator of 1 rank");
}

int RefusePeer(const char* what, uint32_t peer) {
  return Fail(kHcclNotSupport, std::string(what) + " with rank " + std::to_string(peer) + ": the communicator has 1 rank");
}

uint64_t First(const void* values) { return values == nullptr ? 0 : *static_cast<const uint64_t*>(values); }

}  // namespace

int32_t HcclGetRootInfo(HcclRoot* root) {
  if (root == nullptr) return Fail(kHcclPointer, "a null pointer for the root information");
  std::memset(root, 0, sizeof(*root));
  std::snprintf(root->bytes, sizeof(root->bytes), "hostcann-%d", static_cast<int>(getpid()));
  return kHcclSuccess;
}
int32_t HcclCommInitRootInfo(uint32_t ranks, const HcclRoot*, uint32_t rank, void** comm) { return Create(ranks, rank, nullptr, comm); }
int32_t HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRoot*, uint32_t rank, const HcclConfigHead* config, void** comm) {
  return CreateFromConfig(ranks, rank, config, comm);
}
int32_t HcclCommInitAll(uint32_t count, int32_t*, void** comms) { return Create(count, 0, nullptr, comms); }
int32_t HcclCreateSubCommConfig(void**, uint32_t ranks, uint32_t*, uint64_t, uint32_t rank, HcclConfigHead* config, void** comm) {
  return CreateFromConfig(ranks, rank, config, comm);
}
int32_t HcclCommDestroy(void* comm) {
  delete static_cast<Communicator*>(comm);
  return kHcclSuccess;
}
int32_t HcclGetCommName(void* comm, char* name) {
  if (comm == nullptr || name == nullptr) return Fail(kHcclPointer, "HcclGetCommName: a null pointer");
  std::snprintf(name, kHcclNameBytes, "%s", static_cast<Communicator*>(comm)->name.c_str());
  return kHcclSuccess;
}
int32_t HcclGetRankSize(void* comm, uint32_t* size) {
  if (comm == nullptr || size == nullptr) return Fail(kHcclPointer, "HcclGetRankSize: a null pointer");
  *size = 1;
  return kHcclSuccess;
}
int32_t HcclGetRankId(void* comm, uint32_t* rank) {
  if (comm == nullptr || rank == nullptr) return Fail(kHcclPointer, "HcclGetRankId: a null pointer");
  *rank = 0;
  return kHcclSuccess;
}
int32_t HcclGetCommAsyncError(void* comm, int32_t* error) {
  if (comm == nullptr || error == nullptr) return Fail(kHcclPointer, "HcclGetCommAsyncError: a null pointer");
  *error = kHcclSuccess;
  return kHcclSuccess;
}
const char* HcclGetErrorString(int32_t code) {
  switch (code) {
    case kHcclSuccess:
      return "success";
    case kHcclParameter:
      return "parameter error";
    case kHcclPointer:
      return "empty pointer";
    case kHcclNotSupport:
      return "not supported";
    case kHcclRuntime:
      return "runtime error";
    default:
      return "unknown error";
  }
}
// Up to the communicator's name: its length in HCCL's list of settings.
uint32_t HcclGetCommConfigCapability() { return 3; }
int32_t HcclSetConfig(int32_t, int32_t) { return kHcclSuccess; }

int32_t HcclAllReduce(void* send, void* receive, uint64_t count, int32_t type, int32_t, void* comm, void* stream) {
  return CopySelf("HcclAllReduce", send, 0, receive, 0, count, type, comm, stream);
}
int32_t HcclReduce(void* send, void* receive, uint64_t count, int32_t type, int32_t, uint32_t root, void* comm, void* stream) {
  return root != 0 ? RefuseRoot("HcclReduce", root) : CopySelf("HcclReduce", send, 0, receive, 0, count, type, comm, stream);
}
int32_t HcclBroadcast(void* buffer, uint64_t count, int32_t type, uint32_t root, void* comm, void* stream) {
  return root != 0 ? RefuseRoot("HcclBroadcast", root) : CopySelf("HcclBroadcast", buffer, 0, buffer, 0, count, type, comm, stream);
}
int32_t HcclScatter(void* send, void* receive, uint64_t count, int32_t type, uint32_t root, void* comm, void* stream) {
  return root != 0 ? RefuseRoot("HcclScatter", root) : CopySelf("HcclScatter", send, 0, receive, 0, count, type, comm, stream);
}
int32_t HcclReduceScatter(void* send, void* receive, uint64_t count, int32_t type, int32_t, void* comm, void* stream) {
  return CopySelf("HcclReduceScatter", send, 0, receive, 0, count, type, comm, stream);
}
int32_t HcclReduceScatterV(void* send, const void*, const void* displacements, void* receive, uint64_t count, int32_t type, int32_t,
                           void* comm, void* stream) {
  return CopySelf("HcclReduceScatterV", send, First(displacements), receive, 0, count, type, comm, stream);
}
int32_t HcclAllGather(void* send, void* receive, uint64_t count, int32_t type, void* comm, void* stream) {
  return CopySelf("HcclAllGather", send, 0, receive, 0, count, type, comm, stream);
}
int32_t HcclAllGatherV(void* send, uint64_t count, void* receive, const void*, const void* displacements, int32_t type, void* comm,
                       void* stream) {
  return CopySelf("HcclAllGatherV", send, 0, receive, First(displacements), count, type, comm, stream);
}
int32_t HcclAlltoAll(const void* send, uint64_t count, int32_t type, const void* receive, uint64_t, int32_t, void* comm, void* stream) {
  return CopySelf("HcclAlltoAll", send, 0, receive, 0, count, type, comm, stream);
}
int32_t HcclAlltoAllV(const void* send, const void* counts, const void* send_displacements, int32_t type, const void* receive,
                      const void*, const void* receive_displacements, int32_t, void* comm, void* stream) {
  return CopySelf("HcclAlltoAllV", send, First(send_displacements), receive, First(receive_displacements), First(counts), type, comm,
                  stream);
}
int32_t HcclAlltoAllVC(const void* send, const void* counts, int32_t type, const void* receive, int32_t, void* comm, void* stream) {
  return CopySelf("HcclAlltoAllVC", send, 0, receive, 0, First(counts), type, comm, stream);
}
int32_t HcclBarrier(void* comm, void*) { return comm == nullptr ? Fail(kHcclPointer, "HcclBarrier without a communicator") : kHcclSuccess; }
int32_t HcclSend(void*, uint64_t, int32_t, uint32_t peer, void*, void*) { return RefusePeer("HcclSend", peer); }
int32_t HcclRecv(void*, uint64_t, int32_t, uint32_t peer, void*, void*) { return RefusePeer("HcclRecv", peer); }
int32_t HcclBatchSendRecv(void*, uint32_t, void*, void*) { return RefusePeer("HcclBatchSendRecv", 0); }
