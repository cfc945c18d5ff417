#include "libs/memory/device/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace jumar::memory {
namespace {

const char* BaseName(const char* path) {
  if (path == nullptr) return "?";
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

struct Frame {
  const char* library = "?";
  const void* loaded_at = nullptr;
  const char* function = nullptr;  // mangled, or null
  uint64_t offset = 0;             // from the function, or from where the library is loaded
};

Frame Resolve(const void* address) {
  Dl_info info;
  // A frame holds the address to return to, which may already be behind the function.
  if (dladdr(static_cast<const char*>(address) - 1, &info) == 0) return {};
  const void* from = info.dli_sname != nullptr ? info.dli_saddr : info.dli_fbase;
  return {BaseName(info.dli_fname), info.dli_fbase, info.dli_sname,
          static_cast<uint64_t>(static_cast<const char*>(address) - static_cast<const char*>(from))};
}

}  // namespace

void SignalWriter::Put(char c) {
  if (used_ == sizeof(buffer_)) Flush();
  buffer_[used_++] = c;
}

SignalWriter& SignalWriter::operator<<(const char* text) {
  for (; *text != '\0'; ++text) Put(*text);
  return *this;
}

SignalWriter& SignalWriter::operator<<(uint64_t value) {
  char digits[20];
  int n = 0;
  do {
    digits[n++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (n > 0) Put(digits[--n]);
  return *this;
}

SignalWriter& SignalWriter::operator<<(const void* address) {
  const auto value = reinterpret_cast<uint64_t>(address);
  *this << "0x";
  int shift = 60;
  while (shift > 0 && (value >> shift) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) Put("0123456789abcdef"[(value >> shift) & 15]);
  return *this;
}

void SignalWriter::Flush() {
  size_t done = 0;
  while (done < used_) {
    const ssize_t n = write(fd_, buffer_ + done, used_ - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  used_ = 0;
}

CallStack CallStack::Capture() {
  CallStack stack;
  stack.depth_ = backtrace(stack.frames_, kMaxFrames);
  return stack;
}

int CallStack::FirstForeignFrame() const {
  const Frame own = Resolve(reinterpret_cast<const void*>(&CallStack::Capture));
  const Frame program = Resolve(reinterpret_cast<const void*>(getauxval(AT_PHDR)));
  if (own.loaded_at == nullptr || own.loaded_at == program.loaded_at) return 0;  // linked statically: cannot be told apart
  int first = 0;
  while (first < depth_ && Resolve(frames_[first]).loaded_at == own.loaded_at) ++first;
  return first == depth_ ? 0 : first;
}

std::string CallStack::ToString() const {
  std::string text;
  for (int i = FirstForeignFrame(); i < depth_; ++i) {
    const Frame frame = Resolve(frames_[i]);
    char* demangled = frame.function == nullptr ? nullptr : abi::__cxa_demangle(frame.function, nullptr, nullptr, nullptr);
    char offset[24];
    snprintf(offset, sizeof(offset), "+0x%llx", static_cast<unsigned long long>(frame.offset));
    text.append("    ").append(frame.library).append("  ");
    text.append(demangled != nullptr ? demangled : frame.function != nullptr ? frame.function : "").append(offset).append("\n");
    std::free(demangled);
  }
  return text;
}

void CallStack::Write(SignalWriter& out) const {
  for (int i = FirstForeignFrame(); i < depth_; ++i) {
    const Frame frame = Resolve(frames_[i]);
    out << "    " << frame.library << "  " << (frame.function == nullptr ? "" : frame.function) << "+"
        << reinterpret_cast<const void*>(frame.offset) << "\n";
  }
}

bool CallStack::PassesThrough(std::string_view name) const {
  for (int i = 0; i < depth_; ++i) {
    if (Resolve(frames_[i]).library == name) return true;
  }
  return false;
}

}  // namespace jumar::memory
