#ifndef LIBS_MEMORY_ONCHIP_PACKER_H_
#define LIBS_MEMORY_ONCHIP_PACKER_H_

// The offsets of Plan, one space at a time.
//
// First fit in several orders, then with a buffer that reaches high moved to the front; for few buffers in every order (an optimal plan
// pressed down is a first fit in the order of its offsets, so one of them is optimal). It stops at a lower bound, the most bytes that
// are alive in one step. Capacities play no part in it: what fits into one fits into a larger one at the same offsets. Ties are broken by
// name, so the order in which buffers are listed plays no part either.

#include <cstdint>

#include "libs/memory/onchip/types.h"
#include "libs/memory/onchip/validate.h"

namespace jumar::memory::onchip {

namespace internal {

inline constexpr int kNumOrders = 6;
inline constexpr int kEveryOrderUpTo = 5;  // groups: 120 orders
inline constexpr int kImprovements = 12;

// Packs one space. A group is a buffer with its aliases: they start at one offset, and don't live together.
template <int kCapacity>
class Packer {
 public:
  constexpr Packer(const Buffer* buffers, int count, Space space) : buffers_(buffers) {
    for (int i = 0; i < count; ++i) {
      if (buffers[i].space == space && buffers[i].alias_of.empty()) AddGroup(i);
    }
    for (int i = 0; i < count; ++i) {
      if (buffers[i].space == space && !buffers[i].alias_of.empty()) AddMember(FindBuffer(buffers, count, buffers[i].alias_of), i);
    }
    bound_ = LowerBound(NaturalAlignment(space));
    for (int g = 0; g < num_groups_; ++g) {
      if (groups_[g].pinned != kAnywhere && groups_[g].pinned + groups_[g].size > bound_) bound_ = groups_[g].pinned + groups_[g].size;
    }
  }

  constexpr bool empty() const { return num_groups_ == 0; }
  constexpr int64_t used() const { return best_used_; }

  // The most bytes that are alive in one step; at which step first.
  constexpr int64_t LiveBytes(int32_t* at) const {
    int64_t most = 0;
    for (int i = 0; i < num_members_; ++i) {
      const int32_t step = buffers_[members_[i]].lifetime.first;  // the maximum is at a start
      int64_t bytes = 0;
      for (int k = 0; k < num_members_; ++k) {
        if (Alive(members_[k], step)) bytes += ExtentOf(buffers_[members_[k]]);
      }
      if (bytes > most || (bytes == most && step < *at)) {
        most = bytes;
        *at = step;
      }
    }
    return most;
  }

  // An alias that lives together with its group, or a pinned group that overlaps another.
  constexpr Error Reuse() const {
    for (int i = 0; i < num_members_; ++i) {
      for (int k = 0; k < i; ++k) {
        const int a = members_[k], b = members_[i];
        if (!Overlap(buffers_[a].lifetime, buffers_[b].lifetime)) continue;
        if (group_of_[k] == group_of_[i]) return Blame(ErrorKind::kReusesLiveBuffer, buffers_[b], b, 0, 0, a);
        const Group &x = groups_[group_of_[k]], &y = groups_[group_of_[i]];
        if (x.pinned == kAnywhere || y.pinned == kAnywhere) continue;
        if (x.pinned < y.pinned + ExtentOf(buffers_[b]) && y.pinned < x.pinned + ExtentOf(buffers_[a])) {
          return Blame(ErrorKind::kReusesLiveBuffer, buffers_[b], b, y.pinned, x.pinned, a);
        }
      }
    }
    return {};
  }

  constexpr void Pack() {
    int order[kCapacity] = {};
    for (int kind = 0; kind < kNumOrders && !AtBound(); ++kind) {
      Sort(kind, order);
      Try(order);
    }
    if (!AtBound() && num_groups_ <= kEveryOrderUpTo) {
      TryEveryOrder();
      return;
    }
    for (int round = 0; round < kImprovements && !AtBound(); ++round) {
      for (int i = 0; i < num_groups_; ++i) order[i] = best_order_[i];
      const int highest = Highest(round % num_groups_);
      for (int i = highest; i > 0; --i) order[i] = order[i - 1];
      order[0] = best_order_[highest];
      Try(order);
    }
  }

