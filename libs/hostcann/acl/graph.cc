#include "libs/hostcann/acl/graph.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/isolation.h"
#include "libs/hostcann/acl/trace.h"

namespace jumar::hostcann {
namespace {

thread_local CaptureMode t_mode = CaptureMode::kGlobal;

// The open captures of the process; the count lets the usual case (none) cost one load.
struct OpenCaptures {
  std::atomic<int> count{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> list;
  static OpenCaptures& Get() {
    static auto* const open = new OpenCaptures();
    return *open;
  }
};

std::vector<std::shared_ptr<Capture>> ListOpenCaptures() {
  OpenCaptures& open = OpenCaptures::Get();
  if (open.count.load(std::memory_order_acquire) == 0) return {};
  std::lock_guard lock(open.mutex);
  return open.list;
}

uint32_t NextGraphId() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1);
}

void Run(NamedTask& named) {
  const RunningTask running(named.name);
  named.task();
}

}  // namespace

const char* CaptureModeName(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::kGlobal:
      return "global";
    case CaptureMode::kThreadLocal:
      return "thread-local";
    case CaptureMode::kRelaxed:
      return "relaxed";
  }
  return "unknown";
}

Graph::Graph() : id_(NextGraphId()) {}

void Graph::Replay() {
  std::lock_guard one_at_a_time(replay_mutex_);
  size_t i = 0;
  try {
    Stream* stream = Stream::Current();
    const bool hooked = Hooked() && stream != nullptr;
    if (hooked && Hooked(kHookFuzz) && order_.size() == nodes_.size()) return ReplayShuffled(*stream, i);
    for (const size_t n = nodes_.size(); i < n; ++i) {
      if (hooked) {
        RunHooked(nodes_[i], *stream);
      } else if (nodes_[i].updatable) {
        Run(*Shared(nodes_[i]));
      } else {
        Run(nodes_[i].named);
      }
      if (stream != nullptr && stream->aborted()) return;
    }
  } catch (const TaskError& error) {
    throw TaskError(error.code(), absl::StrCat("node ", i, " (", nodes_[i].named.name, "): ", error.what()));
  } catch (const std::exception& error) {
    throw TaskError(kRtAicoreException, absl::StrCat("node ", i, " (", nodes_[i].named.name, "): ", error.what()));
  }
}

std::shared_ptr<NamedTask> Graph::Shared(Node& node) {
  std::lock_guard lock(update_mutex_);
  return node.shared;
}

void Graph::RunHooked(Node& node, Stream& stream) {
  if (Hooked(kHookFuzz)) FuzzDelay(stream.fuzz(), /*was_idle=*/false);
  if (Hooked(kHookFaults)) FaultBeforeTask(stream.device(), node.stream_id, node.named.name);
  const std::shared_ptr<NamedTask> shared = node.updatable ? Shared(node) : nullptr;
  NamedTask& named = shared == nullptr ? node.named : *shared;
  if (!Hooked(kHookTrace)) return Run(named);
  const TraceSpan span(stream.device(), stream.id(), named.name, named.details.get(), node.stream_id);
  Run(named);
}

void Graph::ReplayShuffled(Stream& stream, size_t& i) {
  std::map<int, std::vector<size_t>> left;  // by stream, the last node first
  for (size_t n = nodes_.size(); n-- > 0;) left[nodes_[n].stream_id].push_back(n);
  std::map<int, uint64_t> done;
  size_t num_done = 0, barrier = 0;
  const auto next_barrier = [&] {
    while (barrier < nodes_.size() && !order_[barrier].barrier) ++barrier;
  };
  next_barrier();
  while (num_done < nodes_.size() && !stream.aborted()) {
    std::vector<size_t> ready;
    for (const auto& [unused, nodes] : left) {
      if (nodes.empty()) continue;
      const size_t n = nodes.back();
      const auto has_run = [&](const std::pair<int, uint64_t>& need) { return done[need.first] >= need.second; };
      const bool fits = n == barrier ? num_done == n : n < barrier;
      if (fits && std::all_of(order_[n].after.begin(), order_[n].after.end(), has_run)) ready.push_back(n);
    }
    i = ready[stream.fuzz().Below(ready.size())];
    RunHooked(nodes_[i], stream);
    left[nodes_[i].stream_id].pop_back();
    ++done[nodes_[i].stream_id];
    ++num_done;
    if (i == barrier) ++barrier, next_barrier();
  }
}

std::string Graph::Text() const {
  std::string text = absl::StrCat("graph ", id_, ", ", nodes_.size(), " nodes\n");
  for (size_t i = 0; i < nodes_.size(); ++i) {
    absl::StrAppend(&text, "  ", i, "  stream ", nodes_[i].stream_id, "  ", nodes_[i].named.name,
                    nodes_[i].updatable ? "  (can be updated)" : "", "\n");
  }
  return text;
}

