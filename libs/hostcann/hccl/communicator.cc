#include "libs/hostcann/hccl/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/interrupt.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/hccl/hccl_api.h"

namespace jumar::hostcann {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr uint64_t kCorruptBytes = 64;

// A number that all members of a group compute alike, and other groups of the same store don't.
uint64_t GroupNumber(uint64_t parent, uint64_t id, std::span<const uint32_t> members) {
  std::vector<uint64_t> words = {parent, id};
  words.insert(words.end(), members.begin(), members.end());
  return SipHash(Token{}, words.data(), words.size() * sizeof(uint64_t)) | 1;  // 0 is the root's own group
}

}  // namespace

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::Create(const Options& options) {
  std::shared_ptr<Communicator> created(new Communicator(options));
  if (absl::Status connected = created->Connect(); !connected.ok()) return connected;
  return created;
}

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::CreateSub(std::span<const uint32_t> members, uint64_t id, uint32_t rank,
                                                                      const std::string& name) {
  Options options = options_;
  options.group = GroupNumber(options_.group, id, members);
  options.rank = rank;
  options.ranks = static_cast<uint32_t>(members.size());
  options.name = name;
  return Create(options);
}

absl::Status Communicator::Connect() {
  Mesh::Options mesh;
  mesh.root = options_.root;
  mesh.group = resumes_ == 0 ? options_.group : GroupNumber(options_.group, resumes_, {});
  mesh.rank = options_.rank;
  mesh.ranks = options_.ranks;
  mesh.host = options_.settings.host;
  mesh.timeout = options_.settings.connect_timeout;
  absl::StatusOr<std::unique_ptr<Mesh>> connected = Mesh::Connect(mesh);
  if (!connected.ok()) {
    return absl::Status(connected.status().code(),
                        absl::StrCat(Who(), ": ", connected.status().message(), " (HCCL_CONNECT_TIMEOUT is ",
                                     options_.settings.connect_timeout.count() / 1000, " s)"));
  }
  counters_ = Counters{0, std::vector<uint64_t>(options_.ranks), std::vector<uint64_t>(options_.ranks)};
  std::lock_guard lock(mesh_mutex_);
  mesh_ = *std::move(connected);
  return absl::OkStatus();
}

std::string Communicator::Who() const {
  return absl::StrCat("communicator ", options_.name, ", rank ", options_.rank, " of ", options_.ranks);
}

int Communicator::Submit(Operation operation, void* stream) {
  const char* name = operation.name;
  std::unique_ptr<const TaskDetails> details;
  if (Tracing()) {
    auto told = std::make_unique<TaskDetails>();
    told->kind = TaskDetails::kCollective;
    told->bytes = BytesOf(operation, options_.ranks);
    told->arguments = absl::StrCat("\"collective\": \"", Describe(operation), "\", \"communicator\": \"", options_.name, "\", \"rank\": ",
                                   options_.rank, ", \"ranks\": ", options_.ranks);
    details = std::move(told);
  }
  auto shared = std::make_shared<const Operation>(std::move(operation));
  return hostcann::Submit(
      stream, name, [self = shared_from_this(), shared = std::move(shared)] { self->Execute(*shared); }, std::move(details));
}

CollectiveError Communicator::Destroyed(const Operation& operation) const {
  return CollectiveError(kHcclSuspending, absl::StrCat(Describe(operation), ": ", Who(), ": the communicator was destroyed"));
}

Communicator::Turn::Turn(Communicator& communicator, const std::function<bool()>& give_up) : communicator_(communicator) {
  std::unique_lock lock(communicator_.turn_mutex_);
  while (communicator_.turn_taken_ && !give_up()) communicator_.turn_free_.wait_for(lock, kLook);
  taken_ = !communicator_.turn_taken_;
  if (taken_) communicator_.turn_taken_ = true;
}

Communicator::Turn::~Turn() {
  if (!taken_) return;
  {
    std::lock_guard lock(communicator_.turn_mutex_);
    communicator_.turn_taken_ = false;
  }
  communicator_.turn_free_.notify_one();
}

