#include "libs/memory/onchip/svg.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/memory/onchip/plan.h"

namespace jumar::memory::onchip {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

std::string Draw(const std::vector<Buffer>& buffers, const Capacities& capacities) {
  return Svg(Plan(capacities, buffers.data(), static_cast<int64_t>(buffers.size())).view());
}

TEST(SvgTest, ShowsNamesSizesEventsAndTheCapacity) {
  const std::string svg =
      Draw({{.name = "scores", .bytes = 32 * 1024, .policy = Policy::kDouble, .lifetime = {0, 3}, .handover = {Pipe::kMte2, Pipe::kVector}},
            {.name = "sums", .bytes = 512, .lifetime = {2, 5}}},
           {.ub = 96 * 1024});
  EXPECT_THAT(svg, AllOf(HasSubstr("the plan fits"), HasSubstr(">scores[0]<"), HasSubstr(">scores[1]<"),
                         HasSubstr("scores, 2 x 32 KiB at 0 + 32768 i"), HasSubstr("event ids MTE2&gt;V 0 1, V&gt;MTE2 0 1"),
                         HasSubstr("sums, 512 B at 65536"), HasSubstr(">96 KiB<"), HasSubstr(">capacity<"), HasSubstr("steps 2-5")));
  EXPECT_THAT(svg, Not(HasSubstr("url(#beyond)")));
  EXPECT_EQ(Count(svg, "<title>"), 3) << "a box a copy";
  EXPECT_EQ(Count(svg, "<text"), Count(svg, "</text>"));
}

TEST(SvgTest, DrawsWhatDoesNotFit) {
  const std::string svg = Draw({{.name = "a", .bytes = 64 * 1024}, {.name = "b", .bytes = 64 * 1024}}, {.ub = 96 * 1024});
  EXPECT_THAT(svg,
              AllOf(HasSubstr("the plan fails"), HasSubstr("buffer &quot;a&quot;: it is the largest in UB"), HasSubstr("url(#beyond)")));
  EXPECT_EQ(Count(svg, "<title>"), 2);
}

TEST(SvgTest, BreaksTheAxisWhenLittleIsUsed) {
  EXPECT_EQ(Count(Draw({{.name = "a", .bytes = 64}}, {.ub = 129}), "class=\"break\""), 0);
  EXPECT_EQ(Count(Draw({{.name = "a", .bytes = 64}}, {.ub = 130}), "class=\"break\""), 2);
}

TEST(SvgTest, AnyNameIsText) {
  const std::string svg = Draw({{.name = "<b>&\"\x01", .bytes = 64}}, {.ub = 64});
  EXPECT_THAT(svg, AllOf(HasSubstr("&lt;b&gt;&amp;&quot;?"), Not(HasSubstr("<b>"))));
}

TEST(SvgTest, ErrorsOfTheBuffersAreShownWithoutAPlot) {
  EXPECT_THAT(Draw({{.name = "a", .bytes = 0}}, {.ub = 64}), AllOf(HasSubstr("0 bytes, must be at least 1"), Not(HasSubstr("<title>"))));
}

TEST(SvgTest, SizesBesideThePlotAreExact) {
  EXPECT_THAT(Draw({{.name = "a", .bytes = 2000}}, {.ub = 4096}), HasSubstr("a, 2000 B at 0"));
}

TEST(SvgTest, SpellsSizes) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1 KiB");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(512 * 1024), "512 KiB");
}

}  // namespace
}  // namespace jumar::memory::onchip
