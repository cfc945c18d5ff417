#include "libs/memory/onchip/svg.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/memory/onchip/message.h"
#include "libs/memory/onchip/validate.h"

namespace jumar::memory::onchip {
namespace {

constexpr double kWidth = 1180, kPlotLeft = 100, kPlotWidth = 560, kLegendLeft = 690;
constexpr double kPlotHeight = 230, kPanelTop = 40, kPanelBottom = 50, kLegendRow = 34, kMargin = 16;
constexpr size_t kCharactersPerLine = 150;

// Light, for dark text; the names beside the plot say the same as the colours.
constexpr const char* kColours[] = {"#8ecae6", "#ffd166", "#95d5b2", "#f4978e", "#cdb4db",
                                    "#ffb3c6", "#a8dadc", "#d4a373", "#b8c0ff", "#c7c7c7"};

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += static_cast<unsigned char>(c) < 0x20 ? '?' : c;  // XML has no control characters
    }
  }
  return escaped;
}

std::string Text(double x, double y, const std::string& text, const char* attributes = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, attributes, Escape(text));
}

std::string LineFrom(double x1, double y1, double x2, double y2, const char* attributes) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, attributes);
}

// The boundaries between columns: all steps at which a lifetime starts or is over. 64 bits, since the last step may be INT32_MAX.
std::vector<int64_t> Boundaries(const MapView& map) {
  std::vector<int64_t> at;
  for (int i = 0; i < map.count; ++i) {
    at.push_back(map.buffers[i].lifetime.first);
    at.push_back(int64_t{map.buffers[i].lifetime.last} + 1);
  }
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  return at;
}

std::string StepsText(int64_t first, int64_t end) {
  if (end - 1 == Lifetime::kEnd) return absl::StrCat(first, "-end");
  return first == end - 1 ? absl::StrCat(first) : absl::StrCat(first, "-", end - 1);
}

class Panel {
 public:
  Panel(const MapView& map, Space space, const std::vector<int64_t>& boundaries, double top)
      : map_(map), space_(space), boundaries_(boundaries), top_(top + kPanelTop) {
    used_ = map.used_bytes[static_cast<int>(space)];
    capacity_ = map.capacities->Of(space);
    broken_ = capacity_ / 2 > used_;
    for (int i = 0; i < map.count; ++i) {
      if (map.buffers[i].space == space && map.placements[i].offset >= 0) members_.push_back(i);
    }
    std::sort(members_.begin(), members_.end(), [&](int a, int b) {
      const int64_t x = map.placements[a].offset, y = map.placements[b].offset;
      return x != y ? x > y : map.buffers[a].lifetime.first < map.buffers[b].lifetime.first;
    });
    height_ = std::max(kPlotHeight, kLegendRow * static_cast<double>(members_.size()));
  }

  double Bottom() const { return top_ + height_ + kPanelBottom; }

