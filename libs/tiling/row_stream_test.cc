#include "libs/tiling/row_stream.h"

#include <random>

#include "gtest/gtest.h"
#include "libs/tiling/compressor.h"
#include "libs/tiling/kv_row.h"
#include "libs/tiling/kv_store.h"
#include "libs/tiling/row_quant.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

bool Mentions(const absl::Status& status, std::string_view words) { return status.message().find(words) != std::string::npos; }

TEST(RowStreamTest, NoLegalTilingBeatsTheBoundAndTheSolverIsNearTheBest) {
  std::mt19937_64 random(1);
  HardwareSpec spec = SyntheticSpec();
  spec.aiv_cores = 3;
  spec.ub_bytes = 8192;
  const Machine machine = *MakeMachine(spec, kVectorFigures);
  for (int i = 0; i < 200; ++i) {
    const RowStream stream = {.rows = 1 + static_cast<int64_t>(random() % 100),
                              .read_bytes = 1 + static_cast<int64_t>(random() % 4000),
                              .write_bytes = 1 + static_cast<int64_t>(random() % 4000),
                              .vector_bytes = static_cast<int64_t>(random() % 3 * (random() % 40000)),
                              .work_bytes = static_cast<int64_t>(random() % 2 * (random() % 4000)),
                              .weight_bytes = static_cast<int64_t>(random() % 2 * (random() % 1000)),
                              .write_commands = static_cast<int64_t>(random() % 100),
                              .reduces = random() % 2 == 0};
    const absl::StatusOr<RowTiling> solved = SolveRows(stream, machine);
    ASSERT_TRUE(solved.ok()) << solved.status();
    const double bound = BoundRows(stream, machine).Seconds();
    double best = solved->prediction.seconds;
    for (int64_t rows = 1; rows <= stream.rows; ++rows) {
      for (int64_t pieces = 1; pieces <= (rows == 1 ? 64 : 1); ++pieces) {
        for (const int64_t copies : {1, 2}) {
          const absl::StatusOr<RowTiling> tiling = EvaluateRows(stream, machine, rows, pieces, copies);
          if (!tiling.ok()) continue;
          EXPECT_GE(tiling->prediction.seconds, bound * (1 - 1e-12));
          best = std::min(best, tiling->prediction.seconds);
        }
      }
    }
    EXPECT_LE(solved->prediction.seconds, best * 1.02);
  }
}

TEST(RowStreamTest, ARowLongerThanUbGoesInPieces) {
  const absl::StatusOr<RowTiling> tiling = SolveRowQuant({.rows = 1000, .columns = 65536}, SyntheticSpec());
  ASSERT_TRUE(tiling.ok()) << tiling.status();
  EXPECT_GT(tiling->pieces, 1);
  EXPECT_EQ(tiling->rows_per_step, 1);
  EXPECT_GT(tiling->traffic.l2_read, tiling->traffic.hbm_read);  // read twice
}

TEST(RowStreamTest, WeightsLongerThanUbAreAnError) {
  const absl::Status status = SolveRowQuant({.rows = 1, .columns = 1 << 20, .smooth = 1}, SyntheticSpec()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Mentions(status, "UB of 196608")) << status;
}

TEST(RowStreamTest, GroupsOfARowAreDealtOut) {
  const absl::StatusOr<RowTiling> rows = SolveRowQuant({.rows = 1, .columns = 7168}, SyntheticSpec());
  const absl::StatusOr<RowTiling> groups = SolveRowQuant({.rows = 1, .columns = 7168, .group = 128}, SyntheticSpec());
  ASSERT_TRUE(rows.ok() && groups.ok());
  EXPECT_EQ(rows->cores, 1);
  EXPECT_EQ(groups->cores, 28);  // 56 groups, two a core
  EXPECT_LT(groups->prediction.seconds, rows->prediction.seconds);
}

TEST(RowStreamTest, RunsOfSlotsSaveWrites) {
  const absl::StatusOr<RowTiling> scattered = SolveKvStore({.tokens = 4096, .row_bytes = 128}, SyntheticSpec());
  const absl::StatusOr<RowTiling> whole = SolveKvStore({.tokens = 4096, .row_bytes = 128, .runs = 32}, SyntheticSpec());
  ASSERT_TRUE(scattered.ok() && whole.ok());
  EXPECT_LT(whole->prediction.seconds, scattered->prediction.seconds);
}

