// Graph capture and replay.
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/graph.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

namespace {

constexpr int32_t kStatusNone = 0;
constexpr int32_t kStatusActive = 1;
constexpr int32_t kStatusInvalidated = 2;

bool ParseMode(int32_t value, CaptureMode* mode) {
  if (value < 0 || value > 2) {
    Fail(kRtParamInvalid, absl::StrCat("there is no capture mode ", value));
    return false;
  }
  *mode = static_cast<CaptureMode>(value);
  return true;
}

// The capture that a stream is in, or null with an error.
std::shared_ptr<Capture> CaptureOf(void* handle, Stream** stream) {
  *stream = Runtime::Get().StreamOf(handle);
  if (*stream == nullptr) return nullptr;
  std::shared_ptr<Capture> capture = (*stream)->capture();
  if (capture == nullptr) Fail(kRtStreamNotCaptured, absl::StrCat("stream ", (*stream)->id(), " is not being captured"));
  return capture;
}

std::shared_ptr<Graph> GraphOf(void* handle) {
  std::shared_ptr<Graph> graph = Runtime::Get().graphs().Get(handle);
  if (graph == nullptr) Fail(kRtInvalidHandle, "not a graph, or destroyed before");
  return graph;
}

}  // namespace

aclError aclmdlRICaptureBegin(void* handle, int32_t mode_value) {
  CaptureMode mode;
  if (!ParseMode(mode_value, &mode)) return kRtParamInvalid;
  if (handle == nullptr) return Fail(kRtParamInvalid, "the default stream cannot be captured; create a stream");
  const std::shared_ptr<Stream> stream = Runtime::Get().SharedStreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (stream->capturing() || stream->updating()) {
    return Fail(kRtStreamCaptured, absl::StrCat("stream ", stream->id(), " is being captured or updated already"));
  }
  auto graph = std::make_shared<Graph>();
  void* graph_handle = Runtime::Get().graphs().Add(graph);
  if (graph_handle == nullptr) return Fail(/*no model resource*/ 207010, "too many graphs; destroy some");
  std::make_shared<Capture>(stream, mode, std::move(graph), graph_handle)->Begin();
  return kOk;
}

aclError aclmdlRICaptureGetInfo(void* handle, int32_t* status, void** graph) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  const std::shared_ptr<Capture> capture = stream->capturing() ? stream->capture() : nullptr;
  if (status != nullptr) *status = capture == nullptr ? kStatusNone : capture->invalidated() ? kStatusInvalidated : kStatusActive;
  if (graph != nullptr) *graph = capture == nullptr ? nullptr : capture->graph_handle();
  return kOk;
}

aclError aclmdlRICaptureEnd(void* handle, void** graph) {
  if (graph == nullptr) return Fail(kRtParamInvalid, "aclmdlRICaptureEnd: a null pointer");
  *graph = nullptr;
  Stream* stream;
  const std::shared_ptr<Capture> capture = CaptureOf(handle, &stream);
  if (capture == nullptr) return stream == nullptr ? kRtInvalidHandle : kRtStreamNotCaptured;
  const int code = capture->End(*stream);
  if (code == kOk) {
    *graph = capture->graph_handle();
  } else if (!capture->open()) {
    Runtime::Get().graphs().Remove(capture->graph_handle());
  }
  return code;
}

aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode) {
  CaptureMode next;
  if (mode == nullptr || !ParseMode(*mode, &next)) return kRtParamInvalid;
  *mode = static_cast<int32_t>(ExchangeThreadMode(next));
  return kOk;
}

aclError aclmdlRICaptureTaskGrpBegin(void* handle) {
  Stream* stream;
  const std::shared_ptr<Capture> capture = CaptureOf(handle, &stream);
  if (capture == nullptr) return stream == nullptr ? kRtInvalidHandle : kRtStreamNotCaptured;
  return capture->BeginGroup(*stream);
}

