#include "libs/quant/int8_gemm/int8_reference.h"

#include <algorithm>
#include <cmath>

#include "libs/quant/scalar.h"

namespace jumar::quant {

int8_t& WeightAt(int8_t* w, Int8Layout layout, int64_t ldw, int64_t n, int64_t k, int64_t j, int64_t kk) {
  switch (layout) {
    case Int8Layout::kNK: return w[j * ldw + kk];
    case Int8Layout::kKN: return w[kk * ldw + j];
    case Int8Layout::kFractalNK: return w[((kk / 32 * ((n + 15) / 16) + j / 16) * 16 + j % 16) * 32 + kk % 32];
    case Int8Layout::kFractalKN: return w[((j / 32 * ((k + 15) / 16) + kk / 16) * 16 + kk % 16) * 32 + j % 32];
  }
  return *w;
}

int64_t WeightBytes(Int8Layout layout, int64_t ldw, int64_t n, int64_t k) {
  switch (layout) {
    case Int8Layout::kNK: return n * ldw;
    case Int8Layout::kKN: return k * ldw;
    case Int8Layout::kFractalNK: return (k + 31) / 32 * 32 * ((n + 15) / 16 * 16);
    case Int8Layout::kFractalKN: return (n + 31) / 32 * 32 * ((k + 15) / 16 * 16);
  }
  return 0;
}

float NumberOf(const Numbers& numbers, int64_t index, float absent) {
  return numbers.data == nullptr ? absent : static_cast<float>(LoadScalar(numbers.type, numbers.data, index * numbers.step));
}

std::vector<int64_t> Int8Sums(const Int8GemmArgs& args, const Int8Group& group) {
  std::vector<int64_t> sums;
  for (int64_t i = group.begin; i < group.end; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      int64_t sum = 0;
      for (int64_t kk = 0; kk < args.k; ++kk) {
        sum += int64_t{args.a[i * args.lda + kk]} * WeightAt(const_cast<int8_t*>(group.w), args.layout, args.ldw, args.n, args.k, j, kk);
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

void Int8GemmReference(const Int8GemmArgs& args, std::span<const Int8Group> groups, void* out) {
  for (const Int8Group& group : groups) {
    const std::vector<int64_t> sums = Int8Sums(args, group);
    for (int64_t i = group.begin; i < group.end; ++i) {
      for (int64_t j = 0; j < args.n; ++j) {
        const int64_t bias = group.int_bias == nullptr ? 0 : group.int_bias[j];
        const auto sum = static_cast<int32_t>(static_cast<uint32_t>(sums[(i - group.begin) * args.n + j] + bias));
        const int64_t at = i * args.ldo + j;
        if (args.out_type == Int8GemmOut::kI32) {
          static_cast<int32_t*>(out)[at] = sum;
          continue;
        }
        float value = static_cast<float>(sum);
        value *= NumberOf(group.scale, j, 0);
        value *= NumberOf(args.token_scale, i, 1);
        value += NumberOf(group.bias, j, -0.0f);
        switch (args.out_type) {
          case Int8GemmOut::kI8: {
            const float whole = std::nearbyint(value) + NumberOf(group.offset, j, 0);
            static_cast<int8_t*>(out)[at] = std::isnan(value) ? 0 : static_cast<int8_t>(std::clamp(whole, -128.0f, 127.0f));
            break;
          }
          case Int8GemmOut::kF32: StoreScalar(DType::kF32, value, out, at); break;
          case Int8GemmOut::kF16: StoreScalar(DType::kF16, value, out, at); break;
          default: StoreScalar(DType::kBF16, value, out, at); break;
        }
      }
    }
  }
}

}  // namespace jumar::quant
