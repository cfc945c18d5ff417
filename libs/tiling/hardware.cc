#include "libs/tiling/hardware.h"

#include <cctype>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/tiling/spelling.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr int64_t kTerabyte = 1'000'000'000'000;
constexpr uint32_t kFloats = kFp32 | kFp16 | kBf16;
constexpr uint32_t kA2Formats = kFloats | kInt8 | kInt4;
constexpr uint32_t kA5Formats = kFloats | kInt8 | kFp8 | kHiF8 | kMxFp8 | kMxFp4;

constexpr HardwareSpec A2(std::string_view name, int64_t soc_version, int64_t aic, int64_t l2, int64_t memory) {
  return {name, Architecture::kA2, soc_version, aic, 2 * aic, 192 * kKiB, 512 * kKiB, 64 * kKiB, 64 * kKiB, 128 * kKiB, l2, memory, kUnknown, kA2Formats};
}
constexpr HardwareSpec A3(std::string_view name, int64_t soc_version, int64_t aic, int64_t memory, int64_t bandwidth) {
  return {name, Architecture::kA3, soc_version, aic, 2 * aic, 192 * kKiB, 512 * kKiB, 64 * kKiB, 64 * kKiB, 128 * kKiB, kUnknown, memory, bandwidth, kA2Formats};
}
constexpr HardwareSpec A5(std::string_view name, int64_t memory, int64_t bandwidth) {
  return {name, Architecture::kA5, 260, kUnknown, kUnknown, kUnknown, 512 * kKiB, 64 * kKiB, 64 * kKiB, 256 * kKiB, kUnknown, memory, bandwidth, kA5Formats};
}

// Sources as in the header: buffers [D], numbers [T], cores and memory of A2 and 310P [H], of A3 [C], memory of A5 [K].
constexpr HardwareSpec kTable[] = {
    A2("Ascend910B1", 220, kUnknown, kUnknown, kUnknown),
    A2("Ascend910B2", 221, 24, kUnknown, 64 * kGiB),
    A2("Ascend910B2C", 222, kUnknown, kUnknown, kUnknown),
    A2("Ascend910B3", 223, 20, 192 * kMiB, 64 * kGiB),
    A2("Ascend910B4", 224, 20, kUnknown, 32 * kGiB),
    A2("Ascend910B4-1", 225, 20, kUnknown, 64 * kGiB),
    A3("Ascend910_9391", 250, 24, 64 * kGiB, 16 * kTerabyte / 10),
    A3("Ascend910_9392", 251, 24, 64 * kGiB, 16 * kTerabyte / 10),
    A3("Ascend910_9381", 252, kUnknown, 64 * kGiB, kUnknown),
    A3("Ascend910_9382", 253, kUnknown, 64 * kGiB, kUnknown),
    A3("Ascend910_9372", 254, kUnknown, kUnknown, kUnknown),
    A3("Ascend910_9362", 255, kUnknown, kUnknown, kUnknown),
    A3("Ascend910_9363", 256, kUnknown, kUnknown, kUnknown),
    A5("Ascend950PR", 128 * kGiB, 16 * kTerabyte / 10),
    A5("Ascend950DT", 144 * kGiB, 4 * kTerabyte),
    {"Ascend310P1", Architecture::k310P, 200, kUnknown, kUnknown, 256 * kKiB, 1 * kMiB, 64 * kKiB, 64 * kKiB, 256 * kKiB, kUnknown, kUnknown, kUnknown,
     kFp32 | kFp16 | kInt8},
    {"Ascend310P3", Architecture::k310P, 202, 8, kUnknown, 256 * kKiB, 1 * kMiB, 64 * kKiB, 64 * kKiB, 256 * kKiB, kUnknown, 24 * kGiB, kUnknown,
     kFp32 | kFp16 | kInt8},
    {"host", Architecture::kHost, -1, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kFloats},
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

std::span<const HardwareSpec> AllHardware() { return kTable; }

absl::StatusOr<const HardwareSpec*> FindHardware(std::string_view name) {
  const std::string wanted = Lower(name);
  for (const HardwareSpec& spec : kTable) {
    const std::string known = Lower(spec.name);
    if (wanted == known || (wanted.size() > known.size() && wanted.compare(0, known.size() + 1, known + "_") == 0)) return &spec;
  }
  std::vector<std::string> near, all;
  for (const HardwareSpec& spec : kTable) {
    all.emplace_back(spec.name);
    // Two slips, or the name without its "Ascend".
    const std::string known = Lower(spec.name);
    if (EditDistance(wanted, known) <= 2 || "ascend" + wanted == known) near.emplace_back(spec.name);
  }
  return absl::NotFoundError(absl::StrCat("unknown hardware \"", std::string(name), "\"; ", near.empty() ? "known are " : "did you mean ",
                                          absl::StrJoin(near.empty() ? all : near, ", "), near.empty() ? "" : "?"));
}

std::string_view ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kA2: return "A2";
    case Architecture::kA3: return "A3";
    case Architecture::kA5: return "A5";
    case Architecture::k310P: return "310P";
    case Architecture::kHost: return "host";
  }
  return "";
}

std::string FormatNames(uint32_t formats) {
  constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "int8", "int4", "fp8", "hif8", "mxfp8", "mxfp4"};
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (formats >> i & 1) names.emplace_back(kNames[i]);
  }
  return absl::StrJoin(names, " ");
}

}  // namespace jumar::tiling
