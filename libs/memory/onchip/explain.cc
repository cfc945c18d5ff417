// Plans buffers that are given as arguments: prints the map and draws it.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "libs/memory/onchip/message.h"
#include "libs/memory/onchip/plan.h"
#include "libs/memory/onchip/spec.h"
#include "libs/memory/onchip/svg.h"
#include "libs/memory/onchip/text.h"

namespace {

using namespace jumar::memory::onchip;  // NOLINT

constexpr char kHelp[] = R"(Plans the on-chip buffers of one core: prints the map, and draws it.

  ./bazelw run //libs/memory/onchip:explain -- --buffer 'scores:UB:32KiB:double:0-3:MTE2>V' --buffer sums:UB:512:2-5

Arguments:
  --buffer NAME:SPACE:BYTES[:...]  a buffer; may be repeated. BYTES are those of one copy (500, 32KiB). Behind it, in any order:
                                     single, double, triple, quad, 2x2   how many copies (default single)
                                     0-3, 4, 2-end                       steps during which it is alive (default 0-end)
                                     MTE2>V                              pipes that hand it over (S V M MTE1 MTE2 MTE3 FIX; default none)
                                     align=512, at=4096, alias=OTHER     alignment, a fixed offset, the bytes of a dead buffer
                                   Without any: a flash-attention tile, as an example.
  --capacity SPACE=BYTES[,...]     of UB, L1, L0A, L0B, L0C, FB (fixpipe), BT (bias table); may be repeated
                                   (default UB=192KiB,L1=512KiB,L0A=64KiB,L0B=64KiB,L0C=128KiB,FB=2KiB,BT=1KiB)
  --events N                       event ids of a pair of pipes (default 8)
  --svg FILE                       where the picture goes (default onchip.svg; "" for none)
  --help

Exit code: 0 the plan fits, 1 it fails (the error and what would not fit are shown), 2 the arguments are wrong.
)";

constexpr const char* kExample[] = {
    "query:L1:64KiB:0-end:MTE2>MTE1",
    "key:L1:64KiB:double:0-2:MTE2>MTE1",
    "value:L1:64KiB:double:2-5:MTE2>MTE1",
    "query_part:L0A:16KiB:double:1-2:MTE1>M",
    "weights_part:L0A:16KiB:2x2:4-5:MTE1>M",
    "key_part:L0B:32KiB:double:1-2:MTE1>M",
    "value_part:L0B:32KiB:double:4-5:MTE1>M",
    "scores_acc:L0C:64KiB:double:1-2:M>FIX",
    "out_acc:L0C:64KiB:4-5:M>FIX",
    "scores:UB:32KiB:double:2-3:MTE2>V",
    "mask:UB:8KiB:double:2-3:MTE2>V",
    "maxima:UB:1KiB:0-end",
    "sums:UB:1KiB:0-end",
    "weights:UB:16KiB:double:3-4:V>MTE3",
    "out:UB:64KiB:4-6:V>MTE3",
    "rescale:UB:32KiB:5-6",
};

int Usage(const std::string& what) {
  std::cerr << "explain: " << what << "\nTry --help.\n";
  return 2;
}

// Bazel runs programs elsewhere than where the user stands.
std::string UserPath(const std::string& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder == nullptr || path.empty() || path[0] == '/' ? path : std::string(folder) + "/" + path;
}

}  // namespace

int main(int argc, char** argv) {
  Capacities capacities;
  std::string svg_path = "onchip.svg";
  std::vector<Buffer> buffers;
  if (absl::Status status = ParseCapacities("UB=192KiB,L1=512KiB,L0A=64KiB,L0B=64KiB,L0C=128KiB,FB=2KiB,BT=1KiB", capacities);
      !status.ok()) {
    return Usage(std::string(status.message()));
  }
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i], value;
    if (flag == "--help" || flag == "-h") {
      std::cout << kHelp;
      return 0;
    }
    if (flag != "--buffer" && flag != "--capacity" && flag != "--events" && flag != "--svg") {
      const size_t equals = flag.find('=');
      value = equals == std::string::npos ? "" : flag.substr(equals + 1);
      flag = flag.substr(0, equals);
      if (equals == std::string::npos || (flag != "--buffer" && flag != "--capacity" && flag != "--events" && flag != "--svg")) {
        return Usage("unknown argument " + flag + "; known are --buffer, --capacity, --events, --svg, --help");
      }
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return Usage(flag + " needs a value");
    }
    if (flag == "--svg") {
      svg_path = value;
    } else if (flag == "--events") {
      if (!absl::SimpleAtoi(value, &capacities.events_per_pair)) return Usage("--events " + value + " is not a number");
    } else if (flag == "--capacity") {
      if (absl::Status status = ParseCapacities(value, capacities); !status.ok()) return Usage(std::string(status.message()));
    } else {
      const auto buffer = ParseBuffer(value);
      if (!buffer.ok()) return Usage(std::string(buffer.status().message()));
      buffers.push_back(*buffer);
    }
  }
  if (buffers.empty()) {
    for (const char* text : kExample) {
      const auto buffer = ParseBuffer(text);
      if (!buffer.ok()) return Usage(std::string(buffer.status().message()));
      buffers.push_back(*buffer);
    }
  }

  const Map map = Plan(capacities, buffers.data(), static_cast<int64_t>(buffers.size()));
  if (map.ok()) {
    std::cout << Table(map.view());
  } else {
    std::cout << "error: " << ErrorText(map.view());
  }
  if (!svg_path.empty()) {
    std::ofstream file(UserPath(svg_path));
    file << Svg(map.view());
    file.flush();
    if (!file) return Usage("cannot write " + UserPath(svg_path));
    std::cout << "picture: " << UserPath(svg_path) << "\n";
  }
  return map.ok() ? 0 : 1;
}
