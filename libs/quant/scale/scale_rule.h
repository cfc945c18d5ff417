#ifndef LIBS_QUANT_SCALE_SCALE_RULE_H_
#define LIBS_QUANT_SCALE_SCALE_RULE_H_

// How the scale of a group of numbers follows from its absmax, max|x|. By name, never implied: two rules differ in a bit, and a checkpoint
// or a kernel that follows another one is silently worse.
//
//   const ScaleRule& rule = RuleOf(Rule::kVllmGroup);
//   float scale = ScaleOf(rule, Format::kE4M3, absmax);        // x is then coded as Encode(format, x / scale, Overflow::kSaturate)
//
// `max` is the format's largest number and `emax` that number's exponent (E4M3: 448, 8; E5M2: 57344, 15; E2M1: 6, 2; int8: 127; int4: 7).
// All arithmetic is fp32, each operation rounded once; powers of two are exact (from the exponent's bits, no log2).

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "libs/quant/format/format.h"

namespace jumar::quant {

enum class Rule : uint8_t {
  kCannDynamic, kVllmGroup, kVllmGroupUe8m0, kVllmToken, kDeepSeek, kDeepSeekUe8m0, kCompressedTensors, kOcpMx, kMxCeil, kMxRound,
};

struct ScaleRule {
  enum class Form : uint8_t {
    kQuotient,         // a / max
    kQuotientCeil,     // the least power of two >= a / max
    kHalfRange,        // a / ((high - low) / 2): 127.5 for int8
    kExponentFloor,    // 2^(floor(log2 a) - emax)
    kExponentRounded,  // the same of a + a quarter of its power of two
  };
  Rule rule;
  const char* name;
  const char* formula;  // a: absmax
  const char* clamps;   // which elements, if any, end up beyond max and are cut to it; what bounds the scale
  const char* used_by;
  Form form;
  float absmax_floor = 0;
  float scale_floor = 0;  // times 1 / max
  float zero_scale = 0;   // of a scale that is 0 otherwise
};

inline constexpr std::array kScaleRules = {
    ScaleRule{Rule::kCannDynamic, "cann_dynamic", "a / max", "none; a zero group has scale 0 and codes 0",
              "CANN's DynamicQuant (int8, int4), vLLM's int8 tokens", ScaleRule::Form::kQuotient},
    ScaleRule{Rule::kVllmGroup, "vllm_group", "max(a, 1e-10) / max", "none; scale >= 1e-10 / max", "vLLM's FP8 groups of 128",
              ScaleRule::Form::kQuotient, 1e-10f},
    ScaleRule{Rule::kVllmGroupUe8m0, "vllm_group_ue8m0", "2^ceil(log2(max(a, 1e-10) / max))", "none; scale is a power of two",
              "vLLM's FP8 groups for DeepGEMM on Blackwell", ScaleRule::Form::kQuotientCeil, 1e-10f},
    ScaleRule{Rule::kVllmToken, "vllm_token", "max(a / max, 1 / (512 max))", "none; scale >= 1 / (512 max)", "vLLM's FP8 tokens",
              ScaleRule::Form::kQuotient, 0, 1.0f / 512},
    ScaleRule{Rule::kDeepSeek, "deepseek", "max(a, 1e-4) / max", "none; scale >= 1e-4 / max",
              "DeepSeek V3 activations 1x128, weights 128x128; the 656 byte rows", ScaleRule::Form::kQuotient, 1e-4f},
    ScaleRule{Rule::kDeepSeekUe8m0, "deepseek_ue8m0", "2^ceil(log2(max(a, 1e-4) / max))", "none; scale is a power of two",
              "DeepSeek V3.1 and later; the 640 and 584 byte rows", ScaleRule::Form::kQuotientCeil, 1e-4f},
    ScaleRule{Rule::kCompressedTensors, "compressed_tensors", "a / ((high - low) / 2)", "int8: |x| > 127/127.5 a on the positive side",
              "compressed-tensors' symmetric checkpoints (int8: 127.5, int4: 7.5, FP8: 448)", ScaleRule::Form::kHalfRange, 0, 0, 0x1p-23f},
    ScaleRule{Rule::kOcpMx, "ocp_mx", "2^(floor(log2 a) - emax)", "|x| > max scale: up to 1/8 of a (E4M3, E5M2), 1/4 (E2M1)",
              "OCP MX, microxcaling, CANN's DynamicMxQuant with scaleAlg 0", ScaleRule::Form::kExponentFloor},
    ScaleRule{Rule::kMxCeil, "mx_ceil", "2^ceil(log2(a / max))", "none", "CANN's DynamicMxQuant with scaleAlg 1, NVIDIA's MXFP8 recipe",
              ScaleRule::Form::kQuotientCeil},
    ScaleRule{Rule::kMxRound, "mx_round", "2^(floor(log2(a + 2^(floor(log2 a) - 2))) - emax)",
              "|x| > max scale: none for E4M3 and E5M2; up to 1/7 of a for E2M1", "compressed-tensors' MXFP4 and MXFP8",
              ScaleRule::Form::kExponentRounded},
};

constexpr const ScaleRule& RuleOf(Rule rule) { return kScaleRules[static_cast<size_t>(rule)]; }

constexpr bool IsPowerOfTwo(const ScaleRule& rule) {
  return rule.form != ScaleRule::Form::kQuotient && rule.form != ScaleRule::Form::kHalfRange;
}

namespace internal {

// 2^e, e cut to [-127, 127]: what E8M0 holds.
constexpr float E8M0Power(int e) { return e < -126 ? 0x1p-127f : Power(e > 127 ? 127 : e); }

// The least power of two of E8M0's that is >= x, x >= 0.
constexpr float PowerAtLeast(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int field = static_cast<int>(bits >> 23);
  if (field == 0) return bits <= 0x400000 ? 0x1p-127f : 0x1p-126f;
  return E8M0Power(field - 127 + ((bits & 0x7FFFFF) != 0));
}

}  // namespace internal

// The scale of a group with that absmax; NaN if absmax is NaN or infinite, so that a broken group is seen. Powers of two lie in E8M0's
// range, [2^-127, 2^127]; a zero group then has 2^-127. fp32 quotients may be subnormal.
constexpr float ScaleOf(const ScaleRule& rule, Format format, float absmax) {
  if (!(absmax <= 0x1.fffffep127f)) return std::bit_cast<float>(internal::kNanBits);
  const FormatTraits traits = Traits(format);
  const float a = absmax < rule.absmax_floor ? rule.absmax_floor : absmax;
  const uint32_t bits = std::bit_cast<uint32_t>(a);
  float scale = 0;
  switch (rule.form) {
    case ScaleRule::Form::kQuotient: scale = a / traits.max; break;
    case ScaleRule::Form::kHalfRange: scale = a / (traits.max + (traits.is_float ? 0.0f : 0.5f)); break;
    case ScaleRule::Form::kQuotientCeil: return internal::PowerAtLeast(a / traits.max);
    case ScaleRule::Form::kExponentFloor: return internal::E8M0Power(static_cast<int>(bits >> 23) - 127 - traits.emax);
    case ScaleRule::Form::kExponentRounded: return internal::E8M0Power(static_cast<int>((bits + 0x200000) >> 23) - 127 - traits.emax);
  }
  const float least = rule.scale_floor / traits.max;
  scale = scale < least ? least : scale;
  return scale == 0 ? rule.zero_scale : scale;
}

// The rule of that name. NotFound lists the names.
absl::StatusOr<Rule> FindRule(std::string_view name);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_SCALE_SCALE_RULE_H_
