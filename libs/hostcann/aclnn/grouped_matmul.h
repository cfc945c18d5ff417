// Groups of rows and the numbers of their experts, as grouped products get them.
#pragma once

#include <vector>

#include "libs/hostcann/aclnn/quant.h"

namespace jumar::hostcann::aclnn {

// A group of rows (or columns): [begin, end), multiplied with weight `expert`.
struct Group {
  int64_t expert, begin, end;
};

// list_type 0: where groups end; 1: how many rows each has; 2: [expert, rows] pairs. Reads device data.
std::vector<Group> ReadGroups(const Tensor& list, int64_t list_type, int64_t experts, int64_t rows);

// Weights come in a tensor each, or stacked in one with 3 dimensions.
int64_t ExpertsIn(const std::vector<aclTensor>& weight);
Tensor WeightOf(const std::vector<aclTensor>& weight, int64_t expert);
// The scales, offsets or biases of an expert, in a list like that of the weights; undefined for an empty list.
Tensor NumbersOf(const std::vector<aclTensor>& list, int64_t expert, int64_t experts);

}  // namespace jumar::hostcann::aclnn
