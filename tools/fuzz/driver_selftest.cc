// Proof that the driver reaches its target with inputs of many lengths and contents; a fuzz test that ran nothing could not fail.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::set<size_t> sizes;
  static std::set<uint8_t> bytes;
  static int calls = 0;
  sizes.insert(size);
  if (size > 0) bytes.insert(data[0]);
  if (++calls == 5000 && (sizes.size() < 200 || bytes.size() < 200 || !sizes.contains(0))) {
    std::fprintf(stderr, "only %zu lengths and %zu first bytes\n", sizes.size(), bytes.size());
    std::abort();
  }
  return 0;
}
