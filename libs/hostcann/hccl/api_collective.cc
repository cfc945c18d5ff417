// libhccl.so: collectives. Each call checks its arguments, which is where a mistake is cheapest to find, and submits one task.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/hccl/api.h"
#include "libs/hostcann/hccl/group.h"
#include "libs/hostcann/hccl/hccl_api.h"
#include "libs/hostcann/hccl/reduce.h"

namespace jumar::hostcann {
namespace {

// One call: what is wrong with it first, and then its submission.
class Call {
 public:
  Call(Collective collective, const char* name, void* comm) {
    operation_.collective = collective;
    operation_.name = name;
    communicator_ = FindCommunicator(name, comm, &code_);
  }

  Call& Data(const void* send, const void* receive, uint64_t count, int32_t type) {
    operation_.send = DeviceAlias(send);
    operation_.receive = DeviceAlias(receive);
    operation_.count = count;
    operation_.type = type;
    if (ElementBytes(type) == 0) Refuse(kHcclParameter, absl::StrCat("there is no data type ", type));
    return *this;
  }
  Call& Reduction(int32_t reduction) {
    operation_.reduction = reduction;
    if (!IsReduction(reduction)) Refuse(kHcclParameter, absl::StrCat("there is no reduction ", reduction));
    if (!IsReducible(operation_.type)) Refuse(kHcclNotSupport, absl::StrCat("no arithmetic for ", TypeName(operation_.type)));
    return *this;
  }
  Call& Root(uint32_t root) {
    operation_.root = root;
    if (communicator_ != nullptr && root >= ranks()) {
      Refuse(kHcclParameter, absl::StrCat("root ", root, " in a communicator of ", ranks(), " ranks"));
    }
    return *this;
  }
  // Counts and offsets of all ranks, which are host memory.
  Call& Sends(const void* counts, const void* offsets) { return Stretches(counts, offsets, operation_.sends); }
  Call& Receives(const void* counts, const void* offsets) { return Stretches(counts, offsets, operation_.receives); }
  Call& Buffers(bool send, bool receive) {
    if ((send && operation_.send == nullptr) || (receive && operation_.receive == nullptr)) Refuse(kHcclPointer, "a null buffer");
    return *this;
  }
  Call& Message(bool send, void* buffer, uint64_t count, int32_t type, uint32_t peer) {
    if (ElementBytes(type) == 0) Refuse(kHcclParameter, absl::StrCat("there is no data type ", type));
    if (buffer == nullptr && count > 0) Refuse(kHcclPointer, "a null buffer");
    if (communicator_ != nullptr && peer >= ranks()) {
      Refuse(kHcclParameter, absl::StrCat("rank ", peer, " in a communicator of ", ranks(), " ranks"));
    }
    operation_.messages.push_back({send, DeviceAlias(buffer), count, type, peer});
    return *this;
  }
  void Refuse(int code, const std::string& text) {
    if (code_ == kHcclSuccess) code_ = Fail(code, absl::StrCat(operation_.name, ": ", text));
  }

  bool ok() const { return code_ == kHcclSuccess; }
  uint32_t rank() const { return communicator_->rank(); }
  uint32_t ranks() const { return communicator_->ranks(); }
  Operation& operation() { return operation_; }

  int Submit(void* stream) {
    if (!ok()) return code_;
    return SubmitOrCollect(communicator_, std::move(operation_), stream);
  }

 private:
  Call& Stretches(const void* counts, const void* offsets, std::vector<Stretch>& out) {
    if (counts == nullptr || offsets == nullptr) Refuse(kHcclPointer, "null counts or offsets");
    for (uint32_t rank = 0; ok() && rank < ranks(); ++rank) {
      out.push_back({static_cast<const uint64_t*>(offsets)[rank], static_cast<const uint64_t*>(counts)[rank]});
    }
    return *this;
  }

