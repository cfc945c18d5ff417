#include "libs/hostcann/acl/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/config.h"
#include "libs/hostcann/acl/memory.h"
#include "libs/hostcann/acl/trace_summary.h"
#include "libs/tiling/machine_limits.h"

namespace jumar::hostcann {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kHostDevice = -1;  // of a span without a stream; its number is the thread's
constexpr int kHostTrackBase = 1'000'000'000;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int TrackOf(int device, int stream) { return device == kHostDevice ? kHostTrackBase + stream : stream; }

// What one thread has to tell. Its mutex is taken by others only to flush.
struct Buffer {
  std::mutex mutex;
  std::string text;
  std::unordered_map<const char*, TaskTotals> tasks;  // names live for ever
  std::map<std::pair<int, int>, StreamTotals> streams;
  uint64_t replays = 0;
  uint64_t nodes = 0;
  int64_t between_nodes_ns = 0;
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  int64_t last_ns = 0;
};

class TraceFile {
 public:
  static TraceFile& Get() {
    static auto* const file = new TraceFile();
    return *file;
  }

  std::shared_ptr<Buffer> NewBuffer() {
    auto buffer = std::make_shared<Buffer>();
    std::lock_guard lock(mutex_);
    buffers_.push_back(buffer);
    return buffer;
  }

  // Under the buffer's mutex.
  void Write(Buffer& buffer) {
    if (buffer.text.empty()) return;
    std::lock_guard lock(mutex_);
    if (!finished_) Append(buffer.text);
    buffer.text.clear();
  }

  // The track's name and place, once.
  void Introduce(Buffer& buffer, int device, int stream) {
    const int track = TrackOf(device, stream);
    {
      std::lock_guard lock(mutex_);
      if (!tracks_.insert(track).second) return;
    }
    const std::string name =
        device == kHostDevice ? absl::StrCat("host thread ", stream) : absl::StrCat("device ", device, " stream ", stream);
    absl::StrAppendFormat(&buffer.text,
                          ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": \"%s\"}}", process_,
                          track, name);
    absl::StrAppendFormat(&buffer.text,
                          ",\n{\"name\": \"thread_sort_index\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"sort_index\": %d}}",
                          process_, track, track);
  }

  void CountBusy(int change) {
    const int64_t now = NowNs();
    std::lock_guard lock(busy_mutex_);
    if (busy_ >= static_cast<int>(ns_with_busy_.size())) ns_with_busy_.resize(static_cast<size_t>(busy_) + 1);
    if (busy_since_ != 0) ns_with_busy_[static_cast<size_t>(busy_)] += now - busy_since_;
    busy_since_ = now;
    busy_ += change;
  }

  void Flush(bool finish) {
    std::vector<std::shared_ptr<Buffer>> buffers;
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      buffers = buffers_;
    }
    TraceTotals totals;
    int64_t first_ns = std::numeric_limits<int64_t>::max(), last_ns = 0;
    for (const auto& buffer : buffers) {
      std::lock_guard lock(buffer->mutex);
      Write(*buffer);
      for (const auto& [name, task] : buffer->tasks) totals.tasks[name].Add(task);
      for (const auto& [key, stream] : buffer->streams) {
        totals.streams[key].busy_ns += stream.busy_ns;
        totals.streams[key].waiting_ns += stream.waiting_ns;
      }
      totals.replays += buffer->replays;
      totals.nodes += buffer->nodes;
      totals.between_nodes_ns += buffer->between_nodes_ns;
      first_ns = std::min(first_ns, buffer->first_ns);
      last_ns = std::max(last_ns, buffer->last_ns);
    }
    {
      std::lock_guard lock(busy_mutex_);
      totals.ns_with_busy = ns_with_busy_;
    }
    totals.process = process_;
    totals.ns = std::max<int64_t>(last_ns - first_ns, 0);
    totals.limits = limits_;
    std::lock_guard lock(mutex_);
    std::ofstream(summary_path_) << SummaryText(totals);
    finished_ = finish;
  }

  int process() const { return process_; }

