#include "libs/attention/compressor/compressor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/compressor/compressor_kernel.h"
#include "libs/attention/rows/rows.h"
#include "libs/quant/convert.h"

namespace jumar::attention {
namespace {

using internal::CompressedGroup;
using internal::StateRun;

constexpr int64_t kGroupsAtOnce = 8;    // that a worker normalises and rotates together
constexpr int64_t kTokensAtOnce = 64;   // whose state a worker keeps
constexpr int64_t kMaxPosition = int64_t{1} << 40;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("compressor: ", parts...));
}

absl::Status CheckShape(const CompressorArgs& args) {
  if (args.num_seqs < 0) return Invalid("num_seqs = ", args.num_seqs, " is negative");
  if (args.head_dim < 1 || args.head_dim > kMaxCompressedDim) {
    return Invalid("head_dim = ", args.head_dim, " is not in [1, ", kMaxCompressedDim, "]");
  }
  if (args.ratio < 1 || args.ratio > kMaxCompressionRatio) return Invalid("ratio = ", args.ratio, " is not in [1, ", kMaxCompressionRatio, "]");
  if (args.rope_dim < 0 || args.rope_dim % 2 != 0 || args.rope_dim > args.head_dim) {
    return Invalid("rope_dim = ", args.rope_dim, " is odd, or not in [0, head_dim = ", args.head_dim, "]");
  }
  if (!(args.epsilon >= 0)) return Invalid("epsilon = ", args.epsilon, " is not zero or more");
  if (args.num_seqs > 0 && (args.query_ends == nullptr || args.starts == nullptr)) return Invalid("query_ends or starts is null");
  return absl::OkStatus();
}

absl::Status CheckState(const CompressorArgs& args) {
  const int64_t width = (args.overlap ? 2 : 1) * args.head_dim;
  if (args.state == nullptr || args.state_block_table == nullptr) return Invalid("state or state_block_table is null");
  if (args.state_block_size < 1) return Invalid("state_block_size = ", args.state_block_size, " is not positive");
  if (args.state_block_stride / (2 * width) < args.state_block_size) {
    return Invalid("state_block_stride = ", args.state_block_stride, " is less than state_block_size = ", args.state_block_size, " rows of ", 2 * width);
  }
  return absl::OkStatus();
}

