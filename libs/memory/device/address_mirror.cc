#include "libs/memory/device/address_mirror.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <optional>

#include "absl/strings/str_cat.h"

namespace jumar::memory {
namespace {

constexpr uint64_t kAlignment = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<AddressMirror>> AddressMirror::Create(uint64_t bytes) {
  bytes = (bytes + kAlignment - 1) & ~(kAlignment - 1);
  void* raw = mmap(nullptr, 2 * bytes + kAlignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve 2 x ", bytes >> 30, " GiB of addresses (", strerror(errno), "); raise `ulimit -v`"));
  }
  const uint64_t start = reinterpret_cast<uint64_t>(raw);
  return std::unique_ptr<AddressMirror>(new AddressMirror((start + kAlignment - 1) & ~(kAlignment - 1), bytes));
}

AddressMirror::AddressMirror(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes), ranges_(base, bytes, kPage) {}

AddressMirror::~AddressMirror() { munmap(reinterpret_cast<void*>(base_), 2 * bytes_); }

absl::StatusOr<void*> AddressMirror::Take(uint64_t bytes, uint64_t alignment) {
  std::lock_guard lock(mutex_);
  const std::optional<uint64_t> start = ranges_.Take(bytes, alignment);
  if (!start.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", bytes, " bytes of addresses in a row are left of ", bytes_));
  }
  return reinterpret_cast<void*>(*start);
}

void AddressMirror::Give(void* base) {
  std::lock_guard lock(mutex_);
  const uint64_t bytes = ranges_.Give(reinterpret_cast<uint64_t>(base));
  if (bytes == 0) return;
  mmap(static_cast<char*>(base) + bytes_, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace jumar::memory
