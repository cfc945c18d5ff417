#ifndef LIBS_MEMORY_ONCHIP_ONCHIP_H_
#define LIBS_MEMORY_ONCHIP_ONCHIP_H_

// The planner of a core's buffers: who lies where, and which event ids hand it over.
//
//   constexpr Capacities kCore = {.ub = 192 * 1024};
//   constexpr Buffer kBuffers[] = {
//       {.name = "scores", .space = Space::kUb, .bytes = 32 * 1024, .policy = Policy::kDouble, .lifetime = {0, 3},
//        .handover = {Pipe::kMte2, Pipe::kVector}},
//       {.name = "sums", .space = Space::kUb, .bytes = 512, .lifetime = {2, 5}},
//   };
//   constexpr auto kMap = Plan(kCore, kBuffers);
//   static_assert(kFits<kMap>);                                  // or doesn't compile, with the table
//   constexpr int64_t kScores1 = kMap.At("scores").Offset(1);
//
// At run time: Map map = Plan(capacities, buffers.data(), buffers.size()); if (!map.ok()) ... ErrorText(map.view()) (text.h).

#include "libs/memory/onchip/check.h"   // IWYU pragma: export
#include "libs/memory/onchip/plan.h"    // IWYU pragma: export
#include "libs/memory/onchip/types.h"   // IWYU pragma: export
#include "libs/memory/onchip/verify.h"  // IWYU pragma: export

#endif  // LIBS_MEMORY_ONCHIP_ONCHIP_H_