  std::string Draw() const {
    std::string svg = Text(kMargin, top_ - 16, SpaceLine(map_, space_).text, "class=\"h\"");
    svg += absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fafafa\" stroke=\"#bbb\"/>\n", kPlotLeft,
                           top_, kPlotWidth, height_);
    svg += Columns();
    for (const int i : members_) svg += Boxes(i);
    svg += Axis();
    double y = top_ + 6;
    for (const int i : members_) {
      svg += LegendRow(i, y);
      y += kLegendRow;
    }
    return svg;
  }

 private:
  // With a break, the upper sixth is between what is used and the capacity.
  double Y(int64_t address) const {
    const double all = static_cast<double>(broken_ ? used_ : std::max(capacity_, used_));
    return top_ + height_ - static_cast<double>(address) / all * height_ * (broken_ ? 5.0 / 6.0 : 1.0);
  }
  double X(int64_t step) const {
    const auto column = std::lower_bound(boundaries_.begin(), boundaries_.end(), step) - boundaries_.begin();
    return kPlotLeft + kPlotWidth * static_cast<double>(column) / static_cast<double>(boundaries_.size() - 1);
  }
  const char* Colour(int i) const {
    return kColours[static_cast<size_t>(std::find(members_.begin(), members_.end(), i) - members_.begin()) % std::size(kColours)];
  }

  std::string Columns() const {
    std::string svg;
    double free_from = 0;
    for (size_t c = 0; c + 1 < boundaries_.size(); ++c) {
      const double left = X(boundaries_[c]), middle = (left + X(boundaries_[c + 1])) / 2;
      if (c > 0) svg += LineFrom(left, top_, left, top_ + height_, "stroke=\"#e4e4e4\"");
      const std::string text = StepsText(boundaries_[c], boundaries_[c + 1]);
      const double half = 3.5 * static_cast<double>(text.size()) + 3;
      if (middle - half < free_from) continue;
      svg += Text(middle, top_ + height_ + 16, text, "class=\"s\" text-anchor=\"middle\"");
      free_from = middle + half;
    }
    return svg + Text(kPlotLeft + kPlotWidth / 2, top_ + height_ + 34, "step", "class=\"s\" text-anchor=\"middle\"");
  }

  std::string Boxes(int i) const {
    const Buffer& b = map_.buffers[i];
    const Placement& p = map_.placements[i];
    const double left = X(b.lifetime.first), width = X(int64_t{b.lifetime.last} + 1) - left;
    const bool blamed = map_.error->buffer == i || map_.error->other == i;
    std::string svg;
    for (int copy = 0; copy < p.copies; ++copy) {
      const int64_t start = p.Offset(copy), end = start + b.bytes;
      const double top = Y(end), height = std::max(Y(start) - top, 1.5);
      const std::string box = absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" ", left, top, width, height);
      absl::StrAppend(&svg, box, "fill=\"", Colour(i), "\" fill-opacity=\"0.85\" stroke=\"", blamed ? "#c1121f" : "#444",
                      "\" stroke-width=\"", blamed ? "2" : "0.7", "\"><title>", Escape(TableRow(map_, i).text), "</title></rect>\n");
      double hatched = 0;
      if (end > capacity_) {
        hatched = std::max(Y(std::max(start, capacity_)) - top, 1.5);
        svg += absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"url(#beyond)\"/>\n", left, top, width,
                               hatched);
      }
      const std::string label = p.copies == 1 ? b.name.text : absl::StrCat(b.name.text, "[", copy, "]");
      if (height >= 13 && width >= 7.0 * static_cast<double>(label.size())) {
        const double clear = height - hatched >= 13 ? hatched : 0;  // below the line of the capacity, if there is room
        svg += Text(left + width / 2, top + (clear + height) / 2 + 4, label, "class=\"b\" text-anchor=\"middle\"");
      }
    }
    return svg;
  }

  std::string Axis() const {
    std::string svg;
    const double right = kPlotLeft + kPlotWidth;
    const double capacity_y = broken_ ? top_ : Y(capacity_);
    std::vector<int64_t> ticks = {0, used_};
    for (int quarter = 1; quarter < 4; ++quarter) ticks.push_back((broken_ ? used_ : capacity_) / 4 * quarter);
    double last = -100;
    for (const int64_t tick : ticks) {
      const double y = Y(tick);
      const bool crowded =
          tick != 0 && tick != used_ && (std::abs(y - Y(used_)) < 14 || std::abs(y - Y(0)) < 14 || std::abs(y - last) < 14);
      if (crowded || (tick == used_ && std::abs(y - capacity_y) < 14)) continue;
      svg += Text(kPlotLeft - 6, y + 4, BytesText(tick), "class=\"s\" text-anchor=\"end\"") +
             LineFrom(kPlotLeft - 4, y, kPlotLeft, y, "stroke=\"#444\"");
      last = y;
    }
    svg += LineFrom(kPlotLeft, capacity_y, right, capacity_y,
                    used_ > capacity_ ? "stroke=\"#c1121f\" stroke-width=\"2.5\"" : "stroke=\"#2d6a4f\" stroke-width=\"2.5\"");
    svg += Text(kPlotLeft - 6, capacity_y + 4, BytesText(capacity_), "class=\"s\" font-weight=\"bold\" text-anchor=\"end\"");
    svg += Text(right - 4, capacity_y - 4, "capacity", "class=\"s\" text-anchor=\"end\"");
    if (broken_) {
      const double y = top_ + height_ / 12;
      for (const double shift : {-3.0, 3.0}) {
        svg += LineFrom(kPlotLeft - 8, y + shift + 3, kPlotLeft + 8, y + shift - 3, "class=\"break\" stroke=\"#444\"");
      }
    }
    return svg;
  }

  std::string LegendRow(int i, double y) const {
    const Buffer& b = map_.buffers[i];
    const Placement& p = map_.placements[i];
    std::string svg = absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\" stroke=\"%s\"/>\n", kLegendLeft,
                                      y, Colour(i), map_.error->buffer == i ? "#c1121f" : "#444");
    const std::string bytes = b.bytes % 1024 == 0 ? BytesText(b.bytes) : absl::StrCat(b.bytes, " B");  // exact
    std::string what = absl::StrCat(b.name.text, ", ", p.copies == 1 ? "" : absl::StrCat(p.copies, " x "), bytes, " at ", p.offset);
    if (p.copies > 1) absl::StrAppend(&what, " + ", p.stride, " i");
    if (b.policy == Policy::k2x2) what += " (2x2)";
    if (b.pinned_offset != kAnywhere) what += ", pinned";
    if (!b.alias_of.empty()) absl::StrAppend(&what, ", alias of ", b.alias_of.text);
    svg += Text(kLegendLeft + 20, y + 11, what, "class=\"b\"");
    std::string when = absl::StrCat("steps ", StepsText(b.lifetime.first, int64_t{b.lifetime.last} + 1));
    if (b.handover.producer != Pipe::kNone) {
      Line ids;
      internal::AddIds(ids.Add(", event ids "), b.handover.producer, b.handover.consumer, p.forward, p.copies);
      internal::AddIds(ids.Add(", "), b.handover.consumer, b.handover.producer, p.backward, p.copies);
      when += ids.text;
    }
    return svg + Text(kLegendLeft + 20, y + 25, when, "class=\"s\"");
  }

  const MapView& map_;
  Space space_;
  const std::vector<int64_t>& boundaries_;
  double top_;
  double height_ = 0;
  int64_t used_ = 0, capacity_ = 0;
  bool broken_ = false;
  std::vector<int> members_;  // from the highest address to the lowest, as drawn
};

