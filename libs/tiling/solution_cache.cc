#include "libs/tiling/solution_cache.h"

#include <vector>

namespace jumar::tiling {
namespace {

std::string Key(const Solver& solver, const Values& values) {
  std::string key(solver.name);
  const auto append = [&key](int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof(number)); };
  key.push_back('\0');
  for (const std::vector<int64_t>& field : values) {
    append(static_cast<int64_t>(field.size()));
    for (const int64_t value : field) append(value);
  }
  return key;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Solution>> SolutionCache::Solve(const Solver& solver, const Values& values) {
  std::string key = Key(solver, values);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    ++hits_;
    by_age_.splice(by_age_.begin(), by_age_, found->second);
    return found->second->second;
  }
  ++misses_;
  absl::StatusOr<Solution> solution = solver.solve(values, spec_);
  if (!solution.ok()) return solution.status();
  auto shared = std::make_shared<const Solution>(*std::move(solution));
  if (capacity_ == 0) return shared;
  if (by_age_.size() == capacity_) {
    by_key_.erase(by_age_.back().first);
    by_age_.pop_back();
  }
  by_age_.emplace_front(std::move(key), shared);
  by_key_[by_age_.front().first] = by_age_.begin();
  return shared;
}

}  // namespace jumar::tiling
