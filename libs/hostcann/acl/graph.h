// Capturing a stream into a graph, and running the graph.
//
// A graph is a flat list of tasks in the order of capture, which is an order that satisfies every dependency between the captured
// streams. A replay is one task in the stream that it is launched on: it calls the list, one indirect call per node.
//
// While streams are captured, calls that would not be seen by the capture are refused, as on hardware: synchronising a captured stream,
// and the *unsafe* calls (aclrtMemcpy, aclrtMemset, copies from pageable host memory) within the limits of the capture mode. A refused
// call on a captured stream invalidates the capture: its end returns an error.
#ifndef LIBS_HOSTCANN_ACL_GRAPH_H_
#define LIBS_HOSTCANN_ACL_GRAPH_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libs/hostcann/acl/event.h"
#include "libs/hostcann/acl/stream.h"
#include "libs/hostcann/acl/task.h"

namespace jumar::hostcann {

enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
const char* CaptureModeName(CaptureMode mode);

class Graph {
 public:
  Graph();
  uint32_t id() const { return id_; }
  size_t num_nodes() const { return nodes_.size(); }
  const std::vector<void*>& group_handles() const { return group_handles_; }  // of its task groups, which end with it

  // Calls every node. Runs on a worker; throws what a node throws, with the node's number and name.
  void Replay();

  // One line per node: its number, stream and name.
  std::string Text() const;
  // The same as a Chrome trace, the form that torch_npu reads: one event per node, its time being its place in the list.
  std::string Json() const;

 private:
  friend class Capture;
  friend class TaskGroup;
  struct Node {
    NamedTask named;
    int stream_id = 0;
    bool updatable = false;
    std::shared_ptr<NamedTask> shared;  // instead of named, for a node of a task group: it can be replaced
  };
  // What must have run before a node, for a replay in another order than that of the capture.
  struct NodeOrder {
    std::vector<std::pair<int, uint64_t>> after;  // so many nodes of the stream with this number
    bool barrier = false;                         // all nodes before it, and none behind it: it may wait for one of them
  };

  std::shared_ptr<NamedTask> Shared(Node& node);  // what is in force now
  void RunHooked(Node& node, Stream& stream);
  // Any order that the dependencies allow, drawn by the stream's generator. `i` is the node that runs.
  void ReplayShuffled(Stream& stream, size_t& i);

  const uint32_t id_;
  std::vector<Node> nodes_;
  std::vector<NodeOrder> order_;  // one per node when captured while schedule fuzzing was on
  std::vector<void*> group_handles_;
  std::mutex replay_mutex_;  // one replay at a time: its nodes share their buffers
  std::mutex update_mutex_;  // guards Node::shared
};

// Some nodes of a graph that can be replaced by as many others of the same names.
class TaskGroup {
 public:
  TaskGroup(std::shared_ptr<Graph> graph, std::vector<size_t> nodes) : graph_(std::move(graph)), nodes_(std::move(nodes)) {}
  // Checks the new tasks now; they take effect when `stream` gets there.
  static int Update(const std::shared_ptr<TaskGroup>& group, std::vector<NamedTask> tasks, Stream& stream);

 private:
  const std::shared_ptr<Graph> graph_;
  const std::vector<size_t> nodes_;
};

// One capture, from aclmdlRICaptureBegin to aclmdlRICaptureEnd. All streams that forked from its first stream belong to it.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // `graph_handle` is what the caller knows the graph by.
  Capture(std::shared_ptr<Stream> origin, CaptureMode mode, std::shared_ptr<Graph> graph, void* graph_handle);

  bool open() const { return open_.load(std::memory_order_acquire); }
  CaptureMode mode() const { return mode_; }
  std::thread::id thread() const { return thread_; }
  void* graph_handle() const { return graph_handle_; }
  bool invalidated() const;

  void Begin();
  int Add(Stream& stream, NamedTask named, TaskKind kind);
  int Mark(Stream& stream, CaptureClock* clock);              // an event record
  int Join(Stream& stream, const CaptureClock& clock);        // an event wait; may bring a stream into the capture
  int Refuse(int code, const std::string& text);              // invalidates; returns code
  int BeginGroup(Stream& stream);
  int EndGroup(Stream& stream, std::shared_ptr<TaskGroup>* group);
  void Own(void* group_handle);  // the handle ends with the graph
  int End(Stream& stream);       // 0 if the graph is good

 private:
  struct Branch {
    std::shared_ptr<Stream> stream;
    CaptureClock seen;              // includes the branch itself
    bool in_group = false;
    std::vector<size_t> group;
  };
  Branch* FindBranch(const Stream& stream);  // under mutex_
  int FailInvalid() const;                   // under mutex_
  void Leave();

  const std::shared_ptr<Stream> origin_;
  const CaptureMode mode_;
  const std::thread::id thread_;
  const std::shared_ptr<Graph> graph_;
  void* const graph_handle_;
  std::atomic<bool> open_{true};
  mutable std::mutex mutex_;
  std::map<const Stream*, Branch> branches_;
  std::string invalid_;  // why; empty while the capture is good
};

// Swaps the capture mode of this thread.
CaptureMode ExchangeThreadMode(CaptureMode mode);

// 0 when this thread may call the unsafe function `what` now; else an error, and the capture that forbids it is invalidated.
int CheckUnsafeCall(const char* what);

// 0 when nothing forbids this thread to wait for a whole device.
int CheckDeviceSynchronize();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_GRAPH_H_
