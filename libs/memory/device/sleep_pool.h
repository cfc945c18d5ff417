// Tagged device memory that can sleep: its bytes go back to the system, its addresses stay.
//
// Every allocation is one reserved address range with one physical chunk mapped into it. Sleep copies the contents of some tags to the
// host, drops those of the others, and destroys the chunks; Wake puts new chunks at the old addresses and copies the contents back bit
// for bit. Whatever holds an address (a tensor, a captured graph) need not know.
//
//   SleepPool pool(&virtual_memory);
//   void* weights = *pool.Allocate(270 << 20, "weights");
//   void* cache = *pool.Allocate(1 << 30, "kv_cache");
//   pool.Sleep({"weights"});   // the weights are on the host, the cache is forgotten, the device has 1.26 GiB more
//   pool.Wake({});             // both are back at their addresses; the cache holds whatever fresh memory holds
//
// Failures. A step that fails leaves each allocation either awake with its contents or asleep with its copy, and the call can be
// repeated. Sleep that fails wakes what it put to sleep; what it had already dropped is lost, and so it drops last. Wake that fails
// (out of memory) leaves the rest asleep. What the system refuses to take back is offered to it again by later calls.
//
// Thread-safe. Errors: InvalidArgument, NotFound (not an allocation of this pool), FailedPrecondition (nothing to wake), and those of
// the VirtualMemory.
#ifndef LIBS_MEMORY_DEVICE_SLEEP_POOL_H_
#define LIBS_MEMORY_DEVICE_SLEEP_POOL_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace jumar::memory {

// What a device's driver offers. Sizes are multiples of granularity(). A failed call changes nothing.
class VirtualMemory {
 public:
  using Handle = uint64_t;  // never 0

  virtual ~VirtualMemory() = default;
  virtual uint64_t granularity() const = 0;  // a power of two
  virtual absl::StatusOr<void*> Reserve(uint64_t bytes) = 0;
  virtual absl::Status Release(void* base, uint64_t bytes) = 0;
  virtual absl::StatusOr<Handle> CreatePhysical(uint64_t bytes, const std::string& tag) = 0;  // the tag is for reports
  virtual absl::Status DestroyPhysical(Handle handle) = 0;
  virtual absl::Status Map(void* base, uint64_t bytes, Handle handle) = 0;
  virtual absl::Status Unmap(void* base, uint64_t bytes) = 0;
  virtual absl::StatusOr<void*> AllocateHost(uint64_t bytes) = 0;
  virtual void FreeHost(void* host) = 0;
  virtual absl::Status CopyToHost(void* host, const void* device, uint64_t bytes) = 0;    // returns when it is done
  virtual absl::Status CopyToDevice(void* device, const void* host, uint64_t bytes) = 0;  // likewise
  virtual absl::Status Synchronize() = 0;  // waits for all work of the device, which may use the memory
};

struct SleepTagStats {
  std::string tag;
  uint64_t num_allocations = 0;
  uint64_t num_asleep = 0;
  uint64_t size_bytes = 0;    // addresses, whole pages
  uint64_t device_bytes = 0;  // physical chunks that exist
  uint64_t host_bytes = 0;    // copies on the host
};

class SleepPool {
 public:
  explicit SleepPool(VirtualMemory* memory) : memory_(*memory) {}  // which must outlive the pool
  ~SleepPool();                                                    // frees everything
  SleepPool(const SleepPool&) = delete;
  SleepPool& operator=(const SleepPool&) = delete;

  // Memory that is awake whatever sleeps. `bytes` is positive and is rounded up to the granularity.
  absl::StatusOr<void*> Allocate(uint64_t bytes, std::string_view tag);
  // Asleep or awake. Waits for the device's work first.
  absl::Status Free(void* base);

  // Puts everything that is awake to sleep: copies the tags of `offload` to the host, then drops the rest.
  absl::Status Sleep(absl::Span<const std::string> offload);
  // Drops what is awake of these tags.
  absl::Status Discard(absl::Span<const std::string> tags);
  // Wakes what sleeps of these tags, of all if there are none. FailedPrecondition if nothing of them sleeps.
  absl::Status Wake(absl::Span<const std::string> tags);

  bool IsAwake(void* base) const;            // an allocation of the pool that may be used
  std::vector<SleepTagStats> Stats() const;  // by tag

 private:
  // Awake: mapped, handle != 0, host == nullptr. Asleep: normally none of the first two; what is left of them could not be undone.
  struct Allocation {
    std::string tag;
    uint64_t bytes = 0;  // rounded up
    VirtualMemory::Handle handle = 0;
    bool mapped = false;
    bool asleep = false;
    void* host = nullptr;  // the contents, while asleep and not dropped
  };
  using Allocations = std::map<void*, Allocation>;

  absl::Status PutToSleep(void* base, Allocation& allocation, bool offload);
  absl::Status WakeOne(void* base, Allocation& allocation);
  absl::Status Unback(void* base, Allocation& allocation);  // unmaps and destroys what there is
  absl::Status Dispose(void* base, Allocation& allocation);  // and gives the addresses back
  void Tidy();
  absl::Status SleepThrough(absl::Span<const std::string> offload, const std::vector<void*>& candidates);

  VirtualMemory& memory_;
  mutable std::mutex mutex_;
  Allocations allocations_;
  Allocations left_over_;  // of failed calls of Allocate: nobody's
};

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_SLEEP_POOL_H_
