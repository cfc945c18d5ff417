#ifndef LIBS_TILING_BASELINES_SHAPES_H_
#define LIBS_TILING_BASELINES_SHAPES_H_

// Shapes of the models that the survey is about, from their published configurations.

#include <cstdint>

namespace jumar::tiling {

inline constexpr int64_t kTokenCounts[] = {1, 2, 4, 8, 16, 24, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192};
inline constexpr int64_t kTensorParallel[] = {1, 2, 4, 8};

// A linear layer: [tokens, k] x [k, n]. Tensor parallelism divides n (columns), k (rows), or neither.
enum class Split { kNone, kColumns, kRows };
struct Linear {
  const char* layer;
  int64_t n, k;
  Split split;
};
inline constexpr Linear kLinears[] = {
    {"DeepSeek V3 q_a", 1536, 7168, Split::kNone},
    {"DeepSeek V3 kv_a", 576, 7168, Split::kNone},
    {"DeepSeek V3 q_b", 24576, 1536, Split::kColumns},
    {"DeepSeek V3 kv_b", 32768, 512, Split::kColumns},
    {"DeepSeek V3 o", 7168, 16384, Split::kRows},
    {"DeepSeek V3 dense up", 36864, 7168, Split::kColumns},
    {"DeepSeek V3 dense down", 7168, 18432, Split::kRows},
    {"DeepSeek V3 shared up", 4096, 7168, Split::kColumns},
    {"DeepSeek V3 shared down", 7168, 2048, Split::kRows},
    {"DeepSeek V3 head", 129280, 7168, Split::kColumns},
    {"DeepSeek V3.2 indexer q", 8192, 1536, Split::kNone},
    {"Kimi K2 q_b", 12288, 1536, Split::kColumns},
    {"Kimi K2 o", 7168, 8192, Split::kRows},
    {"Qwen3 8B qkv", 6144, 4096, Split::kColumns},
    {"Qwen3 8B up", 24576, 4096, Split::kColumns},
    {"Qwen3 8B down", 4096, 12288, Split::kRows},
    {"Qwen3 32B qkv", 10240, 5120, Split::kColumns},
    {"Qwen3 32B o", 5120, 8192, Split::kRows},
    {"Qwen3 32B up", 51200, 5120, Split::kColumns},
    {"Qwen3 32B down", 5120, 25600, Split::kRows},
    {"Qwen3 30B-A3B qkv", 5120, 2048, Split::kColumns},
    {"Qwen3 235B qkv", 9216, 4096, Split::kColumns},
    {"Qwen3 235B o", 4096, 8192, Split::kRows},
    {"Llama 70B qkv", 10240, 8192, Split::kColumns},
    {"Llama 70B up", 57344, 8192, Split::kColumns},
    {"Llama 70B down", 8192, 28672, Split::kRows},
    {"GLM 4.5 qkv", 14336, 5120, Split::kColumns},
    {"GLM 4.5 o", 5120, 12288, Split::kRows},
    {"MiniMax M2 qkv", 8192, 3072, Split::kColumns},
    {"MiniMax M2 o", 3072, 6144, Split::kRows},
};

// Experts of a mixture: up [k = hidden, n = 2 * intermediate], down [k = intermediate, n = hidden].
struct Experts {
  const char* model;
  int64_t hidden, intermediate, experts, chosen;
};
inline constexpr Experts kExperts[] = {
    {"DeepSeek V3", 7168, 2048, 256, 8}, {"Kimi K2", 7168, 2048, 384, 8},   {"Qwen3 30B-A3B", 2048, 768, 128, 8},
    {"Qwen3 235B", 4096, 1536, 128, 8},  {"GLM 4.5", 5120, 1536, 160, 8},   {"MiniMax M2", 3072, 1536, 256, 8},
};

}  // namespace jumar::tiling

#endif  // LIBS_TILING_BASELINES_SHAPES_H_
