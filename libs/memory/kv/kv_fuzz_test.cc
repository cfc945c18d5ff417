// Sizes, indices and contents from hostile bytes: every function either refuses or stays within its spans (which the sanitizers watch).

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libs/memory/kv/block_table.h"
#include "libs/memory/kv/copy.h"
#include "libs/memory/kv/hybrid.h"
#include "libs/memory/kv/layouts.h"
#include "libs/memory/kv/rows.h"
#include "libs/memory/kv/slots.h"
#include "libs/memory/kv/transpose.h"

namespace jumar::memory::kv {
namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  uint8_t Byte() { return data_ == end_ ? 0 : *data_++; }
  // Mostly small, sometimes anything.
  int64_t Number() {
    const uint8_t kind = Byte();
    if (kind < 200) return kind % 24;
    if (kind < 230) return static_cast<int8_t>(Byte());
    int64_t wide = 0;
    for (int i = 0; i < 8; ++i) wide = static_cast<int64_t>(static_cast<uint64_t>(wide) << 8 | Byte());
    return wide;
  }
  template <class T>
  std::vector<T> Numbers(size_t most) {
    std::vector<T> out(Byte() % (most + 1));
    for (T& n : out) n = static_cast<T>(Number());
    return out;
  }

 private:
  const uint8_t *data_, *end_;
};

PageLayout AnyLayout(Input& in) {
  const KvShape shape = {in.Number(), in.Number(), in.Number(), static_cast<Element>(in.Byte() % 7)};
  const Order order = static_cast<Order>(in.Byte() % 3);
  switch (in.Byte() % 9) {
    case 0: return JointKv(shape, order);
    case 1: return Packed656(shape.block_size, static_cast<RowOrder>(in.Byte() % 2));
    case 2: return Packed640(shape.block_size);
    case 3: return PageSplit584(shape.block_size, in.Number());
    case 4: return IndexerKeys(shape.block_size, shape.element, Element::kFloat16, in.Number());
    case 5: return CompressorState(shape.block_size, in.Number(), in.Number());
    case 6: return InPagesOf(CompressorState(shape.block_size, shape.heads), in.Number());
    case 7: {  // by hand, most of them wrong
      PageLayout l = SeparateKv(shape, order);
      Part& p = l.parts[in.Byte() % 4];
      p.rows = {in.Number(), in.Number(), in.Number(), in.Number()};
      p.heads = in.Number(), p.plane = in.Number(), p.offset = in.Number();
      l.num_parts = in.Number(), l.page_bytes[0] = in.Number();
      return l;
    }
    default: return SeparateKv(shape, order);
  }
}

void Slots(Input& in) {
  const auto starts = in.Numbers<int32_t>(6);
  const auto table = in.Numbers<int32_t>(24);
  const auto positions = in.Numbers<int64_t>(40);
  std::vector<int64_t> slots(in.Byte() % 48);
  const SlotMapping m = {.query_start_loc = starts,
                         .positions = positions,
                         .block_table = {table, in.Number(), in.Number(), in.Number()},
                         .num_blocks = in.Number(),
                         .block_size = in.Number(),
                         .context_parallel = {in.Number(), in.Number(), in.Number()},
                         .pad = -1 - (in.Byte() & 1)};
  if (ComputeSlots(m, std::span<int64_t>(slots)).ok()) {
    for (const int64_t slot : slots) {
      if (slot != m.pad && (slot < 0 || slot >= m.num_blocks * m.block_size)) std::abort();
    }
  }
  std::vector<int32_t> narrow(slots.size());
  (void)ComputeSlots(m, std::span<int32_t>(narrow));
  (void)MergeSlots(slots, {in.Number(), in.Number(), in.Number()});
}

void Table(Input& in) {
  auto table = BlockTable::Create({in.Number() % 100, in.Number() % 100, in.Number()});
  if (!table.ok()) return;
  std::vector<int32_t> out(40);
  for (int i = 0; i < 12; ++i) {
    switch (in.Byte() % 6) {
      case 0: (void)table->Append(in.Number(), in.Numbers<int32_t>(6)); break;
      case 1: (void)table->Assign(in.Number(), in.Numbers<int32_t>(6)); break;
      case 2: (void)table->Truncate(in.Number(), in.Number()); break;
      case 3: (void)table->Move(in.Number(), in.Number()); break;
      case 4: (void)table->Gather(in.Numbers<int64_t>(6), out, in.Number()); break;
      case 5: (void)table->Slice(in.Number(), in.Number(), in.Number()); break;
    }
  }
}

void Bytes(Input& in) {
  std::vector<std::byte> a(4096), b(4096);
  const PageLayout from = AnyLayout(in), to = in.Byte() % 2 ? from : AnyLayout(in);
  const int64_t part = in.Number(), blocks = in.Number(), stride = in.Number();
  (void)Locate(from, blocks, {in.Number(), in.Number(), in.Number(), part}, stride);
  const auto source = RowsOf<const std::byte>(from, part, a, blocks, stride);
  const auto destination = RowsOf<std::byte>(to, in.Number(), b, in.Number(), in.Number());
  const int64_t count = in.Number(), bytes = source.ok() && in.Byte() % 2 ? source->rows.row_bytes : in.Number(), step = in.Number();
  const auto slots = in.Numbers<int64_t>(12);
  if (source.ok()) {
    (void)LoadRows(*source, std::span<const int64_t>(slots), {b, count, bytes, step});
    const auto table = in.Numbers<int32_t>(12);
    const auto first = in.Numbers<int64_t>(3), lengths = in.Numbers<int64_t>(3);
    (void)LoadStretches(*source, {{table, in.Number(), in.Number(), in.Number()}, first, lengths}, {b, count, bytes, step});
  }
  if (destination.ok()) (void)StoreRows({a, count, bytes, step}, std::span<const int64_t>(slots), *destination);
  if (source.ok() && destination.ok()) {
    std::vector<CopyRun> runs;
    for (int i = in.Byte() % 4; i > 0; --i) runs.push_back({in.Number(), in.Number(), in.Number()});
    (void)TransposeRuns(*source, *destination, runs);
  }
  const std::vector<MutableBlocks> planes = {{a, in.Number(), in.Number(), in.Number()}};
  const std::vector<ConstBlocks> others = {{b, in.Number(), planes[0].page_bytes, in.Number()}};
  std::vector<BlockPair> pairs;
  for (int i = in.Byte() % 6; i > 0; --i) pairs.push_back({in.Number(), in.Number()});
  (void)CopyBlocks(planes, pairs);
  (void)SwapBlocks(others, planes, pairs);
  (void)FillBlocks(planes, in.Number(), in.Number(), kPoison);
}

void Hybrid(Input& in) {
  std::vector<HybridGroup> groups;
  for (int i = in.Byte() % 5; i > 0; --i) groups.push_back({"g", in.Number(), in.Number(), in.Number(), in.Number()});
  const auto plan = PlanHybrid(groups, in.Number());
  if (!plan.ok()) return;
  for (const auto& g : plan->groups) {
    if (g.padding_bytes < 0 || g.used_bytes < 1 || plan->common_block_size % g.block_size != 0) std::abort();
  }
}

}  // namespace
}  // namespace jumar::memory::kv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  jumar::memory::kv::Input in(data, size);
  switch (in.Byte() % 4) {
    case 0: jumar::memory::kv::Slots(in); break;
    case 1: jumar::memory::kv::Table(in); break;
    case 2: jumar::memory::kv::Bytes(in); break;
    case 3: jumar::memory::kv::Hybrid(in); break;
  }
  return 0;
}
