// Where in the program something happened: taken cheaply as addresses, given names only when somebody reads it.
#ifndef LIBS_MEMORY_DEVICE_CALL_STACK_H_
#define LIBS_MEMORY_DEVICE_CALL_STACK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace jumar::memory {

// Text for a file descriptor without allocating, for signal handlers.
class SignalWriter {
 public:
  explicit SignalWriter(int fd) : fd_(fd) {}
  ~SignalWriter() { Flush(); }
  SignalWriter(const SignalWriter&) = delete;
  SignalWriter& operator<<(const char* text);
  SignalWriter& operator<<(uint64_t value);      // decimal
  SignalWriter& operator<<(const void* address);  // 0x...
  void Flush();

 private:
  void Put(char c);

  const int fd_;
  size_t used_ = 0;
  char buffer_[512];
};

class CallStack {
 public:
  static CallStack Capture();

  bool empty() const { return depth_ == 0; }
  // A line for each frame, "    libfoo.so  function+0x12\n", without the frames of the library that has this class.
  std::string ToString() const;
  // The same with mangled names, without allocating. dladdr takes the loader's lock, which a fault inside dlopen would hold.
  void Write(SignalWriter& out) const;
  // Is a function of the library `name` ("libfoo.so") in it?
  bool PassesThrough(std::string_view name) const;

 private:
  static constexpr int kMaxFrames = 24;

  int FirstForeignFrame() const;

  void* frames_[kMaxFrames];
  int depth_ = 0;
};

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_CALL_STACK_H_
