// Arithmetic on addresses, for the files of DeviceMemory.
#ifndef LIBS_MEMORY_DEVICE_ADDRESS_H_
#define LIBS_MEMORY_DEVICE_ADDRESS_H_

#include <sys/mman.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace jumar::memory {

inline constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

inline uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }
inline uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
inline void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
inline std::string Hex(const void* pointer) { return absl::StrFormat("%p", pointer); }
inline bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_ADDRESS_H_
