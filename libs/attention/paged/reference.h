#ifndef LIBS_ATTENTION_PAGED_REFERENCE_H_
#define LIBS_ATTENTION_PAGED_REFERENCE_H_

#include <vector>

#include "libs/attention/paged/paged_attention.h"

namespace jumar::attention {

// paged_attention.h in float64, as its formula reads.
struct AttentionReferenceRow {
  std::vector<double> out;        // [value_head_dim], not rounded
  double lse = 0;
  // Of which an error bound is made:
  double score_magnitude = 0;     // max over the visible keys of |scale| * sum |q k|
  double score_range = 0;         // max - min over the visible scores and the sink
  std::vector<double> magnitude;  // sum_j p_j |v_j|
  std::vector<double> values;     // sum_j |v_j|
  int64_t visible_keys = 0;
};
AttentionReferenceRow AttentionReference(const PagedAttentionArgs& args, int64_t seq, int64_t query, int64_t head);

// What |out[d] - reference| and |lse - reference| may be. With u = 2^-24:
// a score errs by e = (head_dim + rope_dim + 3) u * score_magnitude (a chain of products of rounded, scaled queries, and the scale of a key), and 10 u of
// its size (at most the cap) with a soft cap; the difference to the
// maximum is rounded, u * (score_range + 2 e), and exp errs by 2^-22 relative; each probability is rescaled and summed
// over tiles of 32 and chunks of 256 keys, at most n / 16 + 64 roundings and as many exponentials of maxima (2^-22 each, their
// arguments within score_range); a value's scale is one more. Codes become fp32 exactly. Numerator and denominator both carry that relative error; a probability
// below 2^-126 may be 0; `out` is rounded once.
double AttentionErrorBound(const PagedAttentionArgs& args, const AttentionReferenceRow& row, int64_t d);
double LseErrorBound(const PagedAttentionArgs& args, const AttentionReferenceRow& row);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_PAGED_REFERENCE_H_
