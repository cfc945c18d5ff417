#include "libs/memory/device/ledger.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace jumar::memory {

void Ledger::Add(uint64_t base, uint64_t size_bytes, uint64_t requested_bytes) {
  auto it = records_.lower_bound(base);
  if (it != records_.begin() && std::prev(it)->first + std::prev(it)->second.size_bytes > base) --it;
  while (it != records_.end() && it->first < base + size_bytes) {
    freed_.erase(it->second.freed);
    it = records_.erase(it);
  }
  records_[base] = {base, size_bytes, requested_bytes, 0, CallStack::Capture(), {}};
}

void Ledger::MarkFreed(uint64_t base) {
  AllocationRecord& record = records_.at(base);
  record.freed = ++num_ever_freed_;
  record.freed_by = CallStack::Capture();
  freed_[record.freed] = base;
}

std::optional<uint64_t> Ledger::ForgetOldestFreed() {
  if (freed_.empty()) return std::nullopt;
  const uint64_t base = freed_.begin()->second;
  freed_.erase(freed_.begin());
  records_.erase(base);
  return base;
}

const AllocationRecord* Ledger::Nearest(uint64_t address) const {
  const auto it = records_.upper_bound(address);
  return it == records_.begin() ? nullptr : &std::prev(it)->second;
}

const AllocationRecord* Ledger::Holding(uint64_t address) const {
  const AllocationRecord* record = Nearest(address);
  return record != nullptr && address - record->base < record->size_bytes ? record : nullptr;
}

std::vector<AllocationRecord> Ledger::Live() const {
  std::vector<AllocationRecord> live;
  for (const auto& [base, record] : records_) {
    if (record.freed == 0) live.push_back(record);
  }
  return live;
}

namespace {

struct Place {
  uint64_t bytes;
  const char* preposition;
};

Place PlaceOf(const AllocationRecord& record, uint64_t address) {
  const uint64_t offset = address - record.base;
  if (offset < record.requested_bytes) return {offset, " bytes into an allocation of "};
  return {offset - record.requested_bytes, " bytes behind the end of an allocation of "};
}

}  // namespace

std::string Describe(const AllocationRecord& record, uint64_t address) {
  const Place place = PlaceOf(record, address);
  return absl::StrCat(place.bytes, place.preposition, record.requested_bytes, " bytes at ",
                      absl::StrFormat("%p", reinterpret_cast<const void*>(record.base)), record.freed != 0 ? ", which was freed" : "",
                      "\n  allocated by:\n", record.allocated_by.ToString(),
                      record.freed != 0 ? absl::StrCat("  freed by:\n", record.freed_by.ToString()) : "");
}

void Describe(const AllocationRecord& record, uint64_t address, SignalWriter& out) {
  const Place place = PlaceOf(record, address);
  out << place.bytes << place.preposition << record.requested_bytes << " bytes at " << reinterpret_cast<const void*>(record.base)
      << (record.freed != 0 ? ", which was freed" : "") << "\n  allocated by:\n";
  record.allocated_by.Write(out);
  if (record.freed != 0) {
    out << "  freed by:\n";
    record.freed_by.Write(out);
  }
}

}  // namespace jumar::memory