std::string Graph::Json() const {
  std::string text = "[";
  for (size_t i = 0; i < nodes_.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", "\n  {\"name\": \"", nodes_[i].named.name, "\", \"ph\": \"X\", \"pid\": \"graph", id_,
                    "\", \"tid\": \"stream", nodes_[i].stream_id, "\", \"ts\": ", i, ", \"dur\": 1, \"args\": {\"Stream Id\": ",
                    nodes_[i].stream_id, ", \"Task Id\": ", i, ", \"Updatable\": ", nodes_[i].updatable ? "true" : "false", "}}");
  }
  return absl::StrCat(text, "\n]\n");
}

int TaskGroup::Update(const std::shared_ptr<TaskGroup>& group, std::vector<NamedTask> tasks, Stream& stream) {
  const Graph& graph = *group->graph_;
  if (tasks.size() != group->nodes_.size()) {
    return Fail(kRtModelUpdateFailed, absl::StrCat("a task group of graph ", graph.id(), " has ", group->nodes_.size(),
                                                   " tasks and the update brings ", tasks.size(),
                                                   "; issue the same operators as in the capture"));
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    const char* captured = graph.nodes_[group->nodes_[i]].named.name;
    if (std::string_view(captured) != tasks[i].name) {
      return Fail(kRtModelUpdateFailed, absl::StrCat("task ", i, " of a group of graph ", graph.id(), " was captured as ", captured,
                                                     " and cannot become ", tasks[i].name));
    }
  }
  std::vector<std::shared_ptr<NamedTask>> shared;
  for (NamedTask& task : tasks) shared.push_back(std::make_shared<NamedTask>(std::move(task)));
  const auto update = [group, shared = std::move(shared)] {
    std::lock_guard lock(group->graph_->update_mutex_);
    for (size_t i = 0; i < shared.size(); ++i) group->graph_->nodes_[group->nodes_[i]].shared = shared[i];
  };
  stream.Push({"graph update", nullptr, update}, TaskKind::kControl);
  return kOk;
}

Capture::Capture(std::shared_ptr<Stream> origin, CaptureMode mode, std::shared_ptr<Graph> graph, void* graph_handle)
    : origin_(std::move(origin)),
      mode_(mode),
      thread_(std::this_thread::get_id()),
      graph_(std::move(graph)),
      graph_handle_(graph_handle) {}

void Capture::Begin() {
  {
    std::lock_guard lock(mutex_);
    branches_[origin_.get()].stream = origin_;
  }
  OpenCaptures& open = OpenCaptures::Get();
  {
    std::lock_guard lock(open.mutex);
    open.list.push_back(shared_from_this());
    open.count.fetch_add(1, std::memory_order_release);
  }
  origin_->EnterCapture(shared_from_this());
}

bool Capture::invalidated() const {
  std::lock_guard lock(mutex_);
  return !invalid_.empty();
}

int Capture::FailInvalid() const { return Fail(kRtCaptureInvalidated, absl::StrCat("the capture is invalid: ", invalid_)); }

Capture::Branch* Capture::FindBranch(const Stream& stream) {
  const auto it = branches_.find(&stream);
  return it == branches_.end() ? nullptr : &it->second;
}

int Capture::Add(Stream& stream, NamedTask named, TaskKind kind) {
  std::lock_guard lock(mutex_);
  if (!invalid_.empty()) return FailInvalid();
  Branch* branch = FindBranch(stream);
  if (branch == nullptr) return Fail(kRtStreamNotCaptured, absl::StrCat("stream ", stream.id(), " has left the capture"));
  Graph::Node node;
  node.named.name = named.name;
  node.stream_id = stream.id();
  if (branch->in_group) {
    node.updatable = true;
    node.shared = std::make_shared<NamedTask>(std::move(named));
    branch->group.push_back(graph_->nodes_.size());
  } else {
    node.named = std::move(named);
  }
  if (Hooked(kHookFuzz)) {
    Graph::NodeOrder order{.after = {}, .barrier = kind == TaskKind::kControl};
    for (const auto& [other, count] : branch->seen) order.after.emplace_back(other->id(), count);
    graph_->order_.push_back(std::move(order));
  }
  graph_->nodes_.push_back(std::move(node));
  ++branch->seen[&stream];
  return kOk;
}

int Capture::Mark(Stream& stream, CaptureClock* clock) {
  std::lock_guard lock(mutex_);
  if (!invalid_.empty()) return FailInvalid();
  if (Branch* branch = FindBranch(stream); branch != nullptr) *clock = branch->seen;
  return kOk;
}

