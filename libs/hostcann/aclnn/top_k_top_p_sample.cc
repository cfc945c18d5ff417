// Sampling in one operator: top-k, top-p, min-p, then the largest, or the largest after a division by exponential numbers.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <vector>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

constexpr int64_t kMostK = 1024;  // a larger k filters nothing

struct Filter {
  int64_t k;
  double p, min_p;
};

// Those of a row that are left, by falling probability (as they come, if nothing had to be sorted).
struct Kept {
  std::vector<int64_t> indices;
  std::vector<float> probabilities;

  void Cut(size_t n) {
    indices.resize(n);
    probabilities.resize(n);
  }
};

Kept FilterRow(const float* row, int64_t n, int64_t most_k, const Filter& filter, bool are_logits) {
  const bool use_k = filter.k >= 1 && filter.k <= std::min(most_k, n), use_p = filter.p < 1;
  Kept kept;
  kept.indices.resize(static_cast<size_t>(n));
  std::iota(kept.indices.begin(), kept.indices.end(), 0);
  if (use_k || use_p || filter.min_p >= 1) {
    const auto before = [row](int64_t a, int64_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); };
    const auto end = use_k ? kept.indices.begin() + filter.k : kept.indices.end();
    std::partial_sort(kept.indices.begin(), end, kept.indices.end(), before);
    kept.indices.resize(static_cast<size_t>(end - kept.indices.begin()));
  }
  float largest = -std::numeric_limits<float>::infinity();
  for (const int64_t i : kept.indices) largest = std::max(largest, row[i]);
  double sum = 0;
  for (const int64_t i : kept.indices) sum += std::exp(row[i] - largest);
  for (const int64_t i : kept.indices) {
    kept.probabilities.push_back(are_logits ? static_cast<float>(std::exp(row[i] - largest) / sum) : row[i]);
  }
  if (use_p) {
    size_t count = 1;
    double above = kept.probabilities[0];
    for (; filter.p > 0 && count < kept.indices.size() && above < filter.p; ++count) above += kept.probabilities[count];
    kept.Cut(count);
    if (filter.p <= 0 && are_logits) kept.probabilities[0] = 1;
  }
  if (filter.min_p >= 1) {
    kept.Cut(1);
  } else if (filter.min_p > 0) {
    const double least = *std::max_element(kept.probabilities.begin(), kept.probabilities.end()) * filter.min_p;
    size_t count = 0;
    for (size_t i = 0; i < kept.indices.size(); ++i) {
      if (kept.probabilities[i] < least) continue;
      kept.indices[count] = kept.indices[i];
      kept.probabilities[count++] = kept.probabilities[i];
    }
    kept.Cut(count);
  }
  return kept;
}

struct Sample {
  Tensor logits, top_k, top_p;
  OptTensor q, min_ps;
  double eps;
  bool need_logits;
  int64_t most_k;
  bool are_logits, need_intermediate;
  Tensor chosen, selected;  // [rows]; [rows, n]
  OptTensor sorted_index, sorted;

  void Run() const {
    const int64_t rows = logits.size(0), n = logits.size(1);
    const Tensor x = logits.to(at::kFloat).contiguous(), k = top_k.to(at::kLong).contiguous(), p = top_p.to(at::kDouble).contiguous();
    const Tensor m = min_ps ? min_ps->to(at::kDouble).contiguous() : Tensor(), noise = q ? q->to(at::kFloat).contiguous() : Tensor();
    const float* values = x.const_data_ptr<float>();
    const float hidden = are_logits ? -std::numeric_limits<float>::infinity() : 0;
    if (need_logits) selected.fill_(hidden);
    if (need_intermediate) sorted->zero_(), sorted_index->zero_();
    ComputeExecutor().ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* row = values + r * n;
        const Filter filter{k.const_data_ptr<int64_t>()[r], p.const_data_ptr<double>()[r],
                            m.defined() ? m.const_data_ptr<double>()[r] : -1};
        const Kept kept = FilterRow(row, n, most_k, filter, are_logits);
        if (need_logits) {
          float* out = selected.mutable_data_ptr<float>() + r * n;
          for (const int64_t i : kept.indices) out[i] = row[i];
        }
        if (need_intermediate) {
          std::copy(kept.probabilities.begin(), kept.probabilities.end(), sorted->mutable_data_ptr<float>() + r * n);
          std::copy(kept.indices.begin(), kept.indices.end(), sorted_index->mutable_data_ptr<int64_t>() + r * n);
          continue;
        }
        chosen.mutable_data_ptr<int64_t>()[r] = kept.indices[Best(kept, noise.defined() ? noise.const_data_ptr<float>() + r * n : nullptr)];
      }
    });
  }

  size_t Best(const Kept& kept, const float* noise) const {
    size_t best = 0;
    float most = -std::numeric_limits<float>::infinity();
    for (size_t j = 0; j < kept.probabilities.size(); ++j) {
      float value = kept.probabilities[j];
      if (noise != nullptr) value /= std::fabs(noise[j]) + static_cast<float>(eps);
      if (value > most) most = value, best = j;
    }
    return best;
  }
};

