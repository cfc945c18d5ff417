#ifndef LIBS_ATTENTION_PAGED_KV_SCALES_H_
#define LIBS_ATTENTION_PAGED_KV_SCALES_H_

#include <cstdint>

namespace jumar::attention {

// The scales of the keys, or of the values, of a quantised cache: number = code * scale. All strides are in elements; a stride of 0 shares a scale.
struct KvScales {
  enum class Per : uint8_t {
    kChannel,   // per tensor, head or channel: element d of a head at head * head_stride + channel * channel_stride
    kSlot,      // per token, where the token lies in the cache:
                //   paged       block_table[s][j / block_size] * block_stride + (j % block_size) * token_stride + head * head_stride
                //   contiguous  (kv_starts[s] + j) * token_stride + head * head_stride
    kPosition,  // per token, by its place in the sequence: s * seq_stride + j * token_stride + head * head_stride
  };
  const float* data = nullptr;  // null = all are 1
  Per per = Per::kChannel;
  int64_t seq_stride = 0, block_stride = 0, token_stride = 0, head_stride = 0, channel_stride = 0;

  bool PerToken() const { return data != nullptr && per != Per::kChannel; }
  bool PerChannel() const { return data != nullptr && per == Per::kChannel; }
};

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_PAGED_KV_SCALES_H_