 private:
  TraceFile()
      : process_(getpid()),
        path_(TracePath(ProcessConfig()->trace, process_)),
        limits_{.threads = ComputeExecutor().num_workers(),
                .bytes_per_s = tiling::CopyBytesPerSecond(ComputeExecutor()),
                .flops_per_s = tiling::FlopsPerSecond(ComputeExecutor())} {
    const bool json = path_.size() > 5 && path_.ends_with(".json");
    summary_path_ = absl::StrCat(json ? path_.substr(0, path_.size() - 5) : path_, ".txt");
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) absl::FPrintF(stderr, "JUMAR_TRACE: %s cannot be written: %s\n", path_, std::strerror(errno));
    Append(absl::StrFormat("[\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"hostcann process %d\"}}",
                           process_, process_));
    std::atexit(FinishTrace);
  }

  // Under mutex_. One write, so that the file is whole whenever the process is killed.
  void Append(const std::string& text) {
    const std::string chunk = text + "\n]\n";
    if (fd_ < 0 || pwrite(fd_, chunk.data(), chunk.size(), end_) != static_cast<ssize_t>(chunk.size())) return;
    end_ += static_cast<off_t>(text.size());
  }

  const int process_;
  const std::string path_;
  std::string summary_path_;
  const MachineLimits limits_;
  std::mutex mutex_;  // guards the file and the lists; taken after a buffer's
  int fd_ = -1;
  off_t end_ = 0;
  bool finished_ = false;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::set<int> tracks_;
  std::mutex busy_mutex_;
  int busy_ = 0;
  int64_t busy_since_ = 0;
  std::vector<int64_t> ns_with_busy_;
};

Buffer& ThisBuffer() {
  static thread_local const std::shared_ptr<Buffer> buffer = TraceFile::Get().NewBuffer();
  return *buffer;
}

thread_local TraceSpan* t_span = nullptr;

bool Waits(const char* name) {
  for (const char* waiting : {"event wait", "value wait", "notify wait"}) {
    if (std::strcmp(name, waiting) == 0) return true;
  }
  return false;
}

const char* CategoryOf(const char* name, const TaskDetails* details, bool waits) {
  if (waits) return "wait";
  if (details == nullptr) return std::strncmp(name, "aclnn", 5) == 0 ? "operator" : "runtime";
  switch (details->kind) {
    case TaskDetails::kOperator:
      return "operator";
    case TaskDetails::kCopy:
      return "copy";
    case TaskDetails::kCollective:
      return "collective";
  }
  return "runtime";
}

}  // namespace

TraceSpan::TraceSpan(int device, int stream, const char* name, const TaskDetails* details, int captured_on)
    : name_(name),
      details_(details),
      device_(device),
      stream_(stream),
      captured_on_(captured_on),
      waits_(Waits(name)),
      outer_(std::exchange(t_span, this)) {
  Begin();
}

TraceSpan::TraceSpan(const char* name, const TaskDetails* details)
    : TraceSpan(kHostDevice, static_cast<int>(syscall(SYS_gettid)), name, details) {}

void TraceSpan::Begin() {
  ThisBuffer();  // the first one measures the machine, which must not count
  if (device_ != kHostDevice && waits_ == (outer_ != nullptr)) TraceFile::Get().CountBusy(waits_ ? -1 : 1);
  start_ns_ = NowNs();
}

