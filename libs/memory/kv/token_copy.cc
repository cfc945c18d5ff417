#include "libs/memory/kv/token_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

namespace jumar::memory::kv::internal {
namespace {

// Chunks that follow each other without a gap are one.
RowGeometry Fused(RowGeometry r) {
  if (r.chunk_bytes == r.row_bytes || r.chunk_stride == r.chunk_bytes) r.chunk_bytes = r.chunk_stride = r.row_bytes;
  return r;
}

// Tokens of a tile. A tile's rows stay in the L1 cache while its chunks are walked, so that each line of memory is touched once.
constexpr int64_t kTileTokens = 16;

}  // namespace

absl::StatusOr<TokenCopy> TokenCopy::Create(const RowGeometry& a, const RowGeometry& b) {
  if (a.row_bytes != b.row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", a.row_bytes, " bytes can't become rows of ", b.row_bytes));
  }
  const RowGeometry from = Fused(a), to = Fused(b);
  TokenCopy copy;
  copy.from_stride_ = from.token_stride;
  copy.to_stride_ = to.token_stride;
  copy.piece_bytes_ = std::gcd(from.chunk_bytes, to.chunk_bytes);
  copy.dense_ = copy.piece_bytes_ == from.row_bytes && from.token_stride == from.row_bytes && to.token_stride == to.row_bytes;
  copy.aligned_ = copy.piece_bytes_ % kStreamAlign == 0 && to.token_stride % kStreamAlign == 0 && to.chunk_stride % kStreamAlign == 0;
  copy.gather_ = to.chunk_bytes > from.chunk_bytes;
  copy.pieces_.reserve(static_cast<size_t>(from.row_bytes / copy.piece_bytes_));
  for (int64_t c = 0; c < from.row_bytes; c += copy.piece_bytes_) copy.pieces_.push_back({from.ByteOffset(0, c), to.ByteOffset(0, c)});
  return copy;
}

template <class Copy>
void TokenCopy::RunPieces(const std::byte* from, std::byte* to, int64_t tokens, const Copy& copy) const {
  for (; tokens > 0; tokens -= kTileTokens, from += kTileTokens * from_stride_, to += kTileTokens * to_stride_) {
    const int64_t n = std::min(tokens, kTileTokens);
    if (gather_) {
      for (int64_t t = 0; t < n; ++t) {
        for (const Piece& p : pieces_) copy(to + t * to_stride_ + p.to, from + t * from_stride_ + p.from);
      }
    } else {
      for (const Piece& p : pieces_) {
        for (int64_t t = 0; t < n; ++t) copy(to + t * to_stride_ + p.to, from + t * from_stride_ + p.from);
      }
    }
  }
}

void TokenCopy::Run(const std::byte* from, std::byte* to, int64_t tokens, bool stream) const {
  if (dense_) {
    if (tokens > 0) std::memcpy(to, from, static_cast<size_t>(tokens * piece_bytes_));
    return;
  }
  if (stream && aligned_ && reinterpret_cast<uintptr_t>(to) % kStreamAlign == 0) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::FixedTag<uint8_t, kStreamAlign> lane;
    RunPieces(from, to, tokens, [&](std::byte* out, const std::byte* in) {
      for (int64_t i = 0; i < piece_bytes_; i += kStreamAlign) {
        hn::Stream(hn::LoadU(lane, reinterpret_cast<const uint8_t*>(in + i)), lane, reinterpret_cast<uint8_t*>(out + i));
      }
    });
    hwy::FlushStream();
    return;
  }
  // A constant size makes memcpy a few vector moves.
  switch (piece_bytes_) {
    case 32: return RunPieces(from, to, tokens, [](std::byte* out, const std::byte* in) { std::memcpy(out, in, 32); });
    case 64: return RunPieces(from, to, tokens, [](std::byte* out, const std::byte* in) { std::memcpy(out, in, 64); });
    case 128: return RunPieces(from, to, tokens, [](std::byte* out, const std::byte* in) { std::memcpy(out, in, 128); });
    case 256: return RunPieces(from, to, tokens, [](std::byte* out, const std::byte* in) { std::memcpy(out, in, 256); });
  }
  RunPieces(from, to, tokens, [bytes = static_cast<size_t>(piece_bytes_)](std::byte* out, const std::byte* in) { std::memcpy(out, in, bytes); });
}

}  // namespace jumar::memory::kv::internal
