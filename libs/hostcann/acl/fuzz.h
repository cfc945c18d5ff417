// Schedule fuzzing (JUMAR_SCHEDULE_FUZZ=<seed>): streams are held up at random, so that what a program forgot to order goes wrong.
//
// Each stream draws from a generator of its own, seeded by the seed and the stream's number. Before a task it yields or sleeps, mostly
// when it comes back from being idle, where a race is decided. All delays of a process stay within half of the time that it has run.
// The branches of a graph, which otherwise run one after another, are interleaved at random (see Graph::Replay).
#ifndef LIBS_HOSTCANN_ACL_FUZZ_H_
#define LIBS_HOSTCANN_ACL_FUZZ_H_

#include <cstdint>

namespace jumar::hostcann {

class FuzzRandom {
 public:
  FuzzRandom(uint64_t seed, uint64_t stream) : state_(seed * 0x9e3779b97f4a7c15u ^ (stream + 1) * 0xd1b54a32d192ed03u) {}
  uint64_t Next();  // splitmix64
  uint64_t Below(uint64_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

// Holds the calling worker up, or not. `was_idle`: the stream had nothing to do before this task.
void FuzzDelay(FuzzRandom& random, bool was_idle);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_FUZZ_H_