void Communicator::Execute(const Operation& operation) {
  const Turn turn(*this, [this] { return destroyed_ || TaskInterrupted(); });
  if (destroyed_) throw Destroyed(operation);
  if (!turn.taken()) throw CollectiveError(kHcclSuspending, absl::StrCat(Describe(operation), ": the stream was aborted"));
  if (!failure_.empty()) {
    throw CollectiveError(async_error_, absl::StrCat(Describe(operation), ": the communicator has failed before: ", failure_));
  }
  std::shared_ptr<Mesh> mesh;
  {
    std::lock_guard pointer(mesh_mutex_);
    mesh = mesh_;
  }
  if (mesh == nullptr) throw Destroyed(operation);
  Mesh::Wait wait;
  if (options_.settings.exec_timeout.count() > 0) wait.deadline = Clock::now() + options_.settings.exec_timeout;
  wait.interrupted = TaskInterrupted;
  wait.describe = [](const MessageHeader& header) { return Describe(header); };
  try {
    const CollectiveFault fault = NextCollectiveFault(operation.name, static_cast<int>(options_.rank));
    if (!Begin(fault, operation)) return;
    Run(operation, *mesh, counters_, scratch_, wait);
    if (fault.kind == CollectiveFault::kCorrupt) Corrupt(operation);
  } catch (const CollectiveError& error) {
    mesh->Leave(absl::StrCat(Describe(operation), ": ", error.what()));
    Fail(operation, error);
  }
}

bool Communicator::Begin(const CollectiveFault& fault, const Operation& operation) {
  switch (fault.kind) {
    case CollectiveFault::kNone:
    case CollectiveFault::kCorrupt:
      return true;
    case CollectiveFault::kDrop:
      Skip(operation, counters_);
      return false;
    case CollectiveFault::kDelay:
      for (const Deadline end = Clock::now() + std::chrono::milliseconds(fault.delay_ms); Clock::now() < end && !TaskInterrupted();) {
        std::this_thread::sleep_for(std::min<Clock::duration>(kLook, end - Clock::now()));
      }
      return true;
    case CollectiveFault::kExit:
      std::fprintf(stderr, "%s ends this process in %s, %s\n", fault.rule, Describe(operation).c_str(), Who().c_str());
      _exit(fault.exit_code);
  }
  return true;
}

void Communicator::Corrupt(const Operation& operation) const {
  const auto [bytes, count] = ResultOf(operation, options_.rank);
  for (uint64_t i = 0; i < std::min<uint64_t>(count, kCorruptBytes); ++i) bytes[i] = static_cast<char>(~bytes[i]);
}

void Communicator::Fail(const Operation& operation, const CollectiveError& error) {
  failure_ = absl::StrCat(Describe(operation), ", number ", counters_.collectives, ", ", Who(), ": ", error.what());
  if (error.code() == kHcclTimeout) {
    absl::StrAppend(&failure_, " (HCCL_EXEC_TIMEOUT is ", options_.settings.exec_timeout.count() / 1000, " s)");
  }
  {
    std::lock_guard lock(told_mutex_);
    told_ = failure_;
  }
  async_error_.store(error.code());
  throw CollectiveError(error.code(), failure_);
}

std::string Communicator::async_error_text() const {
  std::lock_guard lock(told_mutex_);
  return told_;
}

void Communicator::Destroy() {
  destroyed_ = true;
  std::shared_ptr<Mesh> mesh;
  {
    std::lock_guard pointer(mesh_mutex_);
    mesh = std::move(mesh_);
  }
  if (mesh == nullptr) return;
  mesh->Interrupt();
  const Turn turn(*this, [] { return false; });
  if (failure_.empty()) mesh->Leave("");
}

absl::Status Communicator::Resume() {
  if (destroyed_) return absl::FailedPreconditionError(absl::StrCat(Who(), ": the communicator was destroyed"));
  const Turn turn(*this, [] { return false; });
  ++resumes_;
  if (absl::Status connected = Connect(); !connected.ok()) return connected;
  failure_.clear();
  async_error_.store(0);
  return absl::OkStatus();
}

}  // namespace jumar::hostcann
