// A pool of device memory whose allocations and frees are ordered by streams, not by the host.
//
// Memory that is freed on a stream may be handed out again on that stream at once: whatever still uses it runs before whatever uses it
// next. Another stream gets it when the free is known to have been reached, or, if the pool may do so, behind a wait that the pool puts
// into that stream. So nobody synchronises, and the pool asks the device for memory only when it has none that fits.
//
//   CachingPool pool({.name = "pool 1", .max_reserved_bytes = 1 << 30}, &source);
//   void* p = *pool.Allocate(4096, stream_a);     // work may be submitted to stream_a right away
//   pool.Free(p, stream_a);                       // behind that work
//   void* q = *pool.Allocate(4096, stream_a);     // the same bytes
//   pool.Trim(0);                                 // unused segments go back to the device
//
// Memory comes in segments (multiples of segment_bytes), which are split at 512 bytes and joined again. Thread-safe; the source and the
// streams are called under the pool's lock. Errors: InvalidArgument, NotFound (not a live allocation), ResourceExhausted.
#ifndef LIBS_MEMORY_DEVICE_CACHING_POOL_H_
#define LIBS_MEMORY_DEVICE_CACHING_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::memory {

// Where segments come from.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual absl::StatusOr<void*> AllocateSegment(uint64_t bytes) = 0;
  virtual absl::Status FreeSegment(void* base) = 0;
};

// A point in a stream.
class StreamMarker {
 public:
  virtual ~StreamMarker() = default;
  virtual bool Reached() const = 0;  // never false again once it was true
};

// A stream as the pool sees it. Streams of equal id are one stream; an id is never used for another one.
class OrderedStream {
 public:
  virtual ~OrderedStream() = default;
  virtual uint64_t id() const = 0;
  virtual absl::StatusOr<std::shared_ptr<const StreamMarker>> Record() = 0;  // behind all that was submitted to it
  virtual absl::Status WaitFor(const StreamMarker& marker) = 0;              // what is submitted from now on runs behind the marker
};

struct CachingPoolOptions {
  std::string name = "pool";                // starts every error text
  uint64_t segment_bytes = 2 << 20;         // a power of two
  uint64_t max_reserved_bytes = UINT64_MAX;
  uint64_t release_threshold_bytes = UINT64_MAX;  // a free gives unused segments back while more than this is reserved
  bool reuse_reached = true;                // other streams may take memory whose free has been reached
  bool reuse_with_wait = true;              // the pool may make a stream wait for memory that another one freed
};

struct CachingPoolStats {
  uint64_t allocated_bytes = 0;  // handed out, in whole units of 512 bytes
  uint64_t peak_allocated_bytes = 0;
  uint64_t pending_bytes = 0;  // freed, and not known to have been reached
  uint64_t reserved_bytes = 0;  // segments
  uint64_t peak_reserved_bytes = 0;
  uint64_t largest_free_bytes = 0;  // in a row, pending or not
  uint64_t num_allocations = 0;
  uint64_t num_segments = 0;
  uint64_t num_waits = 0;  // put into streams

  // The share of the free memory that is not in the largest run: 0 when all of it is, near 1 when it lies in splinters.
  double fragmentation() const;
};

class CachingPool {
 public:
  CachingPool(CachingPoolOptions options, SegmentSource* source);  // which must outlive the pool
  ~CachingPool();  // gives every segment back; the device must be done with them
  CachingPool(const CachingPool&) = delete;
  CachingPool& operator=(const CachingPool&) = delete;

  // Aligned to 512 bytes. `bytes` is positive.
  absl::StatusOr<void*> Allocate(uint64_t bytes, OrderedStream& stream);
  absl::Status Free(void* base, OrderedStream& stream);
  bool Owns(const void* base) const;  // a live allocation that starts there

  // Gives unused segments back while at least `keep_bytes` stay reserved. Returns the first error of the source, after trying all.
  absl::Status Trim(uint64_t keep_bytes);

  CachingPoolOptions options() const;
  void SetReuse(bool reached, bool with_wait);
  void SetReleaseThreshold(uint64_t bytes);
  CachingPoolStats Stats() const;
  void ResetPeaks();

 private:
  struct Block {
    uint64_t bytes = 0;
    uint64_t segment = 0;  // where its segment starts
    bool live = false;
    uint64_t stream = 0;                         // that freed it, while there is a marker
    std::shared_ptr<const StreamMarker> marker;  // null: every stream may use it, if it isn't live
  };
  using Blocks = std::map<uint64_t, Block>;             // by address
  using FreeSet = std::set<std::pair<uint64_t, uint64_t>>;  // (bytes, address)

  FreeSet& FreeSetOf(const Block& block);
  void AddFree(Blocks::iterator it);
  void RemoveFree(Blocks::iterator it);
  Blocks::iterator Join(Blocks::iterator it);
  void* Take(uint64_t address, uint64_t need);
  void* TakeFitting(uint64_t need, uint64_t stream);
  absl::StatusOr<void*> TakeWithWait(uint64_t need, OrderedStream& stream);
  void Settle();
  absl::Status Grow(uint64_t need);
  absl::Status TrimLocked(uint64_t keep_bytes);
  absl::Status Exhausted(uint64_t need, const std::string& why) const;

  mutable std::mutex mutex_;
  CachingPoolOptions options_;
  SegmentSource& source_;
  Blocks blocks_;
  std::map<uint64_t, uint64_t> segments_;  // start -> bytes
  FreeSet settled_;
  std::map<uint64_t, FreeSet> pending_;  // by stream
  CachingPoolStats stats_;
};

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_CACHING_POOL_H_
