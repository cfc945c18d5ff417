// Tracing (JUMAR_TRACE=out.json): what every stream did when, as a Chrome/Perfetto trace and as a page of text. docs/tracing.md.
//
// A thread writes into a buffer of its own, which goes to the file when it is full or the thread has nothing to do. The file is a
// complete JSON array at any time: each write puts the closing bracket behind what it adds, and the next one overwrites it.
#ifndef LIBS_HOSTCANN_ACL_TRACE_H_
#define LIBS_HOSTCANN_ACL_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann {

// A task that runs from the construction to the destruction, on the track of its stream. Spans of a thread nest.
class TraceSpan {
 public:
  // `captured_on`: the number of the stream that a node of a graph was captured on, or -1.
  TraceSpan(int device, int stream, const char* name, const TaskDetails* details, int captured_on = -1);
  // Something that the calling thread does itself, without a stream.
  TraceSpan(const char* name, const TaskDetails* details);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;

  // Adds members to the arguments that the trace shows: "\"nodes\": 12".
  void Note(const std::string& members);
  void Arrow(uint64_t id, bool starts);

 private:
  void Begin();

  const char* const name_;
  const TaskDetails* const details_;
  const int device_;
  const int stream_;
  const int captured_on_;
  const bool waits_;
  int64_t start_ns_;
  int64_t children_ns_ = 0;
  TraceSpan* const outer_;
  std::string notes_;
};

// An arrow from one task to another, each of which calls this while it runs. Does nothing while tracing is off.
void TraceArrow(uint64_t id, bool starts);

// Details of a copy: its size, direction and bytes.
std::unique_ptr<const TaskDetails> CopyDetails(const void* dst, const void* src, uint64_t bytes);

// The thread has nothing to do: its buffer goes to the file.
void TraceIdle();
// Writes all buffers and the summary. The trace goes on.
void FlushTrace();
// The same for the last time; what comes later is dropped.
void FinishTrace();

// "out.json" -> "out.1234.json", "t-%p.json" -> "t-1234.json".
std::string TracePath(const std::string& pattern, int process);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_TRACE_H_
