// The trace as a file, and the summary against it. Python's torch_npu trace test looks at operators.
#include "libs/hostcann/acl/trace.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"
#include "libs/hostcann/acl/trace_summary.h"

namespace jumar::hostcann {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(TracePathTest, HoldsTheProcess) {
  EXPECT_EQ(TracePath("out.json", 12), "out.12.json");
  EXPECT_EQ(TracePath("/a.b/out", 12), "/a.b/out.12.json");
  EXPECT_EQ(TracePath("t-%p.json", 12), "t-12.json");
}

// In a process of its own, since the file is that of a process.
void TraceAndExit(const char* pattern, bool kill) {
  setenv("JUMAR_TRACE", pattern, 1);
  aclrtSetDevice(0);
  void *a = nullptr, *b = nullptr, *event = nullptr, *graph = nullptr;
  aclrtCreateStream(&a);
  aclrtCreateStream(&b);
  aclrtCreateEventExWithFlag(&event, 1);
  auto details = std::make_unique<TaskDetails>();
  details->bytes = 96;
  details->flops = 1000;
  details->arguments = "\"self\": \"float16[2, 3]\"";
  Submit(a, "aclnnThing", [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, std::move(details));
  aclrtRecordEvent(event, a);
  aclrtStreamWaitEvent(b, event);
  Submit(b, "after", [] {});
  aclrtSynchronizeStream(b);
  aclmdlRICaptureBegin(a, 1);
  for (int i = 0; i < 3; ++i) Submit(a, "node", [] {});
  aclmdlRICaptureEnd(a, &graph);
  aclmdlRIExecuteAsync(graph, b);
  aclrtSynchronizeStream(b);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the streams go to sleep, which writes
  if (kill) _exit(0);
  std::exit(0);
}

class TraceDeathTest : public testing::TestWithParam<bool> {};

TEST_P(TraceDeathTest, TheFileIsWholeAlsoWhenTheProcessIsKilled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const bool kill = GetParam();
  const std::string stem = testing::TempDir() + "/trace" + (kill ? "-killed" : "");
  unlink((stem + ".json").c_str());
  EXPECT_EXIT(TraceAndExit((stem + ".json").c_str(), kill), testing::ExitedWithCode(0), "");
  std::string path;
  FILE* found = popen(("ls -t " + stem + ".[0-9]*.json | head -n 1").c_str(), "r");
  char line[4096];
  if (fgets(line, sizeof(line), found) != nullptr) path = std::string(line, strcspn(line, "\n"));
  pclose(found);
  const std::string json = Read(path);
  EXPECT_EQ(json.substr(0, 2), "[\n");
  EXPECT_EQ(json.substr(json.size() - 4), "}\n]\n");
  EXPECT_THAT(json, HasSubstr("{\"name\": \"aclnnThing\", \"cat\": \"operator\", \"ph\": \"X\""));
  EXPECT_THAT(json, HasSubstr("\"args\": {\"self\": \"float16[2, 3]\", \"bytes\": 96, \"flops\": 1000}}"));
  EXPECT_THAT(json, HasSubstr("\"name\": \"event wait\", \"cat\": \"wait\""));
  EXPECT_THAT(json, AllOf(HasSubstr("\"ph\": \"s\""), HasSubstr("\"ph\": \"f\"")));
  EXPECT_THAT(json, HasSubstr("\"args\": {\"captured on stream\": "));
  EXPECT_THAT(json, HasSubstr("\"name\": \"device 0 stream "));
  const std::string summary = Read(path.substr(0, path.size() - 5) + ".txt");
  if (!kill) {
    EXPECT_THAT(summary, HasSubstr("aclnnThing"));
    EXPECT_THAT(summary, HasSubstr("Graphs: 1 replays of 3 nodes together"));
  }
  unlink(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Ends, TraceDeathTest, testing::Bool());

TEST(SummaryTextTest, TellsSharesAndRates) {
  TraceTotals totals;
  totals.process = 7;
  totals.ns = 10'000'000;
  totals.limits = {.threads = 2, .bytes_per_s = 10e9, .flops_per_s = 100e9};
  totals.tasks["aclnnMatmul"] = {.count = 2, .ns = 3'000'000, .longest_ns = 2'000'000, .bytes = 15'000'000, .flops = 60e6};
  totals.tasks["event wait"] = {.count = 1, .ns = 500'000, .longest_ns = 500'000, .waits = true};
  totals.tasks["aclnnAdd"] = {.count = 1, .ns = 1'000'000, .longest_ns = 1'000'000};
  totals.streams[{0, 3}] = {.busy_ns = 4'000'000, .waiting_ns = 500'000};
  totals.ns_with_busy = {6'000'000, 3'000'000, 1'000'000};
  totals.replays = 2;
  totals.nodes = 100;
  totals.between_nodes_ns = 20'000;
  const std::string text = SummaryText(totals);
  EXPECT_THAT(text, HasSubstr("process 7: 10.000 ms, 4 tasks on 1 streams"));
  EXPECT_THAT(text, HasSubstr("2 threads: 10.0 GB/s read and written, 100.0 GFLOP/s"));
  EXPECT_THAT(text, ContainsRegex("aclnnMatmul +2 +3.000 +1500.00 +2000.00 +75.0% +5.00 +50% +20.00 +20%"));
  EXPECT_THAT(text, ContainsRegex("event wait +1 +0.500 +500.00 +500.00 +waits"));
  EXPECT_LT(text.find("aclnnMatmul"), text.find("aclnnAdd"));
  EXPECT_LT(text.find("aclnnAdd"), text.find("event wait"));
  EXPECT_THAT(text, HasSubstr("busy        4.000 ms (40.0%), waits for others        0.500 ms"));
  EXPECT_THAT(text, HasSubstr("several at once for 1.000 ms (25.0%)"));
  EXPECT_THAT(text, HasSubstr("0.200 us from node to node"));
}

}  // namespace
}  // namespace jumar::hostcann
