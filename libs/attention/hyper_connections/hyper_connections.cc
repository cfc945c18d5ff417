#include "libs/attention/hyper_connections/hyper_connections.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "libs/attention/hyper_connections/hyper_kernel.h"
#include "libs/quant/gemm.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::attention {
namespace {

constexpr int64_t kTokensAtOnce = 32;            // whose streams are held in fp32
constexpr int64_t kMaxDim = 65536, kMaxTokens = int64_t{1} << 32;
constexpr int64_t kElementsPerRange = 16384;     // that are worth another thread
constexpr int64_t kMatricesPerRange = 256;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("hyper-connections: ", parts...));
}

absl::Status CheckShape(int64_t tokens, int64_t streams, int64_t dim) {
  if (tokens < 0 || tokens > kMaxTokens) return Invalid("tokens = ", tokens, " is not in [0, ", kMaxTokens, "]");
  if (streams < 1 || streams > kMaxStreams) return Invalid("streams = ", streams, " is not in [1, ", kMaxStreams, "]");
  if (dim < 1 || dim > kMaxDim) return Invalid("dim = ", dim, " is not in [1, ", kMaxDim, "]");
  return absl::OkStatus();
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// The weights of one token from its row of the product, in fp32.
void Weights(const HyperConnectionPreArgs& args, int64_t token, const float* mix, float inverse_rms, float* pre) {
  const int64_t n = args.streams;
  const auto weight = [&](int64_t row, int64_t part) { return mix[row] * inverse_rms * args.alpha[part] + args.bias[row]; };
  for (int64_t j = 0; j < n; ++j) {
    pre[j] = Sigmoid(weight(j, 0)) + args.epsilon;
    args.post[token * n + j] = 2.0f * Sigmoid(weight(n + j, 1));
  }
  for (int64_t i = 0; i < n * n && args.res != nullptr; ++i) args.res[token * n * n + i] = weight(2 * n + i, 2);
}

}  // namespace

absl::Status HyperConnectionPre(const HyperConnectionPreArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShape(args.tokens, args.streams, args.dim); !status.ok()) return status;
  if (args.tokens == 0) return absl::OkStatus();
  if (args.x == nullptr || args.phi == nullptr || args.alpha == nullptr || args.bias == nullptr || args.in == nullptr || args.post == nullptr) {
    return Invalid("x, phi, alpha, bias, in or post is null");
  }
  const bool any = args.inverse_rms != nullptr || args.mix != nullptr || args.pre != nullptr;
  if (any && (args.inverse_rms == nullptr || args.mix == nullptr || args.pre == nullptr)) return Invalid("inverse_rms, mix and pre belong together");

  const int64_t n = args.streams, size = n * args.dim, rows = 2 * n + (args.res == nullptr ? 0 : n * n);
  const int64_t at_once = std::min(kTokensAtOnce, args.tokens);
  static thread_local quant::ScratchBuffer buffer;
  float* scaled = reinterpret_cast<float*>(buffer.Get(at_once * (size + rows + 1) * static_cast<int64_t>(sizeof(float))));
  if (scaled == nullptr) return absl::ResourceExhaustedError(absl::StrCat("hyper-connections: no memory for ", at_once, " tokens of ", size, " elements"));
  float* mix = scaled + at_once * size;
  float* inverse_rms = mix + at_once * rows;
  for (int64_t first = 0; first < args.tokens; first += at_once) {
    const int64_t count = std::min(at_once, args.tokens - first), grain = std::max<int64_t>(1, kElementsPerRange / size);
    executor.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float squares = internal::ScaleStreams(args, first + t, scaled + t * size);
        inverse_rms[t] = 1.0f / std::sqrt(squares / static_cast<float>(size) + args.norm_epsilon);
      }
    });
    auto status = quant::Gemm({.m = count, .n = rows, .k = size, .a = scaled, .lda = size, .w = args.phi, .ldw = size, .out = mix, .ldo = rows}, executor);
    if (!status.ok()) return status;
    executor.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        float pre[kMaxStreams];
        Weights(args, first + t, mix + t * rows, inverse_rms[t], pre);
        internal::CollapseStreams(args, first + t, pre);
        if (!any) continue;
        args.inverse_rms[first + t] = inverse_rms[t];
        std::copy(mix + t * rows, mix + (t + 1) * rows, args.mix + (first + t) * rows);
        std::copy(pre, pre + n, args.pre + (first + t) * n);
      }
    });
  }
  return absl::OkStatus();
}

absl::Status Sinkhorn(const SinkhornArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShape(args.tokens, args.streams, 1); !status.ok()) return status;
  if (args.iterations < 1 || args.iterations > 100) return Invalid("iterations = ", args.iterations, " is not in [1, 100]");
  if (!(args.epsilon >= 0)) return Invalid("epsilon = ", args.epsilon, " is not zero or more");
  if (args.tokens == 0) return absl::OkStatus();
  if (args.logits == nullptr || args.out == nullptr) return Invalid("logits or out is null");
  executor.ParallelFor(args.tokens, kMatricesPerRange, [&](int64_t begin, int64_t end) { internal::SinkhornTokens(args, begin, end); });
  return absl::OkStatus();
}

absl::Status HyperConnectionPost(const HyperConnectionPostArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShape(args.tokens, args.streams, args.dim); !status.ok()) return status;
  if (args.tokens == 0) return absl::OkStatus();
  if (args.x == nullptr || args.out == nullptr || args.post == nullptr || args.y == nullptr) return Invalid("x, out, post or y is null");
  executor.ParallelFor(args.tokens, std::max<int64_t>(1, kElementsPerRange / (args.streams * args.dim)),
                       [&](int64_t begin, int64_t end) { internal::SpreadStreams(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace jumar::attention