aclError aclmdlRICaptureTaskGrpEnd(void* handle, void** group) {
  if (group == nullptr) return Fail(kRtParamInvalid, "aclmdlRICaptureTaskGrpEnd: a null pointer");
  Stream* stream;
  const std::shared_ptr<Capture> capture = CaptureOf(handle, &stream);
  if (capture == nullptr) return stream == nullptr ? kRtInvalidHandle : kRtStreamNotCaptured;
  std::shared_ptr<TaskGroup> object;
  if (int code = capture->EndGroup(*stream, &object); code != kOk) return code;
  *group = Runtime::Get().groups().Add(object);
  if (*group == nullptr) return Fail(207010, "too many task groups; destroy some graphs");
  capture->Own(*group);
  return kOk;
}

aclError aclmdlRICaptureTaskUpdateBegin(void* handle, void* group) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (stream->capturing() || stream->updating()) {
    return Fail(kRtStreamCaptured, absl::StrCat("stream ", stream->id(), " is being captured or updated already"));
  }
  std::shared_ptr<TaskGroup> object = Runtime::Get().groups().Get(group);
  if (object == nullptr) return Fail(kRtInvalidHandle, "not a task group, or its graph was destroyed");
  stream->EnterUpdate(std::move(object));
  return kOk;
}

aclError aclmdlRICaptureTaskUpdateEnd(void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (!stream->updating()) {
    return Fail(kRtParamInvalid, absl::StrCat("no update was begun on stream ", stream->id()));
  }
  std::shared_ptr<TaskGroup> group;
  std::vector<NamedTask> tasks = stream->LeaveUpdate(&group);
  return TaskGroup::Update(group, std::move(tasks), *stream);
}

aclError aclmdlRIExecuteAsync(void* handle, void* stream_handle) {
  std::shared_ptr<Graph> graph = GraphOf(handle);
  if (graph == nullptr) return kRtInvalidHandle;
  Stream* stream = Runtime::Get().StreamOf(stream_handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (stream->capturing()) {
    return stream->capture()->Refuse(kRtStreamCaptured, "a graph cannot be launched on a stream that is being captured");
  }
  return stream->Submit("graph replay", [graph = std::move(graph)] { graph->Replay(); });
}

aclError aclmdlRIExecute(void* graph, int32_t timeout_ms) {
  if (int code = aclmdlRIExecuteAsync(graph, nullptr); code != kOk) return code;
  return aclrtSynchronizeStreamWithTimeout(nullptr, timeout_ms);
}

aclError aclmdlRIDestroy(void* handle) {
  // A replay that is queued or running holds the graph; only the handle ends here.
  const std::shared_ptr<Graph> graph = Runtime::Get().graphs().Remove(handle);
  if (graph == nullptr) return Fail(kRtInvalidHandle, "not a graph, or destroyed before");
  for (void* group : graph->group_handles()) Runtime::Get().groups().Remove(group);
  return kOk;
}

aclError aclmdlRIGetId(void* handle, uint32_t* id) {
  const std::shared_ptr<Graph> graph = GraphOf(handle);
  if (graph == nullptr || id == nullptr) return kRtInvalidHandle;
  *id = graph->id();
  return kOk;
}

aclError aclmdlRIDebugPrint(void* handle) {
  const std::shared_ptr<Graph> graph = GraphOf(handle);
  if (graph == nullptr) return kRtInvalidHandle;
  std::fputs(graph->Text().c_str(), stdout);
  return kOk;
}

aclError aclmdlRIDebugJsonPrint(void* handle, const char* path, uint32_t) {
  const std::shared_ptr<Graph> graph = GraphOf(handle);
  if (graph == nullptr) return kRtInvalidHandle;
  std::ofstream file(path == nullptr ? "" : path);
  if (!(file << graph->Json()) || !file.flush()) {
    return Fail(/*write file*/ 107010, absl::StrCat("cannot write the graph to ", path == nullptr ? "(null)" : path));
  }
  return kOk;
}
