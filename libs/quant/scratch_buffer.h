#ifndef LIBS_QUANT_SCRATCH_BUFFER_H_
#define LIBS_QUANT_SCRATCH_BUFFER_H_

// Memory that a kernel keeps for its next call: grows, never shrinks, so that nothing is allocated in steady state.

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace jumar::quant {

class ScratchBuffer {
 public:
  // At least `bytes` bytes, 64-byte aligned, of no defined content; null if there is no memory. Ends what Get returned before.
  char* Get(int64_t bytes) {
    if (capacity_ < bytes) {
      buffer_.reset();
      capacity_ = (bytes + 4095) / 4096 * 4096;
      buffer_.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(capacity_))));
      if (buffer_ == nullptr) capacity_ = 0;
    }
    return buffer_.get();
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> buffer_;
  int64_t capacity_ = 0;
};

}  // namespace jumar::quant

#endif  // LIBS_QUANT_SCRATCH_BUFFER_H_
