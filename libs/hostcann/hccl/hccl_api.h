// The part of HCCL's C interface that hostcann exports, as prototypes of our own (see acl_api.h for the rules).
#ifndef LIBS_HOSTCANN_HCCL_HCCL_API_H_
#define LIBS_HOSTCANN_HCCL_HCCL_API_H_

#include <cstddef>
#include <cstdint>

inline constexpr int kHcclSuccess = 0;
inline constexpr int kHcclParameter = 1;
inline constexpr int kHcclPointer = 2;
inline constexpr int kHcclInternal = 4;
inline constexpr int kHcclNotSupport = 5;
inline constexpr int kHcclTimeout = 9;
inline constexpr int kHcclTcpConnect = 11;
inline constexpr int kHcclTcpTransfer = 13;
inline constexpr int kHcclRuntime = 15;
inline constexpr int kHcclRemote = 21;
inline constexpr int kHcclSuspending = 22;
inline constexpr size_t kHcclNameBytes = 128;

extern "C" {

struct HcclRoot {
  char bytes[4108];
};
// The beginning of a communicator's settings, which is all that is read.
struct HcclConfigHead {
  char reserved[24];
  uint32_t buffer_mib;
  uint32_t deterministic;
  char name[kHcclNameBytes];
};
// One send (kind 0) or receive (kind 1) of a batch.
struct HcclBatchItem {
  int32_t kind;
  void* buffer;
  uint64_t count;
  int32_t type;
  uint32_t peer;
};

int32_t HcclGetRootInfo(HcclRoot* root);
int32_t HcclCommInitRootInfo(uint32_t ranks, const HcclRoot* root, uint32_t rank, void** comm);
int32_t HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRoot* root, uint32_t rank, const HcclConfigHead* config, void** comm);
int32_t HcclCommInitAll(uint32_t count, int32_t* devices, void** comms);
int32_t HcclCreateSubCommConfig(void** comm, uint32_t ranks, uint32_t* rank_ids, uint64_t id, uint32_t rank, HcclConfigHead* config,
                                void** sub_comm);
int32_t HcclCommDestroy(void* comm);
int32_t HcclCommResume(void* comm);
int32_t HcclGetCommName(void* comm, char* name);
int32_t HcclGetRankSize(void* comm, uint32_t* size);
int32_t HcclGetRankId(void* comm, uint32_t* rank);
int32_t HcclGetCommAsyncError(void* comm, int32_t* error);
const char* HcclGetErrorString(int32_t code);
uint32_t HcclGetCommConfigCapability();
int32_t HcclSetConfig(int32_t setting, int32_t value);

int32_t HcclAllReduce(void* send, void* receive, uint64_t count, int32_t type, int32_t op, void* comm, void* stream);
int32_t HcclReduce(void* send, void* receive, uint64_t count, int32_t type, int32_t op, uint32_t root, void* comm, void* stream);
int32_t HcclBroadcast(void* buffer, uint64_t count, int32_t type, uint32_t root, void* comm, void* stream);
int32_t HcclScatter(void* send, void* receive, uint64_t count, int32_t type, uint32_t root, void* comm, void* stream);
int32_t HcclReduceScatter(void* send, void* receive, uint64_t count, int32_t type, int32_t op, void* comm, void* stream);
int32_t HcclReduceScatterV(void* send, const void* counts, const void* displacements, void* receive, uint64_t count, int32_t type,
                           int32_t op, void* comm, void* stream);
int32_t HcclAllGather(void* send, void* receive, uint64_t count, int32_t type, void* comm, void* stream);
int32_t HcclAllGatherV(void* send, uint64_t count, void* receive, const void* counts, const void* displacements, int32_t type,
                       void* comm, void* stream);
int32_t HcclAlltoAll(const void* send, uint64_t send_count, int32_t send_type, const void* receive, uint64_t receive_count,
                     int32_t receive_type, void* comm, void* stream);
int32_t HcclAlltoAllV(const void* send, const void* send_counts, const void* send_displacements, int32_t send_type, const void* receive,
                      const void* receive_counts, const void* receive_displacements, int32_t receive_type, void* comm, void* stream);
int32_t HcclAlltoAllVC(const void* send, const void* counts, int32_t send_type, const void* receive, int32_t receive_type, void* comm,
                       void* stream);
int32_t HcclBarrier(void* comm, void* stream);
int32_t HcclSend(void* buffer, uint64_t count, int32_t type, uint32_t peer, void* comm, void* stream);
int32_t HcclRecv(void* buffer, uint64_t count, int32_t type, uint32_t peer, void* comm, void* stream);
int32_t HcclBatchSendRecv(HcclBatchItem* items, uint32_t count, void* comm, void* stream);

int32_t HcclGroupStart();
int32_t HcclGroupEnd();

}  // extern "C"

#endif  // LIBS_HOSTCANN_HCCL_HCCL_API_H_
