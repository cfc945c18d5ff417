// The list of operators, for tests, for documentation, and for the message about a missing operator.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

std::vector<const Row*>& MutableRows() {
  static std::vector<const Row*> rows;
  return rows;
}

// Levenshtein distance, without regard to case.
int Distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = std::tolower(static_cast<unsigned char>(a[i - 1])) == std::tolower(static_cast<unsigned char>(b[j - 1]));
      const int best = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b.size()];
}

}  // namespace

Row::Row(const char* row_name, const char* row_arguments) : name(row_name), arguments(row_arguments) {
  auto& rows = MutableRows();
  rows.insert(std::upper_bound(rows.begin(), rows.end(), this,
                               [](const Row* a, const Row* b) { return std::strcmp(a->name, b->name) < 0; }),
              this);
}

const std::vector<const Row*>& Rows() { return MutableRows(); }

}  // namespace jumar::hostcann::aclnn

using jumar::hostcann::aclnn::Row;
using jumar::hostcann::aclnn::Rows;

// "aclnnAbs(In(self), Out(out))\naclnnAdd(...)\n...": every operator of this library.
ACLNN_EXPORT const char* JumarAclnnOperators() {
  static const std::string text = [] {
    std::string s;
    for (const Row* row : Rows()) s += std::string(row->name) + "(" + row->arguments + ")\n";
    return s;
  }();
  return text.c_str();
}

// "aclnnAdd, aclnnAdds, aclnnAddmm": up to three operators whose names resemble `name`, given with or without "aclnn";
// empty if none does. The result lives until the thread's next call.
ACLNN_EXPORT const char* JumarAclnnNearNames(const char* name) {
  static thread_local std::string text;
  std::string_view wanted(name);
  if (wanted.starts_with("aclnn")) wanted.remove_prefix(5);
  std::vector<std::pair<int, const char*>> near;
  for (const Row* row : Rows()) {
    const std::string_view have = std::string_view(row->name).substr(5);
    const int distance = jumar::hostcann::aclnn::Distance(wanted, have);
    if (distance <= static_cast<int>(std::max<size_t>(2, wanted.size() / 3))) near.emplace_back(distance, row->name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  text.clear();
  for (size_t i = 0; i < near.size() && i < 3; ++i) text += (i > 0 ? ", " : "") + std::string(near[i].second);
  return text.c_str();
}

// How often an operator was launched in this process; -1 for one that the library doesn't have.
ACLNN_EXPORT int64_t JumarAclnnLaunches(const char* name) {
  for (const Row* row : Rows()) {
    if (std::strcmp(row->name, name) == 0) return static_cast<int64_t>(row->launches.load(std::memory_order_relaxed));
  }
  return -1;
}