TraceSpan::~TraceSpan() {
  const int64_t end_ns = NowNs(), ns = end_ns - start_ns_, own_ns = ns - children_ns_;
  t_span = outer_;
  if (outer_ != nullptr) outer_->children_ns_ += ns;
  if (device_ != kHostDevice && waits_ == (outer_ != nullptr)) TraceFile::Get().CountBusy(waits_ ? 1 : -1);
  Buffer& buffer = ThisBuffer();
  std::lock_guard lock(buffer.mutex);
  TaskTotals own{.count = 1, .ns = own_ns, .longest_ns = own_ns, .waits = waits_};
  if (details_ != nullptr) own.bytes = details_->bytes, own.flops = details_->flops;
  buffer.tasks[name_].Add(own);
  buffer.first_ns = std::min(buffer.first_ns, start_ns_);
  buffer.last_ns = std::max(buffer.last_ns, end_ns);
  if (device_ != kHostDevice) {
    StreamTotals& stream = buffer.streams[{device_, stream_}];
    (waits_ ? stream.waiting_ns : stream.busy_ns) += own_ns;
  }
  if (captured_on_ >= 0) ++buffer.nodes;
  if (std::strcmp(name_, "graph replay") == 0) ++buffer.replays, buffer.between_nodes_ns += own_ns;

  TraceFile& file = TraceFile::Get();
  file.Introduce(buffer, device_, stream_);
  std::string& text = buffer.text;
  absl::StrAppendFormat(&text,
                        ",\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f",
                        name_, CategoryOf(name_, details_, waits_), file.process(), TrackOf(device_, stream_),
                        static_cast<double>(start_ns_) * 1e-3, static_cast<double>(ns) * 1e-3);
  bool some = false;
  const auto argument = [&](const std::string& members) {
    if (!members.empty()) absl::StrAppend(&text, std::exchange(some, true) ? ", " : ", \"args\": {", members);
  };
  if (captured_on_ >= 0) argument(absl::StrCat("\"captured on stream\": ", captured_on_));
  if (details_ != nullptr) {
    argument(details_->arguments);
    argument(absl::StrCat("\"bytes\": ", details_->bytes));
    if (details_->flops > 0) argument(absl::StrFormat("\"flops\": %.0f", details_->flops));
  }
  argument(notes_);
  absl::StrAppend(&text, some ? "}}" : "}");
  if (text.size() >= kBufferBytes) file.Write(buffer);
}

void TraceSpan::Note(const std::string& members) { absl::StrAppend(&notes_, notes_.empty() ? "" : ", ", members); }

void TraceArrow(uint64_t id, bool starts) {
  if (!Hooked(kHookTrace) || t_span == nullptr) return;
  t_span->Arrow(id, starts);
}

void TraceSpan::Arrow(uint64_t id, bool starts) {
  Buffer& buffer = ThisBuffer();
  std::lock_guard lock(buffer.mutex);
  absl::StrAppendFormat(&buffer.text,
                        ",\n{\"name\": \"event\", \"cat\": \"event\", \"ph\": \"%s\", \"id\": %d, \"pid\": %d, \"tid\": %d, "
                        "\"ts\": %.3f%s}",
                        starts ? "s" : "f", id, TraceFile::Get().process(), TrackOf(device_, stream_),
                        static_cast<double>(NowNs()) * 1e-3, starts ? "" : ", \"bp\": \"e\"");
}

std::unique_ptr<const TaskDetails> CopyDetails(const void* dst, const void* src, uint64_t bytes) {
  const auto side = [](const void* pointer) {
    switch (LookUp(pointer).kind) {
      case PointerKind::kDevice:
        return "device";
      case PointerKind::kPinned:
        return "pinned host";
      case PointerKind::kPageable:
        return "host";
    }
    return "host";
  };
  auto details = std::make_unique<TaskDetails>();
  details->kind = TaskDetails::kCopy;
  details->bytes = 2 * bytes;
  details->arguments = absl::StrCat("\"size\": ", bytes, ", \"direction\": \"", side(src), " to ", side(dst), "\"");
  return details;
}

void TraceIdle() {
  if (!Hooked(kHookTrace)) return;
  Buffer& buffer = ThisBuffer();
  std::lock_guard lock(buffer.mutex);
  TraceFile::Get().Write(buffer);
}

void FlushTrace() {
  if (Hooked(kHookTrace)) TraceFile::Get().Flush(/*finish=*/false);
}

void FinishTrace() {
  if (Hooked(kHookTrace)) TraceFile::Get().Flush(/*finish=*/true);
}

std::string TracePath(const std::string& pattern, int process) {
  if (const size_t at = pattern.find("%p"); at != std::string::npos) {
    return absl::StrCat(pattern.substr(0, at), process, pattern.substr(at + 2));
  }
  const size_t slash = pattern.rfind('/'), dot = pattern.rfind('.');
  const bool has_ending = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  const std::string stem = has_ending ? pattern.substr(0, dot) : pattern;
  return absl::StrCat(stem, ".", process, has_ending ? pattern.substr(dot) : ".json");
}

}  // namespace jumar::hostcann
