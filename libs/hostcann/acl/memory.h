// Host memory that the runtime knows of, what a pointer is, and copies.
#ifndef LIBS_HOSTCANN_ACL_MEMORY_H_
#define LIBS_HOSTCANN_ACL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libs/hostcann/acl/stream.h"

namespace jumar::hostcann {

enum class PointerKind { kPageable, kPinned, kDevice };

struct PointerInfo {
  PointerKind kind = PointerKind::kPageable;
  int device = -1;           // for kDevice
  const char* base = nullptr;  // of the allocation, except for kPageable
  uint64_t size_bytes = 0;
};

PointerInfo LookUp(const void* pointer);

// The tag of the device memory that this thread takes, for the report of an out-of-memory error (JumarTagMemory). Cut to 32 characters.
void SetMemoryTag(std::string_view tag);
std::string_view MemoryTag();

// ---- pinned host memory
int MallocHost(void** pointer, uint64_t bytes);
int FreeHost(void* pointer);
int RegisterHost(void* pointer, uint64_t bytes);
int UnregisterHost(void* pointer);

// ---- copies. `kind` is an aclrtMemcpyKind by value.
inline constexpr int kCopyHostToHost = 0;
inline constexpr int kCopyHostToDevice = 1;
inline constexpr int kCopyDeviceToHost = 2;
inline constexpr int kCopyDeviceToDevice = 3;
inline constexpr int kCopyDefault = 4;  // whatever the pointers are

// Checks sizes, null pointers, that each side is what `kind` says, and that device ranges stay inside their allocation.
int CheckCopy(const char* what, const void* dst, uint64_t dst_bytes, const void* src, uint64_t bytes, int kind);

// Copies in stream order. With pageable host memory on one side the host may reuse or read that memory once this returns, as on
// hardware: a source is staged, a destination is waited for. Refused while the stream is captured.
int CopyAsync(Stream& stream, void* dst, const void* src, uint64_t bytes);

struct Copy2d {
  void* dst = nullptr;
  uint64_t dst_pitch = 0;
  const void* src = nullptr;
  uint64_t src_pitch = 0;
  uint64_t width_bytes = 0;
  uint64_t height = 0;
  void Run() const;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_MEMORY_H_
