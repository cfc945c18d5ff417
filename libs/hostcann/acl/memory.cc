#include "libs/hostcann/acl/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/graph.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/acl/trace.h"

namespace jumar::hostcann {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxStagedBytes = uint64_t{1} << 20;  // a longer pageable source is waited for instead of copied twice

struct HostRange {
  uint64_t size_bytes = 0;
  uint64_t mapped_bytes = 0;  // 0 when not allocated by us
  bool registered = false;
};

struct HostRanges {
  std::shared_mutex mutex;
  std::map<uint64_t, HostRange> by_start;

  static HostRanges& Get() {
    static auto* const ranges = new HostRanges();
    return *ranges;
  }
};

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

const char* KindName(PointerKind kind) {
  switch (kind) {
    case PointerKind::kPageable:
      return "pageable host memory";
    case PointerKind::kPinned:
      return "pinned host memory";
    case PointerKind::kDevice:
      return "device memory";
  }
  return "memory";
}

int CheckSide(const char* what, const char* side, const void* pointer, uint64_t bytes, bool wants_device, bool wants_host) {
  const PointerInfo info = LookUp(pointer);
  // Registered host memory is mapped for the device, so it can stand on the device's side.
  if ((wants_device && info.kind == PointerKind::kPageable) || (wants_host && info.kind == PointerKind::kDevice)) {
    return Fail(kRtParamInvalid, absl::StrFormat("%s: the kind of copy expects the %s %p in %s, and it is %s", what, side, pointer,
                                                 wants_device ? "device memory" : "host memory", KindName(info.kind)));
  }
  if (info.kind == PointerKind::kDevice) {
    if (int code = CheckNotLost(info.device); code != kOk) return code;
    const memory::DeviceMemory* memory = Runtime::Get().ExistingMemory(info.device);
    if (const uint64_t left = memory->UsableBytes(pointer, bytes); bytes > left) {
      const std::string owner = memory->Describe(pointer);
      return Fail(kRtParamInvalid,
                  absl::StrFormat("%s: %d bytes from the %s %p leave its allocation of %d bytes at %p, %d are left%s%s", what, bytes,
                                  side, pointer, info.size_bytes, static_cast<const void*>(info.base), left,
                                  owner.empty() ? "" : ". It points ", owner));
    }
  }
  return kOk;
}

// Copies a single aligned word at once, since a stream may be waiting for its value (aclrtValueWait).
void CopyBytes(void* dst, const void* src, uint64_t bytes) {
  dst = DeviceAlias(dst);
  src = DeviceAlias(src);
  if (bytes == sizeof(uint64_t) && (Address(dst) | Address(src)) % sizeof(uint64_t) == 0) {
    uint64_t value;
    memcpy(&value, src, sizeof(value));
    std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(dst)).store(value, std::memory_order_release);
    return;
  }
  memcpy(dst, src, bytes);
}

// A plain array, as memory is taken and freed until the process ends.
thread_local char t_tag[memory::kMaxTagLength];
thread_local size_t t_tag_length = 0;

}  // namespace

void SetMemoryTag(std::string_view tag) { t_tag_length = tag.copy(t_tag, sizeof(t_tag)); }
std::string_view MemoryTag() { return {t_tag, t_tag_length}; }

PointerInfo LookUp(const void* pointer) {
  Runtime& runtime = Runtime::Get();
  for (int id = 0; id < runtime.num_devices(); ++id) {
    const memory::DeviceMemory* memory = runtime.ExistingMemory(id);
    if (memory == nullptr) continue;
    if (const auto region = memory->Find(pointer); region.has_value()) {
      return {PointerKind::kDevice, id, static_cast<const char*>(region->base), region->size_bytes};
    }
  }
  HostRanges& ranges = HostRanges::Get();
  std::shared_lock lock(ranges.mutex);
  auto it = ranges.by_start.upper_bound(Address(pointer));
  if (it == ranges.by_start.begin()) return {};
  --it;
  if (Address(pointer) - it->first >= it->second.size_bytes) return {};
  return {PointerKind::kPinned, -1, reinterpret_cast<const char*>(it->first), it->second.size_bytes};
}

int MallocHost(void** pointer, uint64_t bytes) {
  if (pointer == nullptr || bytes == 0) return Fail(kRtParamInvalid, "aclrtMallocHost needs a place for the pointer and at least 1 byte");
  const uint64_t mapped = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mapped < bytes ? MAP_FAILED : mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Fail(kRtMemoryAllocation, absl::StrCat("EL0004: Failed to allocate ", memory::FormatBytes(bytes), " of host memory (",
                                                  strerror(errno), "); free memory of the machine"));
  }
  HostRanges& ranges = HostRanges::Get();
  std::unique_lock lock(ranges.mutex);
  ranges.by_start[Address(memory)] = {bytes, mapped, false};
  *pointer = memory;
  return kOk;
}

