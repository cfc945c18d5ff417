#ifndef LIBS_ATTENTION_PAGED_TEST_CHECKS_H_
#define LIBS_ATTENTION_PAGED_TEST_CHECKS_H_

// What the tests of paged attention check of a problem.

#include <cstdint>
#include <string>
#include <vector>

#include "libs/attention/paged/test_problem.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

struct Case {
  std::string name;
  std::vector<SequenceShape> sequences;
  int64_t heads, kv_heads, head_dim, value_head_dim, block_size, window_left, window_right;
};

std::vector<Case> Cases();  // of cases.inc

AttentionProblem Make(const Case& c, DType type, uint32_t seed);

// Every element that the call wrote is within the bound of reference.h, and it wrote no other.
void ExpectMatchesReference(AttentionProblem& problem, const std::string& name);

// Runs queries [first, first + count) of one sequence alone, as a chunk that ends there, and compares their rows with `whole`, whose
// problem has been computed.
void ExpectChunkIsBitEqual(AttentionProblem& whole, int64_t seq, int64_t first, int64_t count, tiling::Executor& executor, const std::string& name);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_PAGED_TEST_CHECKS_H_
