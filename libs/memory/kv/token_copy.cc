#include "libs/memory/kv/token_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

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

// A tile's source stays in the L1 cache while it is walked, so that each line of memory is read once.
constexpr int64_t kTileBytes = int64_t{32} << 10;

constexpr int64_t kTileWidth = 512;

constexpr int64_t kStreamAlign = 16, kLine = 64;

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
  const bool gathers = to.chunk_bytes > from.chunk_bytes;
  // Whole lines are written as well in any order, and then the source is read in its own.
  copy.by_token_ = gathers || copy.piece_bytes_ >= kLine;
  copy.pieces_.reserve(static_cast<size_t>(from.row_bytes / copy.piece_bytes_));
  for (int64_t c = 0; c < from.row_bytes; c += copy.piece_bytes_) copy.pieces_.push_back({from.ByteOffset(0, c), to.ByteOffset(0, c)});
  // A tile is as wide as the larger chunk, beyond which no piece is near another on either side. What gathers many chunks takes some lines
  // of a row at a time: chunks that lie a power of two apart would push each other out of the cache.
  const int64_t larger = std::max(from.chunk_bytes, to.chunk_bytes), smaller = std::min(from.chunk_bytes, to.chunk_bytes);
  int64_t width = larger % smaller == 0 ? larger : from.row_bytes;
  if (gathers && width == larger && width > kTileWidth && width % kTileWidth == 0 && kTileWidth % smaller == 0) width = kTileWidth;
  copy.tile_pieces_ = width / copy.piece_bytes_;
  copy.tile_tokens_ = std::max<int64_t>(1, kTileBytes / width);
  return copy;
}

// copy(to, from, ahead): a piece, and how far ahead of `from` the next tile has the same piece.
template <class Copy>
void TokenCopy::RunTiles(const std::byte* from, std::byte* to, int64_t tokens, const std::byte* next, const Copy& copy) const {
  const auto row_pieces = static_cast<int64_t>(pieces_.size());
  // Few tokens are one tile, so that what is prefetched is far enough ahead.
  const int64_t tile_pieces = tokens * row_pieces * piece_bytes_ <= kTileBytes ? row_pieces : tile_pieces_;
  for (int64_t first = 0; first < row_pieces; first += tile_pieces) {
    const Piece* const pieces = &pieces_[static_cast<size_t>(first)];
    for (int64_t token = 0; token < tokens; token += tile_tokens_) {
      const int64_t n = std::min(tokens - token, tile_tokens_);
      const std::byte* const in = from + token * from_stride_;
      std::byte* const out = to + token * to_stride_;
      int64_t ahead = 0;
      if (token + n < tokens) {
        ahead = n * from_stride_;
      } else if (first + tile_pieces < row_pieces) {
        ahead = pieces[tile_pieces].from - pieces[0].from - token * from_stride_;
      } else if (next != nullptr) {
        ahead = next - (in + pieces[0].from);
      }
      if (by_token_) {
        for (int64_t t = 0; t < n; ++t) {
          for (int64_t p = 0; p < tile_pieces; ++p) {
            copy(out + t * to_stride_ + pieces[p].to, in + t * from_stride_ + pieces[p].from, ahead);
          }
        }
      } else {
        for (int64_t p = 0; p < tile_pieces; ++p) {
          for (int64_t t = 0; t < n; ++t) copy(out + t * to_stride_ + pieces[p].to, in + t * from_stride_ + pieces[p].from, ahead);
        }
      }
    }
  }
}

// fn(size of a piece), a constant for the sizes that matter: the copy of a piece is then a few vector moves.
template <class Fn>
void TokenCopy::WithPieceBytes(const Fn& fn) const {
  switch (piece_bytes_) {
    case 32: return fn(std::integral_constant<int64_t, 32>());
    case 64: return fn(std::integral_constant<int64_t, 64>());
    case 128: return fn(std::integral_constant<int64_t, 128>());
    case 256: return fn(std::integral_constant<int64_t, 256>());
  }
  fn(piece_bytes_);
}

void TokenCopy::Stream(const std::byte* from, std::byte* to, int64_t tokens, const std::byte* next) const {
  if (dense_ || !aligned_ || reinterpret_cast<uintptr_t>(to) % kStreamAlign != 0) return Run(from, to, tokens);
  WithPieceBytes([&](auto bytes) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::FixedTag<uint8_t, kStreamAlign> lane;
    RunTiles(from, to, tokens, next, [bytes, lane](std::byte* out, const std::byte* in, int64_t ahead) {
      // As an integer: what lies ahead may be another allocation.
      const uintptr_t soon = reinterpret_cast<uintptr_t>(in) + static_cast<uintptr_t>(ahead);
      for (int64_t i = 0; i < bytes; i += kLine) hwy::Prefetch(reinterpret_cast<const uint8_t*>(soon + static_cast<uintptr_t>(i)));
      for (int64_t i = 0; i < bytes; i += kStreamAlign) {
        hn::Stream(hn::LoadU(lane, reinterpret_cast<const uint8_t*>(in + i)), lane, reinterpret_cast<uint8_t*>(out + i));
      }
    });
  });
  hwy::FlushStream();
}

void TokenCopy::Run(const std::byte* from, std::byte* to, int64_t tokens) const {
  if (dense_) {
    if (tokens > 0) std::memcpy(to, from, static_cast<size_t>(tokens * piece_bytes_));
    return;
  }
  WithPieceBytes([&](auto bytes) {
    RunTiles(from, to, tokens, nullptr,
             [bytes](std::byte* out, const std::byte* in, int64_t) { std::memcpy(out, in, static_cast<size_t>(bytes)); });
  });
}

}  // namespace jumar::memory::kv::internal
