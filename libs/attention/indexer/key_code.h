#ifndef LIBS_ATTENTION_INDEXER_KEY_CODE_H_
#define LIBS_ATTENTION_INDEXER_KEY_CODE_H_

#include <cstdint>

#include "libs/quant/format/format.h"

namespace jumar::attention::key_panel {

inline constexpr int64_t kTileKeys = 32;  // keys that are multiplied together

// A byte of a quantised row, for kernels that are templates of the element.
template <quant::Format kFormat>
struct KeyCode {
  uint8_t bits;
};

}  // namespace jumar::attention::key_panel

#endif  // LIBS_ATTENTION_INDEXER_KEY_CODE_H_
