#include "libs/memory/device/ledger.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace jumar::memory {
namespace {

using testing::HasSubstr;

TEST(LedgerTest, FindsWhatHoldsAnAddressAndWhatEndsBeforeIt) {
  Ledger ledger;
  ledger.Add(0x10000, 0x1000, 100);
  ledger.Add(0x20000, 0x2000, 0x2000);
  EXPECT_EQ(ledger.Holding(0x10fff)->base, 0x10000u);
  EXPECT_EQ(ledger.Holding(0x11000), nullptr);
  EXPECT_EQ(ledger.Nearest(0x1f000)->base, 0x10000u);
  EXPECT_EQ(ledger.Nearest(0xffff), nullptr);
  EXPECT_EQ(ledger.Live().size(), 2u);
}

TEST(LedgerTest, ForgetsTheOldestFreeFirst) {
  Ledger ledger;
  for (const uint64_t base : {0x3000, 0x1000, 0x2000}) ledger.Add(base, 0x1000, 1);
  for (const uint64_t base : {0x2000, 0x3000}) ledger.MarkFreed(base);
  EXPECT_EQ(ledger.num_freed(), 2u);
  EXPECT_EQ(ledger.Live().size(), 1u);
  EXPECT_EQ(ledger.ForgetOldestFreed(), 0x2000u);
  EXPECT_EQ(ledger.ForgetOldestFreed(), 0x3000u);
  EXPECT_EQ(ledger.ForgetOldestFreed(), std::nullopt);
  EXPECT_NE(ledger.Holding(0x1000), nullptr) << "a live one is never forgotten";
}

TEST(LedgerTest, ANewAllocationReplacesFreedOnesInItsWay) {
  Ledger ledger;
  for (const uint64_t base : {0x1000, 0x2000, 0x3000}) {
    ledger.Add(base, 0x1000, 1);
    ledger.MarkFreed(base);
  }
  ledger.Add(0x1800, 0x1000, 5);  // over the first and the second
  EXPECT_EQ(ledger.num_freed(), 1u);
  EXPECT_EQ(ledger.Holding(0x1900)->requested_bytes, 5u);
  EXPECT_EQ(ledger.ForgetOldestFreed(), 0x3000u);
}

std::string Written(const auto& write) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  {
    SignalWriter out(pipe[1]);
    write(out);
  }
  close(pipe[1]);
  std::string text(1 << 16, '\0');
  size_t used = 0;
  for (ssize_t n; (n = read(pipe[0], text.data() + used, text.size() - used)) > 0;) used += static_cast<size_t>(n);
  close(pipe[0]);
  text.resize(used);
  return text;
}

TEST(SignalWriterTest, WritesNumbersAndLongTexts) {
  EXPECT_EQ(Written([](SignalWriter& out) { out << "a " << uint64_t{0} << " " << UINT64_MAX << " " << reinterpret_cast<const void*>(0xab0); }),
            "a 0 18446744073709551615 0xab0");
  EXPECT_EQ(Written([](SignalWriter& out) { out << static_cast<const void*>(nullptr); }), "0x0");
  const std::string long_text(3000, 'x');
  EXPECT_EQ(Written([&](SignalWriter& out) { out << long_text.c_str(); }), long_text);
}

TEST(CallStackTest, TellsBothWaysTheSame) {
  EXPECT_TRUE(CallStack().empty());
  const CallStack stack = CallStack::Capture();
  ASSERT_FALSE(stack.empty());
  const std::string text = stack.ToString();
  EXPECT_THAT(text, HasSubstr("    ledger_test  "));
  EXPECT_THAT(text, HasSubstr("libc.so.6  "));
  EXPECT_TRUE(stack.PassesThrough("libc.so.6"));
  EXPECT_FALSE(stack.PassesThrough("libc.so"));
  const std::string written = Written([&](SignalWriter& out) { stack.Write(out); });
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), std::count(text.begin(), text.end(), '\n'));
  EXPECT_THAT(written, HasSubstr("    ledger_test  "));
}

TEST(DescribeTest, TellsInsideBehindAndFreed) {
  Ledger ledger;
  ledger.Add(0x1000, 0x1000, 100);
  EXPECT_THAT(Describe(*ledger.Nearest(0x1010), 0x1010), HasSubstr("16 bytes into an allocation of 100 bytes at 0x1000\n"));
  EXPECT_THAT(Describe(*ledger.Nearest(0x2064), 0x2064), HasSubstr("4096 bytes behind the end of an allocation of 100 bytes"));
  ledger.MarkFreed(0x1000);
  const AllocationRecord& record = *ledger.Nearest(0x1000);
  EXPECT_THAT(Describe(record, 0x1000), HasSubstr("at 0x1000, which was freed\n"));
  EXPECT_THAT(Written([&](SignalWriter& out) { Describe(record, 0x1000, out); }),
              testing::AllOf(HasSubstr("at 0x1000, which was freed\n  allocated by:\n    "), HasSubstr("\n  freed by:\n    ")));
}

}  // namespace
}  // namespace jumar::memory