  Operation operation_;
  std::shared_ptr<Communicator> communicator_;
  int code_ = kHcclSuccess;
};

}  // namespace

bool OwnMessagesPair(const Operation& operation, uint32_t rank) {
  std::vector<const PointToPoint*> sends, receives;
  for (const PointToPoint& message : operation.messages) {
    if (message.peer == rank) (message.send ? sends : receives).push_back(&message);
  }
  bool paired = sends.size() == receives.size();
  for (size_t i = 0; paired && i < sends.size(); ++i) {
    paired = sends[i]->count == receives[i]->count && sends[i]->type == receives[i]->type;
  }
  if (!paired) {
    Fail(kHcclParameter, absl::StrCat(operation.name, ": rank ", rank, " is this rank; what it sends to itself must be received in the ",
                                      "same batch, with the same count and type"));
  }
  return paired;
}

}  // namespace jumar::hostcann

using jumar::hostcann::Call;
using jumar::hostcann::Collective;

int32_t HcclAllReduce(void* send, void* receive, uint64_t count, int32_t type, int32_t op, void* comm, void* stream) {
  Call call(Collective::kAllReduce, "HcclAllReduce", comm);
  return call.Data(send, receive, count, type).Reduction(op).Buffers(count > 0, count > 0).Submit(stream);
}

int32_t HcclReduce(void* send, void* receive, uint64_t count, int32_t type, int32_t op, uint32_t root, void* comm, void* stream) {
  Call call(Collective::kReduce, "HcclReduce", comm);
  call.Data(send, receive, count, type).Reduction(op).Root(root);
  return call.Buffers(count > 0, count > 0 && call.ok() && call.rank() == root).Submit(stream);
}

int32_t HcclBroadcast(void* buffer, uint64_t count, int32_t type, uint32_t root, void* comm, void* stream) {
  Call call(Collective::kBroadcast, "HcclBroadcast", comm);
  return call.Data(buffer, buffer, count, type).Root(root).Buffers(count > 0, count > 0).Submit(stream);
}

int32_t HcclScatter(void* send, void* receive, uint64_t count, int32_t type, uint32_t root, void* comm, void* stream) {
  Call call(Collective::kScatter, "HcclScatter", comm);
  call.Data(send, receive, count, type).Root(root);
  return call.Buffers(count > 0 && call.ok() && call.rank() == root, count > 0).Submit(stream);
}

int32_t HcclReduceScatter(void* send, void* receive, uint64_t count, int32_t type, int32_t op, void* comm, void* stream) {
  Call call(Collective::kReduceScatter, "HcclReduceScatter", comm);
  return call.Data(send, receive, count, type).Reduction(op).Buffers(count > 0, count > 0).Submit(stream);
}

int32_t HcclReduceScatterV(void* send, const void* counts, const void* displacements, void* receive, uint64_t count, int32_t type,
                           int32_t op, void* comm, void* stream) {
  Call call(Collective::kReduceScatterV, "HcclReduceScatterV", comm);
  call.Data(send, receive, 0, type).Reduction(op).Sends(counts, displacements);
  if (call.ok() && call.operation().sends[call.rank()].count != count) {
    call.Refuse(kHcclParameter, absl::StrCat("this rank receives ", count, " elements, but the list of counts says ",
                                             call.operation().sends[call.rank()].count));
  }
  return call.Buffers(false, count > 0).Submit(stream);
}

int32_t HcclAllGather(void* send, void* receive, uint64_t count, int32_t type, void* comm, void* stream) {
  Call call(Collective::kAllGather, "HcclAllGather", comm);
  return call.Data(send, receive, count, type).Buffers(count > 0, count > 0).Submit(stream);
}

int32_t HcclAllGatherV(void* send, uint64_t count, void* receive, const void* counts, const void* displacements, int32_t type,
                       void* comm, void* stream) {
  Call call(Collective::kAllGatherV, "HcclAllGatherV", comm);
  call.Data(send, receive, 0, type).Receives(counts, displacements);
  if (call.ok() && call.operation().receives[call.rank()].count != count) {
    call.Refuse(kHcclParameter, absl::StrCat("this rank sends ", count, " elements, but the list of counts says ",
                                             call.operation().receives[call.rank()].count));
  }
  return call.Buffers(count > 0, false).Submit(stream);
}