// Broken at blanks.
std::vector<std::string> Wrap(const std::string& text) {
  std::vector<std::string> lines;
  size_t start = 0;
  while (text.size() - start > kCharactersPerLine) {
    size_t end = text.rfind(' ', start + kCharactersPerLine);
    if (end == std::string::npos || end <= start) end = start + kCharactersPerLine;
    lines.push_back(text.substr(start, end - start));
    start = end + (text[end] == ' ' ? 1 : 0);
  }
  lines.push_back(text.substr(start));
  return lines;
}

}  // namespace

std::string BytesText(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  const double kib = static_cast<double>(bytes) / 1024;
  if (bytes % 1024 == 0) return absl::StrCat(bytes / 1024, " KiB");
  return absl::StrFormat("%.1f KiB", kib);
}

std::string Svg(const MapView& map) {
  const std::vector<int64_t> boundaries = Boundaries(map);
  std::string body;
  double y = kMargin + 14;
  body += Text(kMargin, y, map.error->ok() ? "On-chip buffers: the plan fits" : "On-chip buffers: the plan fails", "class=\"t\"");
  if (!map.error->ok()) {
    for (const std::string& line : Wrap(ErrorLine(map).text)) body += Text(kMargin, y += 20, line, "class=\"e\"");
  }
  for (int s = 0; s < kNumSpaces; ++s) {
    if (map.used_bytes[s] == 0) continue;
    const Panel panel(map, static_cast<Space>(s), boundaries, y + 10);
    body += panel.Draw();
    y = panel.Bottom();
  }
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n",
      kWidth, y + kMargin, kWidth, y + kMargin);
  svg +=
      "<style>text{fill:#222}.t{font-size:17px;font-weight:bold}.h{font-size:13px;font-weight:bold}.b{font-size:12px}"
      ".s{font-size:11px;fill:#555}.e{font-size:13px;fill:#c1121f}</style>\n"
      "<defs><pattern id=\"beyond\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
      "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"8\" stroke=\"#c1121f\" stroke-width=\"2\"/></pattern></defs>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  return svg + body + "</svg>\n";
}

}  // namespace jumar::memory::onchip