int Capture::Join(Stream& stream, const CaptureClock& clock) {
  const std::shared_ptr<Capture> current = stream.capture();
  if (current != nullptr && current.get() != this) {
    return Refuse(kRtCaptureDependency,
                  absl::StrCat("stream ", stream.id(), " belongs to another capture; two captures cannot depend on each other"));
  }
  bool enters = false;
  {
    std::lock_guard lock(mutex_);
    if (!invalid_.empty()) return FailInvalid();
    Branch& branch = branches_[&stream];
    if (branch.stream == nullptr) {
      branch.stream = stream.shared_from_this();
      enters = true;
    }
    for (const auto& [other, count] : clock) {
      uint64_t& seen = branch.seen[other];
      seen = std::max(seen, count);
    }
  }
  if (enters) stream.EnterCapture(shared_from_this());
  return kOk;
}

int Capture::Refuse(int code, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (invalid_.empty()) invalid_ = text;
  }
  return Fail(code, text);
}

int Capture::BeginGroup(Stream& stream) {
  std::lock_guard lock(mutex_);
  Branch* branch = FindBranch(stream);
  if (branch == nullptr || branch->in_group) {
    return Fail(kRtParamInvalid, absl::StrCat("stream ", stream.id(), " has a task group open already; end it first"));
  }
  branch->in_group = true;
  branch->group.clear();
  return kOk;
}

int Capture::EndGroup(Stream& stream, std::shared_ptr<TaskGroup>* group) {
  std::lock_guard lock(mutex_);
  Branch* branch = FindBranch(stream);
  if (branch == nullptr || !branch->in_group) {
    return Fail(kRtParamInvalid, absl::StrCat("stream ", stream.id(), " has no task group open; begin one first"));
  }
  branch->in_group = false;
  *group = std::make_shared<TaskGroup>(graph_, std::move(branch->group));
  return kOk;
}

void Capture::Own(void* group_handle) {
  std::lock_guard lock(mutex_);
  graph_->group_handles_.push_back(group_handle);
}

void Capture::Leave() {
  open_.store(false, std::memory_order_release);
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(mutex_);
    for (auto& [unused, branch] : branches_) streams.push_back(branch.stream);
  }
  for (const auto& stream : streams) stream->LeaveCapture();
  OpenCaptures& open = OpenCaptures::Get();
  std::lock_guard lock(open.mutex);
  open.list.erase(std::remove(open.list.begin(), open.list.end(), shared_from_this()), open.list.end());
  open.count.fetch_sub(1, std::memory_order_release);
}

int Capture::End(Stream& stream) {
  if (&stream != origin_.get()) {
    return Fail(kRtCaptureUnmatched,
                absl::StrCat("the capture began on stream ", origin_->id(), " and cannot end on stream ", stream.id()));
  }
  if (mode_ != CaptureMode::kRelaxed && thread_ != std::this_thread::get_id()) {
    return Fail(kRtCaptureWrongThread,
                absl::StrCat("a ", CaptureModeName(mode_), " capture must end in the thread that began it"));
  }
  Leave();
  std::lock_guard lock(mutex_);
  if (!invalid_.empty()) return FailInvalid();
  const CaptureClock& seen = branches_.at(origin_.get()).seen;
  for (const auto& [branch_stream, branch] : branches_) {
    if (branch.in_group) {
      return Fail(kRtCaptureInvalidated, absl::StrCat("the task group of stream ", branch.stream->id(), " was not ended"));
    }
    const auto own = branch.seen.find(branch_stream);
    const auto joined = seen.find(branch_stream);
    if (own != branch.seen.end() && (joined == seen.end() || joined->second < own->second)) {
      return Fail(kRtStreamUnjoined, absl::StrCat("stream ", branch.stream->id(), " was forked from the capture and has tasks that "
                                                  "nothing joins; let stream ", origin_->id(), " wait for an event recorded on it"));
    }
  }
  return kOk;
}

CaptureMode ExchangeThreadMode(CaptureMode mode) { return std::exchange(t_mode, mode); }

int CheckUnsafeCall(const char* what) {
  if (t_mode == CaptureMode::kRelaxed) return kOk;
  for (const std::shared_ptr<Capture>& capture : ListOpenCaptures()) {
    if (capture->mode() == CaptureMode::kRelaxed) continue;
    const bool own = capture->thread() == std::this_thread::get_id();
    if (!own && (capture->mode() == CaptureMode::kThreadLocal || t_mode == CaptureMode::kThreadLocal)) continue;
    return capture->Refuse(kRtCaptureModeNotSupport,
                           absl::StrCat(what, " is not allowed while a stream is captured in ", CaptureModeName(capture->mode()),
                                        " mode: the graph would not contain it. Do it before the capture, or use the asynchronous "
                                        "call with pinned host memory"));
  }
  return kOk;
}

int CheckDeviceSynchronize() {
  for (const std::shared_ptr<Capture>& capture : ListOpenCaptures()) {
    const bool own = capture->thread() == std::this_thread::get_id();
    if (own || capture->mode() == CaptureMode::kGlobal) {
      return capture->Refuse(kRtStreamCaptured, "a device cannot be synchronised while one of its streams is captured: nothing runs "
                                                "before the graph is launched. Do it before or after the capture");
    }
  }
  return kOk;
}

}  // namespace jumar::hostcann