Task PlanSample(const Sample& s) {
  Require(s.logits.dim() == 2 && s.logits.size(1) > 0, "logits have ", s.logits.dim(), " dimensions; they must be [rows, vocabulary]");
  const int64_t rows = s.logits.size(0);
  Require(s.top_k.numel() == rows && s.top_p.numel() == rows, "topK has ", s.top_k.numel(), " entries and topP ", s.top_p.numel(),
          "; logits have ", rows, " rows");
  Require(!s.min_ps || s.min_ps->numel() == rows, "minPs has ", s.min_ps ? s.min_ps->numel() : 0, " entries; logits have ", rows, " rows");
  Require(!s.q || s.q->sizes() == s.logits.sizes(), "q has shape ", s.q ? s.q->sizes() : at::IntArrayRef(), "; logits have ",
          s.logits.sizes());
  const auto whole = [&](const Tensor& t, at::ScalarType type, int64_t numel) {
    return t.scalar_type() == type && t.is_contiguous() && t.numel() == numel;
  };
  Require(whole(s.chosen, at::kLong, rows), "logitsSelectIdx must be contiguous int64 with ", rows, " entries");
  Require(!s.need_logits || whole(s.selected, at::kFloat, s.logits.numel()),
          "logitsTopKPSelect must be contiguous float32 of logits' shape");
  Require(!s.need_intermediate || (s.sorted && s.sorted_index && whole(*s.sorted, at::kFloat, s.logits.numel()) &&
                                   whole(*s.sorted_index, at::kLong, s.logits.numel())),
          "logitsIdx and logitsSortMasked must be contiguous int64 and float32 of logits' shape");
  return [s] { s.Run(); };
}

}  // namespace

ACLNN_PLAN(TopKTopPSample, In(logits), In(top_k), In(top_p), OptIn(q), F64(eps), Flag(need_logits), I64(top_k_guess), Out(select_idx),
           Out(top_kp_select)) {
  return PlanSample({logits, top_k, top_p, q, std::nullopt, eps, need_logits, kMostK, true, false, select_idx, top_kp_select,
                     std::nullopt, std::nullopt});
}
ACLNN_PLAN(TopKTopPSampleV2, In(logits), In(top_k), In(top_p), OptIn(q), OptIn(min_ps), F64(eps), Flag(need_logits), I64(top_k_guess),
           I64(ks_max), Flag(input_is_logits), Flag(need_sample_result), Out(select_idx), Out(top_kp_select), OptOut(logits_idx),
           OptOut(logits_sort_masked)) {
  Require(ks_max >= 1 && ks_max <= kMostK, "ksMax is ", ks_max, "; it must lie in [1, ", kMostK, "]");
  const int64_t most_k = std::min(kMostK, (ks_max + 7) / 8 * 8);
  return PlanSample({logits, top_k, top_p, q, min_ps, eps, need_logits, most_k, input_is_logits, need_sample_result, select_idx,
                     top_kp_select, logits_idx, logits_sort_masked});
}

}  // namespace jumar::hostcann::aclnn
