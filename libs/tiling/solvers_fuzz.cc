// Any problem and any chip: a solver answers or names what is wrong. What it answers fits, and isn't below its bound.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "libs/tiling/registry.h"
#include "libs/tiling/synthetic_spec.h"

namespace {

using jumar::tiling::Field;
using jumar::tiling::HardwareSpec;
using jumar::tiling::Solver;
using jumar::tiling::Values;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint64_t Next(int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) value = value << 8 | (at_ < size_ ? data_[at_++] : 0);
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// Mostly small, sometimes at an edge of what is allowed or of int64.
int64_t Value(Bytes& bytes, const Field& field) {
  const uint64_t kind = bytes.Next(1) % 16;
  if (kind == 0) return static_cast<int64_t>(bytes.Next(8));
  if (kind == 1) return field.min;
  if (kind == 2) return field.max;
  if (kind == 3) return field.max > INT64_MAX / 2 ? field.max : field.max + 1;
  const uint64_t range = static_cast<uint64_t>(field.max) - static_cast<uint64_t>(field.min);
  const uint64_t raw = bytes.Next(kind < 8 ? 1 : kind < 13 ? 2 : 4);
  return static_cast<int64_t>(static_cast<uint64_t>(field.min) + (range == UINT64_MAX ? raw : raw % (range + 1)));
}

void Expect(bool holds, const char* what, const Solver& solver, const Values& values) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s", what, std::string(solver.name).c_str());
  for (size_t i = 0; i < values.size(); ++i) {
    std::fprintf(stderr, " %s=%s", std::string(solver.fields[i].name).c_str(),
                 FormatValue(solver.fields[i], values[i]).substr(0, 200).c_str());
  }
  std::fprintf(stderr, "\n");
  abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const auto solvers = jumar::tiling::Solvers();
  const Solver& solver = solvers[bytes.Next(1) % solvers.size()];
  HardwareSpec spec = bytes.Next(1) % 4 == 0 ? jumar::tiling::SyntheticUnifiedSpec() : jumar::tiling::SyntheticSpec();
  using S = HardwareSpec;
  static constexpr int64_t S::* kFigures[] = {&S::aic_cores,
                                              &S::aiv_cores,
                                              &S::ub_bytes,
                                              &S::l1_bytes,
                                              &S::l0a_bytes,
                                              &S::l0b_bytes,
                                              &S::l0c_bytes,
                                              &S::l2_bytes,
                                              &S::memory_bytes_per_second,
                                              &S::l2_bytes_per_second,
                                              &S::clock_hz,
                                              &S::gm_read_bytes_per_cycle,
                                              &S::gm_write_bytes_per_cycle,
                                              &S::vector_bytes_per_cycle,
                                              &S::l0c_read_bytes_per_cycle};
  for (uint64_t changes = bytes.Next(1) % 4; changes > 0; --changes) {
    int64_t& figure = spec.*kFigures[bytes.Next(1) % std::size(kFigures)];
    const uint64_t kind = bytes.Next(1) % 8;
    if (kind == 0) {
      figure = INT64_MAX;
    } else if (kind == 1) {
      figure = static_cast<int64_t>(bytes.Next(8));
    } else if (figure == 24 || figure == 48) {  // cores
      figure = static_cast<int64_t>(1 + bytes.Next(1) % 64);
    } else {
      figure = figure % (int64_t{1} << 50) / 8 * static_cast<int64_t>(bytes.Next(1) % 64);
    }
  }
  Values values;
  for (const Field& field : solver.fields) {
    values.emplace_back();
    const uint64_t count = field.list ? bytes.Next(1) % 20 : 1;
    for (uint64_t i = 0; i < count; ++i) values.back().push_back(Value(bytes, field));
  }
  const auto solution = solver.solve(values, spec);
  if (!solution.ok()) {
    Expect(!solution.status().message().empty(), "an error without words", solver, values);
    return 0;
  }
  Expect(std::isfinite(solution->prediction.seconds) && solution->prediction.seconds > 0, "no time", solver, values);
  Expect(solution->prediction.seconds >= solution->bound.Seconds() * (1 - 1e-9), "faster than the bound", solver, values);
  Expect(CheckBuffers(solution->buffers, spec).ok(), "buffers don't fit", solver, values);
  return 0;
}
