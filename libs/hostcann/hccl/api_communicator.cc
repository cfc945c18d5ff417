// libhccl.so: communicators.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/hccl/api.h"
#include "libs/hostcann/hccl/hccl_api.h"

namespace jumar::hostcann {
namespace {

// The stores of this process that wait for their communicator, and the communicators by their handle. Never destroyed: threads use
// them until the process ends.
struct Registry {
  std::mutex mutex;
  std::map<Token, std::shared_ptr<RendezvousStore>> stores;
  std::map<void*, std::shared_ptr<Communicator>> communicators;
  uint32_t unnamed = 0;
};
Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

void* Register(std::shared_ptr<Communicator> communicator) {
  void* handle = communicator.get();
  std::lock_guard lock(TheRegistry().mutex);
  TheRegistry().communicators[handle] = std::move(communicator);
  return handle;
}

std::string NameOr(const char* name) {
  if (name != nullptr && *name != '\0') return std::string(name, strnlen(name, kHcclNameBytes - 1));
  std::lock_guard lock(TheRegistry().mutex);
  return absl::StrCat("hostcann_", TheRegistry().unnamed++);
}

int FailWith(const char* what, const absl::Status& status) {
  const int code = absl::IsInvalidArgument(status) ? kHcclParameter : absl::IsDeadlineExceeded(status) ? kHcclTimeout : kHcclTcpConnect;
  return Fail(code, absl::StrCat(what, ": ", status.message()));
}

int Create(const char* what, uint32_t ranks, const HcclRoot* root, uint32_t rank, const char* name, void** comm) {
  if (comm == nullptr) return Fail(kHcclPointer, absl::StrCat(what, ": a null pointer for the communicator"));
  if (root == nullptr) return Fail(kHcclPointer, absl::StrCat(what, ": a null pointer for the root information"));
  if (rank >= ranks) return Fail(kHcclParameter, absl::StrCat(what, ": rank ", rank, " of ", ranks, " ranks; ranks count from 0"));
  const absl::StatusOr<RootInfo> info = ReadRootInfo(root->bytes);
  if (!info.ok()) return FailWith(what, info.status());
  const absl::StatusOr<HcclSettings> settings = CurrentHcclSettings();
  if (!settings.ok()) return FailWith(what, settings.status());
  Communicator::Options options;
  options.root = *info;
  options.rank = rank;
  options.ranks = ranks;
  options.name = NameOr(name);
  options.settings = *settings;
  {
    std::lock_guard lock(TheRegistry().mutex);
    const auto found = TheRegistry().stores.find(info->token);
    if (found != TheRegistry().stores.end()) options.store = found->second;
  }
  absl::StatusOr<std::shared_ptr<Communicator>> created = Communicator::Create(options);
  {
    // From here on the communicator keeps the store.
    std::lock_guard lock(TheRegistry().mutex);
    TheRegistry().stores.erase(info->token);
  }
  if (!created.ok()) return FailWith(what, created.status());
  *comm = Register(*std::move(created));
  return kHcclSuccess;
}

}  // namespace

int Fail(int code, const std::string& text) {
  SetRecentError(absl::StrCat("HCCL: ", text));
  return code;
}

std::shared_ptr<Communicator> FindCommunicator(const char* what, void* comm, int* code) {
  std::lock_guard lock(TheRegistry().mutex);
  const auto found = TheRegistry().communicators.find(comm);
  if (found != TheRegistry().communicators.end()) return found->second;
  *code = comm == nullptr ? Fail(kHcclPointer, absl::StrCat(what, " without a communicator"))
                          : Fail(kHcclParameter, absl::StrCat(what, ": this is no communicator; it may have been destroyed"));
  return nullptr;
}

}  // namespace jumar::hostcann

namespace hc = jumar::hostcann;

int32_t HcclGetRootInfo(HcclRoot* root) {
  static_assert(sizeof(HcclRoot) == hc::kRootInfoBytes);
  if (root == nullptr) return hc::Fail(kHcclPointer, "HcclGetRootInfo: a null pointer for the root information");
  const absl::StatusOr<hc::HcclSettings> settings = hc::CurrentHcclSettings();
  if (!settings.ok()) return hc::FailWith("HcclGetRootInfo", settings.status());
  const absl::StatusOr<std::shared_ptr<hc::RendezvousStore>> store = hc::RendezvousStore::Start(settings->host);
  if (!store.ok()) return hc::FailWith("HcclGetRootInfo", store.status());
  hc::WriteRootInfo((*store)->root(), root->bytes);
  std::lock_guard lock(hc::TheRegistry().mutex);
  hc::TheRegistry().stores[(*store)->root().token] = *store;
  return kHcclSuccess;
}

int32_t HcclCommInitRootInfo(uint32_t ranks, const HcclRoot* root, uint32_t rank, void** comm) {
  return hc::Create("HcclCommInitRootInfo", ranks, root, rank, nullptr, comm);
}

int32_t HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRoot* root, uint32_t rank, const HcclConfigHead* config, void** comm) {
  return hc::Create("HcclCommInitRootInfoConfig", ranks, root, rank, config == nullptr ? nullptr : config->name, comm);
}

