#include "batch/report/svg_bars.h"

#include <algorithm>
#include <cstdio>

namespace pdjob::batch {
namespace {

constexpr double kWidth = 640, kHeight = 240;
constexpr double kLeft = 56, kRight = 12, kTop = 34, kBottom = 34;
constexpr size_t kLabels = 8;

std::string fixed(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", number);
  return text;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + anchor + "\">" +
         html_escaped(text) + "</text>\n";
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string short_number(double number) {
  const char* unit = "";
  for (const char* const next : {"k", "M", "G"}) {
    if (number < 1000) {
      break;
    }
    number /= 1000;
    unit = next;
  }
  char text[32];
  std::snprintf(text, sizeof text, number < 10 && *unit != '\0' ? "%.1f%s" : "%.0f%s", number,
                unit);
  return text;
}

std::string svg_bars(const std::string& title, const std::string& unit,
                     const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& bar : bars) {
    most = std::max(most, bar.value);
  }
  most = most > 0 ? most : 1;
  const double inner_width = kWidth - kLeft - kRight;
  const double inner_height = kHeight - kTop - kBottom;
  const double bottom = kHeight - kBottom;
  std::string svg =
      "<svg viewBox=\"0 0 640 240\" role=\"img\" aria-label=\"" + html_escaped(title) + "\">\n";
  svg += "<g class=\"title\">" + text_at(kLeft, 18, "start", title + ", " + unit) + "</g>\n";
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = bottom - part * inner_height;
    svg += "<line x1=\"" + fixed(kLeft) + "\" x2=\"" + fixed(kWidth - kRight) + "\" y1=\"" +
           fixed(y) + "\" y2=\"" + fixed(y) + "\"/>\n";
    svg += text_at(kLeft - 6, y + 4, "end", short_number(part * most));
  }
  const double step = inner_width / static_cast<double>(std::max<size_t>(bars.size(), 1));
  const size_t every = (bars.size() + kLabels - 1) / kLabels;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    const double height = bars[i].value / most * inner_height;
    svg += "<rect x=\"" + fixed(x + step * 0.1) + "\" y=\"" + fixed(bottom - height) +
           "\" width=\"" + fixed(step * 0.8) + "\" height=\"" + fixed(height) + "\"/>\n";
    if (i % every == 0) {
      svg += text_at(x + step / 2, bottom + 16, "middle", bars[i].label);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace pdjob::batch