// The blocks of positions [begin, end) of a sequence; negative ones only where `may_lack`.
absl::Status CheckBlocks(const CompressorArgs& args, int64_t seq, int64_t begin, int64_t end, bool may_lack) {
  if (begin >= end) return absl::OkStatus();
  const int64_t last = (end - 1) / args.state_block_size;
  if (last >= args.state_table_stride) {
    return Invalid("position ", end - 1, " of sequence ", seq, " needs block ", last, " of its state, but state_block_table has ",
                   args.state_table_stride, " entries a row");
  }
  for (int64_t i = begin / args.state_block_size; i <= last; ++i) {
    const int32_t block = args.state_block_table[seq * args.state_table_stride + i];
    if (block >= args.num_state_blocks || (block < 0 && !may_lack)) {
      return Invalid("state_block_table[", seq, "][", i, "] = ", block, " is not in [0, num_state_blocks = ", args.num_state_blocks, ")",
                     may_lack ? "" : ", but the state of earlier tokens is needed");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const CompressorArgs& args, int64_t seq, int64_t tokens, int64_t groups) {
  const int64_t start = args.starts[seq], end = start + tokens;
  if (auto status = CheckBlocks(args, seq, start, end, /*may_lack=*/true); !status.ok()) return status;
  if (groups == 0) return absl::OkStatus();
  const int64_t first = std::max<int64_t>(0, (start / args.ratio - (args.overlap ? 1 : 0)) * args.ratio);
  if (auto status = CheckBlocks(args, seq, first, start, /*may_lack=*/false); !status.ok()) return status;
  const int64_t last_position = (end / args.ratio - 1) * args.ratio;
  if (args.rope_dim > 0 && last_position >= args.table_rows) {
    return Invalid("position ", last_position, " of an entry of sequence ", seq, " is not in the tables of table_rows = ", args.table_rows);
  }
  return absl::OkStatus();
}

struct Plan {
  std::vector<CompressedGroup> groups;
  std::vector<StateRun> runs;
};

absl::Status MakePlan(const CompressorArgs& args, Plan& plan) {
  plan.groups.clear();
  plan.runs.clear();
  for (int64_t seq = 0; seq < args.num_seqs; ++seq) {
    const int64_t token = internal::FirstToken(args, seq), tokens = args.query_ends[seq] - token, start = args.starts[seq];
    if (tokens < 0) return Invalid("query_ends[", seq, "] = ", args.query_ends[seq], " is less than the one before, ", token);
    if (start < 0 || start > kMaxPosition - tokens) {
      return Invalid("starts[", seq, "] = ", start, " with ", tokens, " tokens is not in [0, ", kMaxPosition, "]");
    }
    if (tokens == 0) continue;
    if (plan.runs.empty()) {
      if (args.kv == nullptr || args.gate == nullptr || args.ape == nullptr) return Invalid("kv, gate or ape is null");
      if (auto status = CheckState(args); !status.ok()) return status;
    }
    const int64_t groups = CompletedGroups(start, tokens, args.ratio);
    if (auto status = CheckSequence(args, seq, tokens, groups); !status.ok()) return status;
    for (int64_t g = 0; g < groups; ++g) plan.groups.push_back({seq, start / args.ratio + g});
    for (int64_t t = 0; t < tokens; t += kTokensAtOnce) plan.runs.push_back({seq, token + t, start + t, std::min(kTokensAtOnce, tokens - t)});
  }
  if (plan.groups.empty()) return absl::OkStatus();
  if (args.out == nullptr || args.norm_weight == nullptr) return Invalid("out or norm_weight is null");
  if (args.rope_dim > 0 && (args.cos == nullptr || args.sin == nullptr)) return Invalid("cos or sin is null");
  return absl::OkStatus();
}

// Norm, rotation and rounding of entries [begin, end), which are dense fp32 rows.
absl::Status Finish(const CompressorArgs& args, const Plan& plan, int64_t begin, int64_t end, float* entries) {
  const int64_t dim = args.head_dim, count = end - begin;
  tiling::Executor& here = tiling::InlineExecutor();
  auto status = RmsNorm({.rows = count, .cols = dim, .x = entries, .x_stride = dim, .weight = args.norm_weight, .epsilon = args.epsilon,
                         .out = entries, .out_stride = dim}, here);
  if (args.rope_dim > 0) {
    int64_t positions[kGroupsAtOnce];
    for (int64_t i = 0; i < count; ++i) positions[i] = plan.groups[static_cast<size_t>(begin + i)].group * args.ratio;
    float* rotated = entries + dim - args.rope_dim;
    status.Update(Rope({.tokens = count, .heads = 1, .head_dim = args.rope_dim, .rotary_dim = args.rope_dim, .interleaved = true, .x = rotated,
                        .x_token_stride = dim, .cos = args.cos, .sin = args.sin, .table_stride = args.table_stride, .compact_table = true,
                        .positions = positions, .table_rows = args.table_rows, .out = rotated, .out_token_stride = dim}, here));
  }
  for (int64_t i = 0; i < count; ++i) {
    char* out = static_cast<char*>(args.out) + (begin + i) * args.out_stride * quant::SizeOf(args.type);
    status.Update(quant::Convert(DType::kF32, entries + i * dim, args.type, out, dim, here));
  }
  return status;
}

}  // namespace

int64_t CompletedGroups(int64_t start, int64_t tokens, int64_t ratio) { return (start + tokens) / ratio - start / ratio; }

absl::Status Compress(const CompressorArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShape(args); !status.ok()) return status;
  static thread_local Plan plan;
  if (auto status = MakePlan(args, plan); !status.ok()) return status;

  // New tokens are read from their rows, so their state may be kept at any time.
  const Plan& p = plan;
  const int64_t num_groups = static_cast<int64_t>(p.groups.size()), num_runs = static_cast<int64_t>(p.runs.size());
  const int64_t pieces = (num_groups + kGroupsAtOnce - 1) / kGroupsAtOnce;
  executor.ParallelFor(pieces + num_runs, 1, [&](int64_t piece_begin, int64_t piece_end) {
    alignas(64) float entries[kGroupsAtOnce * kMaxCompressedDim];
    for (int64_t piece = piece_begin; piece < piece_end; ++piece) {
      if (piece >= pieces) {
        internal::KeepState(args, p.runs[static_cast<size_t>(piece - pieces)]);
        continue;
      }
      const int64_t begin = piece * kGroupsAtOnce, end = std::min(num_groups, begin + kGroupsAtOnce);
      for (int64_t g = begin; g < end; ++g) internal::WeighGroup(args, p.groups[static_cast<size_t>(g)], entries + (g - begin) * args.head_dim);
      Finish(args, p, begin, end, entries).IgnoreError();  // everything that it refuses was refused before
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::attention
