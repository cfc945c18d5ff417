#include "libs/tiling/host.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "libs/tiling/hardware_table.h"
#include "libs/tiling/machine_limits.h"

namespace jumar::tiling {
namespace {

std::string FirstWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "48K", "1280K", "30M".
int64_t ParseSize(const std::string& text) {
  const int64_t number = std::atoll(text.c_str());
  const char unit = text.empty() ? ' ' : text.back();
  return number * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : unit == 'G' ? 1024 * 1024 * 1024 : 1);
}

// A rate that a busy machine brings below one unit a cycle is given as one: 0 would mean that it is unknown.
int64_t Rounded(double value) { return std::max<int64_t>(1, std::llround(value)); }

}  // namespace

int64_t CacheBytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string type = FirstWord(folder + "type");
    if (type.empty()) break;
    if (type != "Instruction" && FirstWord(folder + "level") == std::to_string(level)) return ParseSize(FirstWord(folder + "size"));
  }
  const int name = level == 1 ? _SC_LEVEL1_DCACHE_SIZE : level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE;
  return std::max<int64_t>(kUnknown, sysconf(name));
}

HardwareSpec MeasureHost(Executor& executor) {
  HardwareSpec host = *ChipNamed("host");
  const auto set = [&host](int64_t HardwareSpec::*figure, int64_t value) { SetFigure(host, figure, value, Source::kMeasured); };
  using S = HardwareSpec;
  const int64_t workers = executor.num_workers();
  set(&S::aic_cores, workers);
  set(&S::aiv_cores, workers);

  const int64_t l1 = CacheBytes(1), l2 = CacheBytes(2), l3 = CacheBytes(3);
  set(&S::l0a_bytes, l1 / 2);
  set(&S::l0b_bytes, l1 / 2);
  set(&S::l1_bytes, l2);
  set(&S::ub_bytes, l2);
  set(&S::l2_bytes, l3);
  const int64_t ram = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  set(&S::memory_bytes, ram);

  // An array that no cache holds, unless that were a large part of the memory.
  const int64_t large = std::min(std::max<int64_t>(4 * l3, int64_t{64} << 20), std::max<int64_t>(ram / 16, int64_t{16} << 20));
  const double clock = CyclesPerSecond(), read = ReadBytesPerSecond(large, executor), copied = CopyBytesPerSecond(executor);
  const double flops = FlopsPerSecond(executor);
  set(&S::clock_hz, Rounded(clock));
  set(&S::memory_bytes_per_second, Rounded(read));
  if (l3 != kUnknown) set(&S::l2_bytes_per_second, Rounded(ReadBytesPerSecond(std::min(l3 / 2, int64_t{16} << 20), executor)));

  const double worker_cycles = clock * static_cast<double>(workers);
  set(&S::cube_macs_per_cycle_32bit, Rounded(flops / 2 / worker_cycles));
  set(&S::vector_bytes_per_cycle, Rounded(flops / 2 * 4 / worker_cycles));
  set(&S::gm_read_bytes_per_cycle, Rounded(read / worker_cycles));
  set(&S::gm_write_bytes_per_cycle, Rounded(copied / 2 / worker_cycles));
  set(&S::cache_line_bytes, std::max<int64_t>(kUnknown, sysconf(_SC_LEVEL1_DCACHE_LINESIZE)));
  return host;
}

}  // namespace jumar::tiling