  constexpr void Store(Placement* placements) const {
    for (int i = 0; i < num_members_; ++i) {
      const Buffer& b = buffers_[members_[i]];
      Placement& p = placements[members_[i]];
      p.offset = best_[group_of_[i]];
      p.stride = StrideOf(b);
      p.copies = NumCopies(b.policy);
    }
  }

 private:
  struct Group {
    int root = 0;
    int64_t size = 0;
    int64_t alignment = 1;
    int64_t pinned = kAnywhere;
    int32_t first = 0, last = 0;
    int members = 1;
  };

  constexpr bool Alive(int i, int32_t step) const { return buffers_[i].lifetime.first <= step && step <= buffers_[i].lifetime.last; }

  // Of any plan. All starts are multiples of the alignment, so what is alive in one step takes its bytes rounded up, but for the last one.
  constexpr int64_t LowerBound(int64_t alignment) const {
    int64_t bound = 0;
    for (int i = 0; i < num_members_; ++i) {
      int64_t bytes = 0, most_padding = 0;
      for (int k = 0; k < num_members_; ++k) {
        if (!Alive(members_[k], buffers_[members_[i]].lifetime.first)) continue;
        const int64_t extent = ExtentOf(buffers_[members_[k]]), rounded = AlignUp(extent, alignment);
        bytes += rounded;
        if (rounded - extent > most_padding) most_padding = rounded - extent;
      }
      if (bytes - most_padding > bound) bound = bytes - most_padding;
    }
    return bound;
  }

  constexpr void AddGroup(int i) {
    const Buffer& b = buffers_[i];
    Group& g = groups_[num_groups_];
    g.root = i;
    g.size = ExtentOf(b);
    g.alignment = AlignmentOf(b);
    g.pinned = b.pinned_offset;
    g.first = b.lifetime.first;
    g.last = b.lifetime.last;
    members_[num_members_] = i;
    group_of_[num_members_++] = num_groups_++;
  }

  constexpr void AddMember(int root, int i) {
    const Buffer& b = buffers_[i];
    for (int k = 0; k < num_groups_; ++k) {
      Group& g = groups_[k];
      if (g.root != root) continue;
      if (ExtentOf(b) > g.size) g.size = ExtentOf(b);
      if (AlignmentOf(b) > g.alignment) g.alignment = AlignmentOf(b);
      if (b.lifetime.first < g.first) g.first = b.lifetime.first;
      if (b.lifetime.last > g.last) g.last = b.lifetime.last;
      ++g.members;
      members_[num_members_] = i;
      group_of_[num_members_++] = k;
    }
  }

  // The larger comes first; -first and name break ties.
  constexpr int64_t Key(int kind, const Group& g) const {
    constexpr int64_t kLong = int64_t{1} << 20;
    const int64_t steps = int64_t{g.last} - g.first + 1, duration = steps < kLong ? steps : kLong;
    switch (kind) {
      case 0: return g.size;
      case 1: return -int64_t{g.first};
      case 2: return g.size * duration;  // at most 2^42 * 2^20
      case 3: return steps;
      case 4: return int64_t{g.last};
      default: return g.alignment;
    }
  }

  constexpr bool Before(int kind, int a, int b) const {
    const Group &x = groups_[a], &y = groups_[b];
    if (Key(kind, x) != Key(kind, y)) return Key(kind, x) > Key(kind, y);
    if (x.size != y.size) return x.size > y.size;
    if (x.first != y.first) return x.first < y.first;
    return Compare(buffers_[x.root].name, buffers_[y.root].name) < 0;
  }

  constexpr void Sort(int kind, int* order) const {
    for (int i = 0; i < num_groups_; ++i) {
      int at = i;
      for (; at > 0 && Before(kind, i, order[at - 1]); --at) order[at] = order[at - 1];
      order[at] = i;
    }
  }

