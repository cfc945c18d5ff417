#include "libs/hostcann/hccl/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "libs/quant/convert.h"
#include "libs/tiling/executor.h"

namespace jumar::hostcann {
namespace {

constexpr int32_t kSum = 0, kProduct = 1, kMaximum = 2, kMinimum = 3;
constexpr uint64_t kBlock = 2048;  // elements; a block of fp32 stays in the first cache

struct TypeRow {
  int32_t type;
  const char* name;
  uint64_t bytes;
  bool reducible;
};
constexpr TypeRow kTypes[] = {
    {0, "int8", 1, true},        {1, "int16", 2, true},       {2, "int32", 4, true},       {3, "fp16", 2, true},
    {4, "fp32", 4, true},        {5, "int64", 8, true},       {6, "uint64", 8, true},      {7, "uint8", 1, true},
    {8, "uint16", 2, true},      {9, "uint32", 4, true},      {10, "fp64", 8, true},       {11, "bf16", 2, true},
    {12, "int128", 16, false},   {14, "hif8", 1, false},      {15, "fp8_e4m3", 1, false},  {16, "fp8_e5m2", 1, false},
    {17, "fp8_e8m0", 1, false},
};

const TypeRow* Find(int32_t type) {
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& entry) { return entry.type == type; });
  return row == std::end(kTypes) ? nullptr : row;
}

template <typename T, int32_t kOp>
T Combine(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    // Through 64 bits, because narrow unsigned types would be promoted to signed int.
    if constexpr (kOp == kSum) return static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) + static_cast<U>(b));
    if constexpr (kOp == kProduct) return static_cast<T>(static_cast<uint64_t>(static_cast<U>(a)) * static_cast<U>(b));
    if constexpr (kOp == kMaximum) return a > b ? a : b;
    if constexpr (kOp == kMinimum) return a < b ? a : b;
  } else {
    if constexpr (kOp == kSum) return a + b;
    if constexpr (kOp == kProduct) return a * b;
    if constexpr (kOp == kMaximum) return a > b || std::isnan(a) ? a : b;
    if constexpr (kOp == kMinimum) return a < b || std::isnan(a) ? a : b;
  }
}

template <typename T, int32_t kOp>
void Accumulate(T* sum, const T* next, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) sum[i] = Combine<T, kOp>(sum[i], next[i]);
}

template <typename T>
void AccumulateAny(int32_t reduction, T* sum, const T* next, uint64_t count) {
  switch (reduction) {
    case kSum:
      return Accumulate<T, kSum>(sum, next, count);
    case kProduct:
      return Accumulate<T, kProduct>(sum, next, count);
    case kMaximum:
      return Accumulate<T, kMaximum>(sum, next, count);
    case kMinimum:
      return Accumulate<T, kMinimum>(sum, next, count);
  }
}

// A block at a time, in a buffer of its own: `out` may be an input that has still to be read.
template <typename T>
void ReduceBlocks(int32_t reduction, std::span<const void* const> inputs, void* out, uint64_t count) {
  T sum[kBlock];
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t n = std::min(kBlock, count - begin);
    std::memcpy(sum, static_cast<const T*>(inputs[0]) + begin, n * sizeof(T));
    for (const void* input : inputs.subspan(1)) AccumulateAny(reduction, sum, static_cast<const T*>(input) + begin, n);
    std::memcpy(static_cast<T*>(out) + begin, sum, n * sizeof(T));
  }
}

void ReduceHalves(quant::DType type, int32_t reduction, std::span<const void* const> inputs, void* out, uint64_t count) {
  float sum[kBlock], next[kBlock];
  const auto convert = [](quant::DType from, const void* in, quant::DType to, void* result, uint64_t n) {
    quant::Convert(from, in, to, result, static_cast<int64_t>(n), tiling::InlineExecutor()).IgnoreError();
  };
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t n = std::min(kBlock, count - begin);
    convert(type, static_cast<const uint16_t*>(inputs[0]) + begin, quant::DType::kF32, sum, n);
    for (const void* input : inputs.subspan(1)) {
      convert(type, static_cast<const uint16_t*>(input) + begin, quant::DType::kF32, next, n);
      AccumulateAny(reduction, sum, next, n);
    }
    convert(quant::DType::kF32, sum, type, static_cast<uint16_t*>(out) + begin, n);
  }
}

}  // namespace

uint64_t ElementBytes(int32_t type) {
  const TypeRow* row = Find(type);
  return row == nullptr ? 0 : row->bytes;
}

std::string TypeName(int32_t type) {
  const TypeRow* row = Find(type);
  return row == nullptr ? absl::StrCat("data type ", type) : row->name;
}

std::string ReductionName(int32_t reduction) {
  constexpr const char* kNames[] = {"sum", "product", "maximum", "minimum"};
  return IsReduction(reduction) ? kNames[reduction] : absl::StrCat("reduction ", reduction);
}

bool IsReducible(int32_t type) {
  const TypeRow* row = Find(type);
  return row != nullptr && row->reducible;
}

bool IsReduction(int32_t reduction) { return reduction >= kSum && reduction <= kMinimum; }

void Reduce(int32_t type, int32_t reduction, std::span<const void* const> inputs, void* out, uint64_t count) {
  switch (type) {
    case 0:
      return ReduceBlocks<int8_t>(reduction, inputs, out, count);
    case 1:
      return ReduceBlocks<int16_t>(reduction, inputs, out, count);
    case 2:
      return ReduceBlocks<int32_t>(reduction, inputs, out, count);
    case 3:
      return ReduceHalves(quant::DType::kF16, reduction, inputs, out, count);
    case 4:
      return ReduceBlocks<float>(reduction, inputs, out, count);
    case 5:
      return ReduceBlocks<int64_t>(reduction, inputs, out, count);
    case 6:
      return ReduceBlocks<uint64_t>(reduction, inputs, out, count);
    case 7:
      return ReduceBlocks<uint8_t>(reduction, inputs, out, count);
    case 8:
      return ReduceBlocks<uint16_t>(reduction, inputs, out, count);
    case 9:
      return ReduceBlocks<uint32_t>(reduction, inputs, out, count);
    case 10:
      return ReduceBlocks<double>(reduction, inputs, out, count);
    case 11:
      return ReduceHalves(quant::DType::kBF16, reduction, inputs, out, count);
  }
}

}  // namespace jumar::hostcann
