// The main() of a cc_fuzz_test, for compilers without libFuzzer: runs the target on inputs that follow from a seed.
//
//   TARGET                       the default number of runs, seed 1
//   TARGET --runs=1000000 --seed=7
//   TARGET FILE...               each file once: to reproduce
//
// A crash leaves its input in the file that is named on standard error (in $TEST_UNDECLARED_OUTPUTS_DIR or the working directory).
// Half of the inputs are random bytes, the other half are mutations of earlier ones, since most formats reject random bytes early.

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxBytes = 512;
constexpr size_t kPoolSize = 64;

std::vector<uint8_t> current;  // for the signal handler
char crash_path[4096];

void SaveInput(int signal_number) {
  const int file = open(crash_path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const bool saved = file >= 0 && write(file, current.data(), current.size()) == static_cast<ssize_t>(current.size());
  constexpr char kSaved[] = "fuzz: the input that crashes is in ", kLost[] = "fuzz: cannot write the input to ";
  const char* const text = saved ? kSaved : kLost;
  if (write(2, text, strlen(text)) < 0 || write(2, crash_path, strlen(crash_path)) < 0 || write(2, "\n", 1) < 0) _exit(1);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

// A number without std::distribution, whose results differ between standard libraries.
uint64_t Below(std::mt19937_64& random, uint64_t limit) { return random() % limit; }

std::vector<uint8_t> RandomInput(std::mt19937_64& random) {
  std::vector<uint8_t> bytes(Below(random, kMaxBytes + 1));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

std::vector<uint8_t> Mutate(std::vector<uint8_t> bytes, std::mt19937_64& random) {
  constexpr uint8_t kEdges[] = {0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff};
  for (uint64_t edits = 1 + Below(random, 4); edits > 0; --edits) {
    const size_t at = bytes.empty() ? 0 : Below(random, bytes.size());
    switch (Below(random, 5)) {
      case 0: if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << Below(random, 8)); break;
      case 1: if (!bytes.empty()) bytes[at] = kEdges[Below(random, std::size(kEdges))]; break;
      case 2: bytes.resize(at); break;
      case 3: if (bytes.size() < kMaxBytes) bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(random())); break;
      case 4:  // a run of one edge value: extremes of wide integers
        for (size_t i = at; i < std::min(bytes.size(), at + 8); ++i) bytes[i] = kEdges[Below(random, std::size(kEdges))];
        break;
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 20000, seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--runs=", 0) == 0) {
      runs = std::strtoull(argument.c_str() + 7, nullptr, 10);
    } else if (argument.rfind("--seed=", 0) == 0) {
      seed = std::strtoull(argument.c_str() + 7, nullptr, 10);
    } else if (argument.rfind("--", 0) == 0) {
      std::fprintf(stderr, "unknown flag %s; usage: %s [--runs=N] [--seed=N] [FILE...]\n", argv[i], argv[0]);
      return 2;
    } else {
      files.push_back(argument);
    }
  }
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::snprintf(crash_path, sizeof crash_path, "%s/crash-seed-%llu.bin", folder == nullptr ? "." : folder, static_cast<unsigned long long>(seed));
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(signal_number, SaveInput);

  for (const std::string& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 2;
    }
    current.assign(std::istreambuf_iterator<char>(file), {});
    LLVMFuzzerTestOneInput(current.data(), current.size());
  }
  if (!files.empty()) return 0;

  std::mt19937_64 random(seed);
  std::vector<std::vector<uint8_t>> pool;
  for (uint64_t run = 0; run < runs; ++run) {
    current = pool.empty() || Below(random, 2) == 0 ? RandomInput(random) : Mutate(pool[Below(random, pool.size())], random);
    LLVMFuzzerTestOneInput(current.data(), current.size());
    if (pool.size() < kPoolSize) {
      pool.push_back(current);
    } else {
      pool[Below(random, kPoolSize)] = current;
    }
  }
  std::printf("%llu inputs, seed %llu\n", static_cast<unsigned long long>(runs), static_cast<unsigned long long>(seed));
  return 0;
}