int32_t HcclAlltoAll(const void* send, uint64_t send_count, int32_t send_type, const void* receive, uint64_t receive_count,
                     int32_t receive_type, void* comm, void* stream) {
  Call call(Collective::kAllToAll, "HcclAlltoAll", comm);
  call.Data(send, receive, send_count, send_type).Buffers(send_count > 0, receive_count > 0);
  if (send_count != receive_count || send_type != receive_type) {
    call.Refuse(kHcclParameter, "what is sent to each rank and received from it must have the same count and type");
  }
  for (uint64_t rank = 0; call.ok() && rank < call.ranks(); ++rank) {
    call.operation().sends.push_back({rank * send_count, send_count});
  }
  call.operation().receives = call.operation().sends;
  return call.Submit(stream);
}

int32_t HcclAlltoAllV(const void* send, const void* send_counts, const void* send_displacements, int32_t send_type, const void* receive,
                      const void* receive_counts, const void* receive_displacements, int32_t receive_type, void* comm, void* stream) {
  Call call(Collective::kAllToAllV, "HcclAlltoAllV", comm);
  call.Data(send, receive, 0, send_type).Sends(send_counts, send_displacements).Receives(receive_counts, receive_displacements);
  if (send_type != receive_type) call.Refuse(kHcclParameter, "what is sent and what is received must have the same type");
  if (call.ok()) {
    const uint64_t to_self = call.operation().sends[call.rank()].count, from_self = call.operation().receives[call.rank()].count;
    if (to_self != from_self) {
      call.Refuse(kHcclParameter, absl::StrCat("this rank sends itself ", to_self, " elements and receives ", from_self, " from itself"));
    }
  }
  return call.Submit(stream);
}

int32_t HcclAlltoAllVC(const void* send, const void* counts, int32_t send_type, const void* receive, int32_t receive_type, void* comm,
                       void* stream) {
  Call call(Collective::kAllToAllV, "HcclAlltoAllVC", comm);
  call.Data(send, receive, 0, send_type);
  if (counts == nullptr) call.Refuse(kHcclPointer, "null counts");
  if (send_type != receive_type) call.Refuse(kHcclParameter, "what is sent and what is received must have the same type");
  // counts[i][j] is what rank i sends to rank j; both buffers are dense.
  uint64_t sent = 0, received = 0;
  for (uint32_t rank = 0; call.ok() && rank < call.ranks(); ++rank) {
    const auto* matrix = static_cast<const uint64_t*>(counts);
    const uint64_t to = matrix[call.rank() * call.ranks() + rank], from = matrix[rank * call.ranks() + call.rank()];
    call.operation().sends.push_back({sent, to});
    call.operation().receives.push_back({received, from});
    sent += to;
    received += from;
  }
  return call.Submit(stream);
}

int32_t HcclBarrier(void* comm, void* stream) {
  Call call(Collective::kBarrier, "HcclBarrier", comm);
  return call.Submit(stream);
}

int32_t HcclSend(void* buffer, uint64_t count, int32_t type, uint32_t peer, void* comm, void* stream) {
  Call call(Collective::kPointToPoint, "HcclSend", comm);
  call.Message(true, buffer, count, type, peer);
  return call.Submit(stream);
}

int32_t HcclRecv(void* buffer, uint64_t count, int32_t type, uint32_t peer, void* comm, void* stream) {
  Call call(Collective::kPointToPoint, "HcclRecv", comm);
  call.Message(false, buffer, count, type, peer);
  return call.Submit(stream);
}

int32_t HcclBatchSendRecv(HcclBatchItem* items, uint32_t count, void* comm, void* stream) {
  Call call(Collective::kPointToPoint, "HcclBatchSendRecv", comm);
  if (items == nullptr && count > 0) call.Refuse(kHcclPointer, "null items");
  for (uint32_t i = 0; call.ok() && i < count; ++i) {
    if (items[i].kind != 0 && items[i].kind != 1) call.Refuse(kHcclParameter, absl::StrCat("item ", i, " is of no kind ", items[i].kind));
    call.Message(items[i].kind == 0, items[i].buffer, items[i].count, items[i].type, items[i].peer);
  }
  return call.Submit(stream);
}