  // Whether a member of group a at offset x and one of group b at y use the same byte in the same step; then, where the latter ends.
  constexpr int64_t Collision(int a, int64_t x, int b, int64_t y) const {
    if (x >= y + groups_[b].size || y >= x + groups_[a].size || groups_[a].first > groups_[b].last || groups_[b].first > groups_[a].last) {
      return -1;
    }
    if (groups_[a].members == 1 && groups_[b].members == 1) return y + groups_[b].size;
    int64_t end = -1;
    for (int i = 0; i < num_members_; ++i) {
      if (group_of_[i] != a) continue;
      const Buffer& m = buffers_[members_[i]];
      for (int k = 0; k < num_members_; ++k) {
        if (group_of_[k] != b) continue;
        const Buffer& n = buffers_[members_[k]];
        const int64_t n_end = y + ExtentOf(n);
        if (n_end > end && Overlap(m.lifetime, n.lifetime) && x < n_end && y < x + ExtentOf(m)) end = n_end;
      }
    }
    return end;
  }

  // First fit in that order, the pinned ones first. Keeps it when it is the best.
  constexpr void Try(const int* order) {
    int64_t at[kCapacity] = {};
    bool placed[kCapacity] = {};
    int64_t used = 0;
    for (int g = 0; g < num_groups_; ++g) {
      if (groups_[g].pinned == kAnywhere) continue;
      at[g] = groups_[g].pinned;
      placed[g] = true;
      if (at[g] + groups_[g].size > used) used = at[g] + groups_[g].size;
    }
    for (int i = 0; i < num_groups_; ++i) {
      const int g = order[i];
      if (placed[g]) continue;
      int64_t offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < num_groups_; ++k) {
          if (!placed[k]) continue;
          if (const int64_t end = Collision(g, offset, k, at[k]); end >= 0) {
            offset = AlignUp(end, groups_[g].alignment);
            moved = true;
          }
        }
      }
      at[g] = offset;
      placed[g] = true;
      if (offset + groups_[g].size > used) used = offset + groups_[g].size;
      if (best_used_ >= 0 && used >= best_used_) return;
    }
    if (best_used_ >= 0 && used >= best_used_) return;
    best_used_ = used;
    for (int i = 0; i < num_groups_; ++i) {
      best_[i] = at[i];
      best_order_[i] = order[i];
    }
  }

  // The place in the best order of the group that reaches highest but for `skip` ones.
  constexpr int Highest(int skip) const {
    bool taken[kCapacity] = {};
    int found = 0;
    for (int round = 0; round <= skip; ++round) {
      found = -1;
      for (int i = 0; i < num_groups_; ++i) {
        if (taken[i]) continue;
        const int g = best_order_[i];
        if (found < 0 || best_[g] + groups_[g].size > best_[best_order_[found]] + groups_[best_order_[found]].size) found = i;
      }
      taken[found] = true;
    }
    return found;
  }

  // Lexicographic, by name.
  constexpr void TryEveryOrder() {
    int order[kCapacity] = {};
    for (int i = 0; i < num_groups_; ++i) {
      int at = i;
      for (; at > 0 && Compare(buffers_[groups_[i].root].name, buffers_[groups_[order[at - 1]].root].name) < 0; --at) {
        order[at] = order[at - 1];
      }
      order[at] = i;
    }
    int rank[kCapacity] = {}, permuted[kCapacity] = {};
    for (int i = 0; i < num_groups_; ++i) rank[i] = i;
    for (;;) {
      for (int i = 0; i < num_groups_; ++i) permuted[i] = order[rank[i]];
      Try(permuted);
      int i = num_groups_ - 2;
      while (i >= 0 && rank[i] > rank[i + 1]) --i;
      if (i < 0 || AtBound()) return;
      int k = num_groups_ - 1;
      while (rank[k] < rank[i]) --k;
      Swap(rank[i], rank[k]);
      for (int a = i + 1, b = num_groups_ - 1; a < b; ++a, --b) Swap(rank[a], rank[b]);
    }
  }

  static constexpr void Swap(int& a, int& b) {
    const int c = a;
    a = b;
    b = c;
  }

  constexpr bool AtBound() const { return best_used_ >= 0 && best_used_ <= bound_; }

  const Buffer* buffers_;
  Group groups_[kCapacity] = {};
  int num_groups_ = 0;
  int members_[kCapacity] = {};   // index of a buffer
  int group_of_[kCapacity] = {};  // of a member
  int num_members_ = 0;
  int64_t bound_ = 0;
  int64_t best_used_ = -1;
  int64_t best_[kCapacity] = {};  // offset of a group
  int best_order_[kCapacity] = {};
};

}  // namespace internal
}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_PACKER_H_
