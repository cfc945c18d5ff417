// What a sampler does to logits before it draws.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Keeps the k largest of a row (and whatever equals the k-th), then the smallest set of the largest whose probability,
// among those kept, reaches p; hides the rest. As documented: sorted upwards, those whose cumulative probability is at most
// 1 - p go, the largest never. Of equal logits at that border those of the highest index stay (the sort is stable).
void FilterRow(float* row, int64_t n, int64_t k, double p, std::vector<std::pair<float, int64_t>>& kept) {
  kept.clear();
  float threshold = kHidden;
  if (k > 0 && k < n) {
    std::vector<float> values(row, row + n);
    std::nth_element(values.begin(), values.begin() + (k - 1), values.end(), std::greater<>());
    threshold = values[static_cast<size_t>(k - 1)];
  }
  for (int64_t i = 0; i < n; ++i) {
    if (row[i] < threshold) {
      row[i] = kHidden;
    } else if (row[i] != kHidden) {
      kept.emplace_back(row[i], i);
    }
  }
  if (p >= 1 || kept.empty()) return;
  const float largest = std::max_element(kept.begin(), kept.end())->first;
  double sum = 0;
  for (const auto& [logit, index] : kept) sum += std::exp(logit - largest);
  std::make_heap(kept.begin(), kept.end());  // the largest, of equal ones the highest index, on top
  double above = 0;                          // probability of those taken so far
  auto end = kept.end();
  do {
    std::pop_heap(kept.begin(), end);
    --end;
    above += std::exp(end->first - largest) / sum;
  } while (end != kept.begin() && above < p);
  for (auto it = kept.begin(); it != end; ++it) row[it->second] = kHidden;
}

}  // namespace

ACLNN_PLAN(ApplyTopKTopP, In(logits), OptIn(p), OptIn(k), Out(out)) {
  Require(logits.dim() == 2, "logits have ", logits.dim(), " dimensions; they must have 2");
  for (const auto& [name, t] : {std::pair("p", &p), {"k", &k}}) {
    Require(!*t || (*t)->numel() == logits.size(0), name, " has ", *t ? (*t)->numel() : 0, " entries; logits have ", logits.size(0),
            " rows");
  }
  return [=] {
    const int64_t rows = logits.size(0), n = logits.size(1);
    const Tensor f = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
    const Tensor ks = k ? k->to(at::kLong).contiguous() : Tensor(), ps = p ? p->to(at::kDouble).contiguous() : Tensor();
    const int64_t* k_data = ks.defined() ? ks.const_data_ptr<int64_t>() : nullptr;
    const double* p_data = ps.defined() ? ps.const_data_ptr<double>() : nullptr;
    float* data = f.mutable_data_ptr<float>();
    ComputeExecutor().ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
      std::vector<std::pair<float, int64_t>> kept;
      for (int64_t r = begin; r < end; ++r) FilterRow(data + r * n, n, k_data ? k_data[r] : 0, p_data ? p_data[r] : 1, kept);
    });
    Put(out, f);
  };
}

}  // namespace jumar::hostcann::aclnn