int32_t HcclCommInitAll(uint32_t count, int32_t* devices, void** comms) {
  if (comms == nullptr) return hc::Fail(kHcclPointer, "HcclCommInitAll: a null pointer for the communicators");
  if (count == 0) return hc::Fail(kHcclParameter, "HcclCommInitAll: no device");
  HcclRoot root;
  if (const int code = HcclGetRootInfo(&root); code != kHcclSuccess) return code;
  const std::string name = hc::NameOr(nullptr);
  std::fill(comms, comms + count, nullptr);
  std::vector<int> codes(count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] { codes[rank] = hc::Create("HcclCommInitAll", count, &root, rank, name.c_str(), &comms[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int code) { return code != kHcclSuccess; });
  if (failed == codes.end()) return kHcclSuccess;
  for (uint32_t rank = 0; rank < count; ++rank) {
    if (comms[rank] != nullptr) HcclCommDestroy(std::exchange(comms[rank], nullptr));
  }
  return hc::Fail(*failed, "HcclCommInitAll: the devices' communicators could not be connected");
}

int32_t HcclCreateSubCommConfig(void** comm, uint32_t ranks, uint32_t* rank_ids, uint64_t id, uint32_t rank, HcclConfigHead* config,
                                void** sub_comm) {
  constexpr const char* kWhat = "HcclCreateSubCommConfig";
  int code = kHcclSuccess;
  const auto parent = hc::FindCommunicator(kWhat, comm == nullptr ? nullptr : *comm, &code);
  if (parent == nullptr) return code;
  if (sub_comm == nullptr || rank_ids == nullptr) return hc::Fail(kHcclPointer, absl::StrCat(kWhat, ": a null pointer"));
  if (rank >= ranks) return hc::Fail(kHcclParameter, absl::StrCat(kWhat, ": rank ", rank, " of ", ranks, " ranks; ranks count from 0"));
  for (uint32_t i = 0; i < ranks; ++i) {
    if (rank_ids[i] >= parent->ranks()) {
      return hc::Fail(kHcclParameter,
                      absl::StrCat(kWhat, ": rank ", rank_ids[i], ", but ", parent->name(), " has ", parent->ranks(), " ranks"));
    }
  }
  if (rank_ids[rank] != parent->rank()) {
    return hc::Fail(kHcclParameter, absl::StrCat(kWhat, ": rank ", rank, " of the list is ", rank_ids[rank], ", but this is rank ",
                                                 parent->rank(), " of ", parent->name()));
  }
  auto created = parent->CreateSub({rank_ids, ranks}, id, rank, hc::NameOr(config == nullptr ? nullptr : config->name));
  if (!created.ok()) return hc::FailWith(kWhat, created.status());
  *sub_comm = hc::Register(*std::move(created));
  return kHcclSuccess;
}

int32_t HcclCommDestroy(void* comm) {
  int code = kHcclSuccess;
  const auto found = hc::FindCommunicator("HcclCommDestroy", comm, &code);
  if (found == nullptr) return code;
  {
    std::lock_guard lock(hc::TheRegistry().mutex);
    hc::TheRegistry().communicators.erase(comm);
  }
  found->Destroy();
  return kHcclSuccess;
}

int32_t HcclCommResume(void* comm) {
  int code = kHcclSuccess;
  const auto found = hc::FindCommunicator("HcclCommResume", comm, &code);
  if (found == nullptr) return code;
  const absl::Status resumed = found->Resume();
  return resumed.ok() ? kHcclSuccess : hc::FailWith("HcclCommResume", resumed);
}

int32_t HcclGetCommName(void* comm, char* name) {
  int code = kHcclSuccess;
  const auto found = hc::FindCommunicator("HcclGetCommName", comm, &code);
  if (found == nullptr) return code;
  if (name == nullptr) return hc::Fail(kHcclPointer, "HcclGetCommName: a null pointer");
  std::snprintf(name, kHcclNameBytes, "%s", found->name().c_str());
  return kHcclSuccess;
}

int32_t HcclGetRankSize(void* comm, uint32_t* size) {
  int code = kHcclSuccess;
  const auto found = hc::FindCommunicator("HcclGetRankSize", comm, &code);
  if (found == nullptr) return code;
  if (size == nullptr) return hc::Fail(kHcclPointer, "HcclGetRankSize: a null pointer");
  *size = found->ranks();
  return kHcclSuccess;
}

int32_t HcclGetRankId(void* comm, uint32_t* rank) {
  int code = kHcclSuccess;
  const auto found = hc::FindCommunicator("HcclGetRankId", comm, &code);
  if (found == nullptr) return code;
  if (rank == nullptr) return hc::Fail(kHcclPointer, "HcclGetRankId: a null pointer");
  *rank = found->rank();
  return kHcclSuccess;
}

int32_t HcclGetCommAsyncError(void* comm, int32_t* error) {
  int code = kHcclSuccess;
  const auto found = hc::FindCommunicator("HcclGetCommAsyncError", comm, &code);
  if (found == nullptr) return code;
  if (error == nullptr) return hc::Fail(kHcclPointer, "HcclGetCommAsyncError: a null pointer");
  *error = found->async_error();
  // torch_npu's watchdog, which asks here, tells the recent error of its own thread.
  if (*error != kHcclSuccess) hc::SetRecentError(absl::StrCat("HCCL: ", found->async_error_text()));
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
    case kHcclInternal:
      return "internal error";
    case kHcclNotSupport:
      return "not supported";
    case kHcclTimeout:
      return "timeout";
    case kHcclTcpConnect:
      return "tcp connect error";
    case kHcclTcpTransfer:
      return "tcp transfer error";
    case kHcclRuntime:
      return "runtime error";
    case kHcclRemote:
      return "remote error";
    case kHcclSuspending:
      return "communicator suspending";
    default:
      return "unknown error";
  }
}

// Up to the communicator's name: its length in HCCL's list of settings.
uint32_t HcclGetCommConfigCapability() { return 3; }
// The setting is whether results are deterministic. They always are.
int32_t HcclSetConfig(int32_t, int32_t) { return kHcclSuccess; }
