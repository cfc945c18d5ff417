#ifndef LIBS_MEMORY_ONCHIP_CHECK_H_
#define LIBS_MEMORY_ONCHIP_CHECK_H_

// A plan that fails does not compile, and the compiler prints what is wrong and the table.
//
//   constexpr auto kMap = Plan(kCore, kBuffers);
//   static_assert(kFits<kMap>);
//
//   constexpr const auto& kMap = Planned<kCore, kBuffers>();      // both in one, for arrays with linkage
//
// Clang 17 and later print it as the assertion's message. g++ in C++20 prints it as the lines above the failed assertion, one a row, at
// most -ftemplate-backtrace-limit (10) of them. Other compilers print the arguments of PlanFails.

#include <cstdint>
#include <utility>

#include "libs/memory/onchip/message.h"
#include "libs/memory/onchip/plan.h"
#include "libs/memory/onchip/types.h"

namespace jumar::memory::onchip {
namespace internal {

// Whether a row of the table bears on the error.
constexpr bool Concerns(const MapView& map, int i) {
  const Error& e = *map.error;
  switch (e.kind) {
    case ErrorKind::kReusesLiveBuffer:
    case ErrorKind::kOverCapacity: return map.buffers[i].space == e.space;
    case ErrorKind::kOutOfEvents: return UsesPair(map.buffers[i], e.from, e.to);
    default: return e.buffer < 0 || i == e.buffer || i == e.other;
  }
}

// What is wrong, the space, the table's header, the rows that bear on it.
constexpr int NumReportLines(const MapView& map) {
  int n = 3;
  for (int i = 0; i < map.count; ++i) n += Concerns(map, i) ? 1 : 0;
  return n;
}
constexpr Line ReportLine(const MapView& map, int line) {
  if (line == 0) return ErrorLine(map);
  if (line == 1) return SpaceLine(map, map.error->space);
  if (line == 2) return TableHeader();
  int n = 3;
  for (int i = 0; i < map.count; ++i) {
    if (Concerns(map, i) && n++ == line) return TableRow(map, i);
  }
  return {};
}

}  // namespace internal

#if defined(__cpp_static_assert) && __cpp_static_assert >= 202306L
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc++26-extensions"
#endif

namespace internal {

template <int kLines>
struct Message {
  char text[Line::kCapacity * kLines] = {};
  int length = 0;
  constexpr unsigned long size() const { return static_cast<unsigned long>(length); }  // NOLINT: size_t
  constexpr const char* data() const { return text; }
};

template <const auto& kMap>
constexpr auto Report() {
  Message<3 + kMap.count> message;
  for (int i = 0; i < NumReportLines(kMap.view()); ++i) {
    const Line line = ReportLine(kMap.view(), i);
    for (int k = 0; line.text[k] != 0; ++k) message.text[message.length++] = line.text[k];
    message.text[message.length++] = '\n';
  }
  return message;
}

template <const auto& kMap>
struct Check {
  static_assert(kMap.ok(), Report<kMap>());
  static constexpr bool value = kMap.ok();
};

}  // namespace internal

#ifdef __clang__
#pragma clang diagnostic pop
#endif
#elif __cplusplus >= 202002L && !defined(__clang__)  // Clang cuts the lines

namespace internal {

// One row of the message. Two templates by turns, since the compiler leaves out a row that is required by its like.
template <Line kRow, const auto& kMap, int kLinesAbove>
struct PlanLines;
template <Line kRow, const auto& kMap, int kLinesAbove>
struct PlanTable;

template <Line kRow, const auto& kMap>
struct PlanLines<kRow, kMap, 0> {
  static_assert(kMap.ok(), "on-chip plan fails: the lines above say why");
  static constexpr bool value = kMap.ok();
};
template <Line kRow, const auto& kMap>
struct PlanTable<kRow, kMap, 0> : PlanLines<kRow, kMap, 0> {};
template <Line kRow, const auto& kMap, int kLinesAbove>
struct PlanLines : PlanTable<ReportLine(kMap.view(), kLinesAbove - 1), kMap, kLinesAbove - 1> {};
template <Line kRow, const auto& kMap, int kLinesAbove>
struct PlanTable : PlanLines<ReportLine(kMap.view(), kLinesAbove - 1), kMap, kLinesAbove - 1> {};

template <const auto& kMap, bool kOk = kMap.ok()>
struct Check {
  static constexpr bool value = true;
};
template <const auto& kMap>
struct Check<kMap, false> : PlanLines<ReportLine(kMap.view(), NumReportLines(kMap.view()) - 1), kMap, NumReportLines(kMap.view()) - 1> {};

}  // namespace internal

#else

template <char... kCharacters>
struct BufferName {};

template <ErrorKind kError, int kIndexOfBuffer, class Name, int64_t kValue, int64_t kLimit>
struct PlanFails {
  static_assert(kError == ErrorKind::kNone, "on-chip plan fails: see PlanFails<error, index of the buffer, its name, value, limit>");
  static constexpr bool value = false;
};

namespace internal {

constexpr int NameLength(const Name& name) {
  int n = 0;
  while (name.text[n] != 0) ++n;
  return n;
}
template <const auto& kMap, int... kIndex>
constexpr BufferName<kMap.buffers[kMap.error.buffer].name.text[kIndex]...> NameOf(std::integer_sequence<int, kIndex...>);

template <const auto& kMap, bool kOk = kMap.ok(), bool kNamed = (kMap.error.buffer >= 0)>
struct Check {
  static constexpr bool value = true;
};
template <const auto& kMap>
struct Check<kMap, false, false> : PlanFails<kMap.error.kind, -1, BufferName<>, kMap.error.value, kMap.error.limit> {};
template <const auto& kMap>
struct Check<kMap, false, true>
    : PlanFails<kMap.error.kind, kMap.error.buffer,
                decltype(NameOf<kMap>(std::make_integer_sequence<int, NameLength(kMap.buffers[kMap.error.buffer].name)>())),
                kMap.error.value, kMap.error.limit> {};

}  // namespace internal

#endif

template <const auto& kMap>
inline constexpr bool kFits = internal::Check<kMap>::value;

namespace internal {

template <const auto& kCapacities, const auto& kBuffers>
struct PlanHolder {
  static constexpr auto kMap = Plan(kCapacities, kBuffers);
};

}  // namespace internal

template <const auto& kCapacities, const auto& kBuffers>
constexpr const auto& Planned() {
  static_assert(kFits<internal::PlanHolder<kCapacities, kBuffers>::kMap>);
  return internal::PlanHolder<kCapacities, kBuffers>::kMap;
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_CHECK_H_