int FreeHost(void* pointer) {
  HostRanges& ranges = HostRanges::Get();
  std::unique_lock lock(ranges.mutex);
  const auto it = ranges.by_start.find(Address(pointer));
  if (it == ranges.by_start.end() || it->second.mapped_bytes == 0) {
    return Fail(kRtParamInvalid, absl::StrFormat("aclrtFreeHost: %p was not allocated by aclrtMallocHost, or was freed", pointer));
  }
  munmap(pointer, it->second.mapped_bytes);
  ranges.by_start.erase(it);
  return kOk;
}

int RegisterHost(void* pointer, uint64_t bytes) {
  if (pointer == nullptr || bytes == 0) return Fail(kRtParamInvalid, "aclrtHostRegister needs an address and at least 1 byte");
  const PointerInfo info = LookUp(pointer);
  HostRanges& ranges = HostRanges::Get();
  std::unique_lock lock(ranges.mutex);
  const auto it = ranges.by_start.find(Address(pointer));
  // Memory of aclrtMallocHost may be registered too: torch_npu does so for pinned memory that the device maps.
  const bool own = it != ranges.by_start.end() && it->second.mapped_bytes != 0 && !it->second.registered;
  if (info.kind != PointerKind::kPageable && !own) {
    return Fail(kRtParamInvalid, absl::StrFormat("aclrtHostRegister: %p is registered, or inside pinned or device memory, already", pointer));
  }
  if (own) {
    it->second.registered = true;
  } else {
    ranges.by_start[Address(pointer)] = {bytes, 0, true};
  }
  return kOk;
}

int UnregisterHost(void* pointer) {
  HostRanges& ranges = HostRanges::Get();
  std::unique_lock lock(ranges.mutex);
  const auto it = ranges.by_start.find(Address(pointer));
  if (it == ranges.by_start.end() || !it->second.registered) {
    return Fail(kRtParamInvalid, absl::StrFormat("aclrtHostUnregister: %p is not the start of a registered range", pointer));
  }
  if (it->second.mapped_bytes != 0) {
    it->second.registered = false;
  } else {
    ranges.by_start.erase(it);
  }
  return kOk;
}

int CheckCopy(const char* what, const void* dst, uint64_t dst_bytes, const void* src, uint64_t bytes, int kind) {
  if (bytes == 0) return kOk;
  if (dst == nullptr || src == nullptr) return Fail(kRtParamInvalid, absl::StrCat(what, ": a null pointer with ", bytes, " bytes"));
  if (bytes > dst_bytes) {
    return Fail(kRtParamInvalid, absl::StrCat(what, ": ", bytes, " bytes do not fit the destination of ", dst_bytes));
  }
  const bool to_device = kind == kCopyHostToDevice || kind == kCopyDeviceToDevice || kind >= 5;
  const bool from_device = kind == kCopyDeviceToHost || kind == kCopyDeviceToDevice || kind >= 6;
  const bool to_host = kind == kCopyHostToHost || kind == kCopyDeviceToHost;
  const bool from_host = kind == kCopyHostToHost || kind == kCopyHostToDevice;
  if (int code = CheckSide(what, "destination", dst, bytes, to_device, to_host); code != kOk) return code;
  return CheckSide(what, "source", src, bytes, from_device, from_host);
}

int CopyAsync(Stream& stream, void* dst, const void* src, uint64_t bytes) {
  if (bytes == 0) return kOk;
  const bool from_pageable = LookUp(src).kind == PointerKind::kPageable;
  const bool to_pageable = LookUp(dst).kind == PointerKind::kPageable;
  if (from_pageable || to_pageable) {
    if (int code = CheckUnsafeCall("an asynchronous copy with pageable host memory"); code != kOk) return kRtCaptureBlocksAsync;
  }
  const auto copy = [dst, src, bytes] { CopyBytes(dst, src, bytes); };
  auto details = Tracing() ? CopyDetails(dst, src, bytes) : nullptr;
  if (stream.capturing() || stream.updating() || !(from_pageable || to_pageable)) {
    return stream.Submit({"memcpy", std::move(details), copy});
  }
  if (from_pageable && !to_pageable && bytes <= kMaxStagedBytes) {
    std::shared_ptr<char[]> staged(new char[bytes]);
    memcpy(staged.get(), DeviceAlias(src), bytes);
    return stream.Submit({"memcpy", std::move(details), [dst, staged, bytes] { CopyBytes(dst, staged.get(), bytes); }});
  }
  if (int code = stream.Submit({"memcpy", std::move(details), copy}); code != kOk) return code;
  return stream.Synchronize(-1);
}

void Copy2d::Run() const {
  for (uint64_t row = 0; row < height; ++row) {
    memcpy(static_cast<char*>(DeviceAlias(dst)) + row * dst_pitch, static_cast<const char*>(DeviceAlias(src)) + row * src_pitch,
           width_bytes);
  }
}

}  // namespace jumar::hostcann