TEST(RowStreamTest, WrongProblemsAreErrors) {
  const HardwareSpec spec = SyntheticSpec();
  EXPECT_TRUE(Mentions(SolveRowQuant({.input = DType::kInt8}, spec).status(), "input of row_quant"));
  EXPECT_TRUE(Mentions(SolveRowQuant({.output = DType::kBf16}, spec).status(), "output of row_quant"));
  EXPECT_TRUE(Mentions(SolveRowQuant({.output = DType::kHiF8}, spec).status(), "hif8"));
  EXPECT_TRUE(Mentions(SolveRowQuant({.columns = 100, .group = 64}, spec).status(), "not a multiple of group = 64"));
  EXPECT_TRUE(Mentions(SolveRowQuant({.rows = INT64_MAX}, spec).status(), "rows"));
  EXPECT_TRUE(Mentions(SolveRowQuant({.rows = kMaxSize, .columns = 1 << 24}, spec).status(), "beyond 2^60"));
  EXPECT_TRUE(Mentions(SolveKvRow({.tokens = 8, .runs = 9}, spec).status(), "runs = 9"));
  EXPECT_TRUE(Mentions(SolveKvRow({.layout = 5}, spec).status(), "layout = 5"));
  EXPECT_TRUE(Mentions(SolveKvStore({.tokens = 8, .runs = 9}, spec).status(), "runs = 9"));
  EXPECT_TRUE(Mentions(SolveKvStore({.row_bytes = 0}, spec).status(), "row_bytes = 0"));
  // 256 sequences of a million tokens.
  EXPECT_TRUE(SolveKvStore({.tokens = int64_t{256} << 20}, spec).ok());
  EXPECT_TRUE(SolveKvRow({.tokens = int64_t{256} << 20}, spec).ok());
}

TEST(CompressorTest, EntriesAreRowsOfTheVectorCores) {
  const absl::StatusOr<CompressorTiling> tiling = SolveCompressor({}, SyntheticSpec());
  ASSERT_TRUE(tiling.ok()) << tiling.status();
  EXPECT_EQ(tiling->entries.rows_per_core, 22);  // 1024 entries on 48 cores
  EXPECT_GT(tiling->prediction.seconds, tiling->projection.prediction.seconds);
  // 128 tokens of 1,024 values don't fit UB at once.
  const absl::StatusOr<CompressorTiling> long_groups =
      SolveCompressor({.tokens = 4096, .entries = 32, .ratio = 128, .overlap = 0}, SyntheticSpec());
  ASSERT_TRUE(long_groups.ok()) << long_groups.status();
  EXPECT_GT(long_groups->entries.pieces, 1);
}

TEST(CompressorTest, ACallMayCompleteNoEntry) {
  const absl::StatusOr<CompressorTiling> tiling = SolveCompressor({.tokens = 3, .entries = 0}, SyntheticSpec());
  ASSERT_TRUE(tiling.ok()) << tiling.status();
  EXPECT_EQ(tiling->entries.rows_per_step, 0);
  EXPECT_GE(tiling->traffic.hbm_write, 3 * 2 * 2 * 512 * 4);  // into the state cache
}

TEST(CompressorTest, RowsOfEarlierCallsAreReadFromTheStateCache) {
  const absl::StatusOr<CompressorTiling> none = SolveCompressor({.tokens = 128, .entries = 1, .ratio = 128, .overlap = 0}, SyntheticSpec());
  const absl::StatusOr<CompressorTiling> all =
      SolveCompressor({.tokens = 128, .entries = 128, .ratio = 128, .overlap = 0}, SyntheticSpec());
  ASSERT_TRUE(none.ok() && all.ok());
  EXPECT_EQ(all->traffic.hbm_read - none->traffic.hbm_read, 127 * 128 * 2 * 512 * 4);
}

TEST(CompressorTest, WrongProblemsAreErrors) {
  EXPECT_TRUE(Mentions(SolveCompressor({.tokens = 3, .entries = 4}, SyntheticSpec()).status(), "entries = 4"));
  EXPECT_TRUE(Mentions(SolveCompressor({.head_dim = 100}, SyntheticSpec()).status(), "head_dim = 100"));
  EXPECT_TRUE(
      Mentions(SolveCompressor({.tokens = kMaxSize, .entries = kMaxSize, .hidden = 1 << 20}, SyntheticSpec()).status(), "beyond 2^60"));
}

}  // namespace
}  // namespace jumar::tiling
