#ifndef LIBS_MEMORY_KV_TOKEN_COPY_H_
#define LIBS_MEMORY_KV_TOKEN_COPY_H_

// The inner loop of every change of layout: rows of tokens from one geometry to another.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/memory/kv/layout.h"

namespace jumar::memory::kv::internal {

// Copies of so many bytes in one call stream: several times a core's own cache.
inline constexpr int64_t kStreamBytes = int64_t{4} << 20;

class TokenCopy {
 public:
  // InvalidArgument if rows differ in bytes. Both geometries have passed Extent().
  static absl::StatusOr<TokenCopy> Create(const RowGeometry& from, const RowGeometry& to);

  // `tokens` rows; `from` and `to` point to the first byte of the first token's row.
  void Run(const std::byte* from, std::byte* to, int64_t tokens) const;

  // For copies that exceed the caches: the destination is written past them (so that memory isn't read before it is written), and the
  // source is prefetched, a tile ahead. `next`: what the next call will read; may be null, and needn't be valid.
  void Stream(const std::byte* from, std::byte* to, int64_t tokens, const std::byte* next) const;

 private:
  struct Piece {
    int64_t from, to;
  };
  template <class Copy>
  void RunTiles(const std::byte* from, std::byte* to, int64_t tokens, const std::byte* next, const Copy& copy) const;

  template <class Fn>
  void WithPieceBytes(const Fn& fn) const;

  int64_t from_stride_ = 0, to_stride_ = 0, piece_bytes_ = 0;
  bool dense_ = false;         // one piece, and no gap from row to row on either side
  bool aligned_ = false;       // for streaming: every piece of the destination is aligned if its first byte is
  bool by_token_ = false;      // the order within a tile: token by token, otherwise piece by piece, which fills the destination's lines
  int64_t tile_pieces_ = 0, tile_tokens_ = 0;
  std::vector<Piece> pieces_;  // of a row: the finest cut of both chunks
};

}  // namespace jumar::memory::kv::internal

#endif  // LIBS_MEMORY_KV_TOKEN_COPY_H_
