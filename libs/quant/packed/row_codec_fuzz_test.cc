// Pages of any bytes: reading stays within them, gives what format.h says of each byte, and what comes out can be written again.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libs/memory/kv/layouts.h"
#include "libs/quant/packed/row_codec.h"

namespace jumar::quant {
namespace {

namespace kv = memory::kv;

void Require(bool holds) {
  if (!holds) std::abort();
}

RowCodec CodecOf(uint8_t which, int64_t block_size) {
  switch (which % 5) {
    case 0: return *MakeRowCodec(kv::Packed656(block_size), Rule::kDeepSeek);
    case 1: return *MakeRowCodec(kv::Packed640(block_size), Rule::kDeepSeekUe8m0);
    case 2: return *MakeRowCodec(kv::PageSplit584(block_size), Rule::kDeepSeekUe8m0);
    case 3: return *MakeRowCodec(kv::IndexerKeys(block_size), Rule::kVllmGroup);
    default: return *MakeRowCodec(kv::IndexerKeys(block_size, kv::Element::kInt8, kv::Element::kFloat16), Rule::kCannDynamic);
  }
}

}  // namespace
}  // namespace jumar::quant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace jumar::quant;
  if (size < 4) return 0;
  const RowCodec codec = CodecOf(data[0], 1 + data[1] % 4);
  // A heap block of exactly a page, so that the sanitizers see a byte beyond; its bytes repeat the input's.
  std::vector<std::byte> page(static_cast<size_t>(codec.layout.page_bytes[0]));
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(data[2 + i % (size - 2)] + 31 * (i / (size - 2)));
  const jumar::memory::kv::ConstBlocks pages = {page, 1, codec.layout.page_bytes[0], codec.layout.page_bytes[0]};
  const int64_t slots[] = {static_cast<int8_t>(data[2]) % 6};
  std::vector<float> values(static_cast<size_t>(codec.dims)), scales(static_cast<size_t>(codec.groups));
  std::vector<uint16_t> rope(static_cast<size_t>(codec.rope_dims) + 1);
  const MutableTokenRows rows = {jumar::quant::DType::kF32, values.data(), codec.dims, rope.data(), codec.rope_dims};
  const absl::Status status = ReadRows(codec, pages, slots, rows, jumar::tiling::InlineExecutor());
  Require(status.ok() == (slots[0] >= -1 && slots[0] < codec.layout.block_size));
  if (!status.ok() || slots[0] < 0) return 0;

  DecodeToken(codec, page.data(), slots[0], jumar::quant::DType::kF32, values.data(), scales.data(), rope.data());
  for (int64_t i = 0; i < codec.dims; ++i) {
    const auto code = static_cast<uint8_t>(page[static_cast<size_t>(RowCodec::Offset(codec.values, slots[0]) + i)]);
    const float want = Decode(codec.format, code) * scales[static_cast<size_t>(i / codec.group())];
    const float got = values[static_cast<size_t>(i)];
    Require(std::isnan(want) ? std::isnan(got) : std::memcmp(&got, &want, 4) == 0);
  }
  EncodeToken(codec, jumar::quant::DType::kF32, values.data(), rope.data(), page.data(), slots[0]);
  return 0;
}
