#include "libs/quant/format/array.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "libs/quant/format/array_kernel.h"

namespace jumar::quant {
namespace {

constexpr int64_t kBlock = 64;                           // elements: ranges begin at whole bytes of codes
constexpr int64_t kGrain = 256;                          // blocks that are worth another thread
constexpr int64_t kStreamElements = int64_t{8} << 20;    // from here on the result won't stay in a cache

absl::Status Check(const char* what, int64_t count, const void* in, const void* out) {
  if (count < 0) return absl::InvalidArgumentError(absl::StrCat(what, ": count ", count, " is negative"));
  if (count > 0 && (in == nullptr || out == nullptr)) return absl::InvalidArgumentError(absl::StrCat(what, ": an array is null"));
  return absl::OkStatus();
}

void ForRanges(int64_t count, tiling::Executor& executor, const std::function<void(int64_t, int64_t)>& work) {
  executor.ParallelFor(count / kBlock + (count % kBlock != 0), kGrain, [&](int64_t begin, int64_t end) {
    work(begin * kBlock, end > count / kBlock ? count : end * kBlock);
  });
}

}  // namespace

absl::Status EncodeArray(Format format, Overflow overflow, DType in_type, const void* in, int64_t count, uint8_t* codes,
                         tiling::Executor& executor) {
  if (absl::Status status = Check("encode", count, in, codes); !status.ok()) return status;
  const EncodeJob job = {format, overflow, in_type, in, codes, count >= kStreamElements};
  ForRanges(count, executor, [&](int64_t begin, int64_t end) { internal::EncodeCodes(job, begin, end); });
  return absl::OkStatus();
}

absl::Status DecodeArray(Format format, const uint8_t* codes, int64_t count, DType out_type, void* out, tiling::Executor& executor) {
  if (absl::Status status = Check("decode", count, codes, out); !status.ok()) return status;
  const DecodeJob job = {format, codes, out_type, out, count >= kStreamElements};
  ForRanges(count, executor, [&](int64_t begin, int64_t end) { internal::DecodeCodes(job, begin, end); });
  return absl::OkStatus();
}

}  // namespace jumar::quant
