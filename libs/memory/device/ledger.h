// Who allocated what and who freed it, for the messages of strict mode.
//
// Freed allocations are remembered until the owner reuses their addresses (Forget), so that a use after free can be told from a wild
// pointer. Not thread-safe; the owner locks.
#ifndef LIBS_MEMORY_DEVICE_LEDGER_H_
#define LIBS_MEMORY_DEVICE_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libs/memory/device/call_stack.h"

namespace jumar::memory {

struct AllocationRecord {
  uint64_t base = 0;
  uint64_t size_bytes = 0;       // whole pages
  uint64_t requested_bytes = 0;
  uint64_t freed = 0;  // 0: live; otherwise the how manieth that was freed
  CallStack allocated_by;
  CallStack freed_by;
};

class Ledger {
 public:
  // Records the caller's stack. Freed records in the way are forgotten.
  void Add(uint64_t base, uint64_t size_bytes, uint64_t requested_bytes);
  void MarkFreed(uint64_t base);
  // Forgets the allocation that was freed first and returns its base.
  std::optional<uint64_t> ForgetOldestFreed();
  size_t num_freed() const { return freed_.size(); }

  // The allocation, live or freed, that holds the address; otherwise the one that ends before it and nearest to it, or null.
  const AllocationRecord* Nearest(uint64_t address) const;
  const AllocationRecord* Holding(uint64_t address) const;  // live or freed, or null
  std::vector<AllocationRecord> Live() const;

 private:
  std::map<uint64_t, AllocationRecord> records_;  // by base; disjoint
  std::map<uint64_t, uint64_t> freed_;            // base by order of freeing
  uint64_t num_ever_freed_ = 0;
};

// What is known of `address` from its nearest record, for an error text and for a signal handler.
std::string Describe(const AllocationRecord& record, uint64_t address);
void Describe(const AllocationRecord& record, uint64_t address, SignalWriter& out);

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_LEDGER_H_
