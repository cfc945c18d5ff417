#include "libs/hostcann/hccl/group.h"

#include <utility>
#include <vector>

#include "libs/hostcann/hccl/api.h"
#include "libs/hostcann/hccl/hccl_api.h"

namespace jumar::hostcann {
namespace {

struct Collected {
  std::shared_ptr<Communicator> communicator;
  Operation operation;
  void* stream;
};

struct Group {
  int depth = 0;
  std::vector<Collected> calls;
};
thread_local Group t_group;

// All messages of one communicator and stream become one operation, which comes after the other collectives.
int SubmitAll(std::vector<Collected> calls) {
  std::vector<Collected> batches;
  int failure = 0;
  const auto submit = [&](Collected& call) {
    const int code = call.communicator->Submit(std::move(call.operation), call.stream);
    if (failure == 0) failure = code;
  };
  for (Collected& call : calls) {
    if (call.operation.collective != Collective::kPointToPoint) {
      submit(call);
      continue;
    }
    Collected* batch = nullptr;
    for (Collected& known : batches) {
      if (known.communicator == call.communicator && known.stream == call.stream) batch = &known;
    }
    if (batch == nullptr) {
      batches.push_back({call.communicator, Operation{}, call.stream});
      batch = &batches.back();
      batch->operation.collective = Collective::kPointToPoint;
      batch->operation.name = "HcclBatchSendRecv";
    }
    std::vector<PointToPoint>& messages = batch->operation.messages;
    messages.insert(messages.end(), call.operation.messages.begin(), call.operation.messages.end());
  }
  for (Collected& batch : batches) {
    if (!OwnMessagesPair(batch.operation, batch.communicator->rank())) return kHcclParameter;
    submit(batch);
  }
  return failure == 0 ? kHcclSuccess : kHcclRuntime;
}

}  // namespace

int SubmitOrCollect(const std::shared_ptr<Communicator>& communicator, Operation operation, void* stream) {
  if (t_group.depth == 0 && !OwnMessagesPair(operation, communicator->rank())) return kHcclParameter;
  if (t_group.depth == 0) return communicator->Submit(std::move(operation), stream) == 0 ? kHcclSuccess : kHcclRuntime;
  t_group.calls.push_back({communicator, std::move(operation), stream});
  return kHcclSuccess;
}

}  // namespace jumar::hostcann

namespace hc = jumar::hostcann;

int32_t HcclGroupStart() {
  ++hc::t_group.depth;
  return kHcclSuccess;
}

int32_t HcclGroupEnd() {
  if (hc::t_group.depth == 0) return hc::Fail(kHcclParameter, "HcclGroupEnd without HcclGroupStart in this thread");
  if (--hc::t_group.depth > 0) return kHcclSuccess;
  return hc::SubmitAll(std::exchange(hc::t_group.calls, {}));
}
