#ifndef LIBS_TILING_SOLUTION_CACHE_H_
#define LIBS_TILING_SOLUTION_CACHE_H_

// Solutions of one chip that were asked for before, the least recently used one forgotten first. An object of the caller's: the solvers
// keep nothing. Not for several threads at once.
//
//   SolutionCache cache(**FindHardware("Ascend910B2"), /*capacity=*/256);
//   auto solution = cache.Solve(**FindSolver("matmul"), values);      // the second time without a search

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "libs/tiling/hardware.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {

class SolutionCache {
 public:
  SolutionCache(const HardwareSpec& spec, size_t capacity) : spec_(spec), capacity_(capacity) {}

  // As solver.solve(values, spec). Errors aren't kept.
  absl::StatusOr<std::shared_ptr<const Solution>> Solve(const Solver& solver, const Values& values);

  size_t size() const { return by_age_.size(); }
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Solution>>;

  HardwareSpec spec_;
  size_t capacity_;
  std::list<Entry> by_age_;  // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;  // views of the entries' keys
  int64_t hits_ = 0, misses_ = 0;
};

}  // namespace jumar::tiling

#endif  // LIBS_TILING_SOLUTION_CACHE_H_
