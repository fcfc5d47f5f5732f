#include "launcher/compare/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace pdjob::launcher {
namespace {

constexpr double kWidth = 360, kHeight = 200;
constexpr double kLeft = 46, kRight = 12, kTop = 10, kBottom = 36;

// With few digits, the same everywhere.
std::string digits(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string place(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// The part of a plot's plane that its axes show.
struct Axes {
  double x_end = 1, y_end = 1;
  double x(double value) const {
    return kLeft + std::clamp(value / x_end, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - std::clamp(value / y_end, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }
};

Axes axes_of(const Plot& plot) {
  double x = plot.x_limit.value_or(0);
  double y = 0;
  for (const PlotLine& line : plot.lines) {
    for (const auto& [at, value] : line.points) {
      x = std::max(x, at);
      y = std::max(y, value);
    }
  }
  return {.x_end = axis_end(plot.x_max ? std::min(x, *plot.x_max) : x),
          .y_end = plot.y_max > 0 ? plot.y_max : axis_end(y)};
}

std::string line_svg(const PlotLine& line, const Axes& axes) {
  std::string points;
  for (const auto& [x, y] : line.points) {
    if (x > axes.x_end) {
      break;
    }
    points += (points.empty() ? "" : " ") + place(axes.x(x)) + ',' + place(axes.y(y));
  }
  return "<polyline class=\"line " + html_escaped(line.look) + "\" points=\"" + points + "\"/>";
}

std::string text_svg(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + place(x) + "\" y=\"" + place(y) + "\" text-anchor=\"" + anchor + "\">" +
         html_escaped(text) + "</text>";
}

std::string ruler_svg(double x1, double y1, double x2, double y2, const char* look) {
  return std::string("<line class=\"") + look + "\" x1=\"" + place(x1) + "\" y1=\"" + place(y1) +
         "\" x2=\"" + place(x2) + "\" y2=\"" + place(y2) + "\"/>";
}

std::string axes_svg(const Plot& plot, const Axes& axes) {
  constexpr int kParts = 4;
  std::string svg;
  for (int i = 0; i <= kParts; ++i) {
    const double x = axes.x_end * i / kParts;
    const double y = axes.y_end * i / kParts;
    svg += ruler_svg(kLeft, axes.y(y), kWidth - kRight, axes.y(y), "grid");
    svg += text_svg(kLeft - 5, axes.y(y) + 4, "end", digits(y));
    svg += text_svg(axes.x(x), kHeight - kBottom + 15, i == kParts ? "end" : "middle", digits(x));
  }
  return svg + text_svg((kLeft + kWidth - kRight) / 2, kHeight - 4, "middle", plot.x_name);
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: html += c;
    }
  }
  return html;
}

double axis_end(double most) {
  if (!(most > 0) || !std::isfinite(most)) {
    return 1;
  }
  const double power = std::pow(10, std::floor(std::log10(most)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= most) {
      return factor * power;
    }
  }
  return 10 * power;
}

std::string plot_html(const Plot& plot) {
  const Axes axes = axes_of(plot);
  std::string svg = axes_svg(plot, axes);
  std::string legend;
  for (const PlotLine& line : plot.lines) {
    if (line.points.empty()) {
      continue;
    }
    svg += line_svg(line, axes);
    legend += "<li><svg class=\"key\" viewBox=\"0 0 26 8\" aria-hidden=\"true\"><line class=\"line " +
              html_escaped(line.look) + "\" x1=\"0\" y1=\"4\" x2=\"26\" y2=\"4\"/></svg>" +
              html_escaped(line.name) + "</li>";
  }
  if (plot.x_limit && *plot.x_limit <= axes.x_end) {
    svg += ruler_svg(axes.x(*plot.x_limit), kTop, axes.x(*plot.x_limit), kHeight - kBottom, "limit");
    legend += "<li><svg class=\"key\" viewBox=\"0 0 26 8\" aria-hidden=\"true\"><line class=\"limit\" "
              "x1=\"0\" y1=\"4\" x2=\"26\" y2=\"4\"/></svg>SLO</li>";
  }
  const std::string title = html_escaped(plot.title);
  return "<figure><figcaption>" + title + " <span>" + html_escaped(plot.y_name) +
         "</span></figcaption><svg viewBox=\"0 0 360 200\" role=\"img\" aria-label=\"" + title +
         "\">" + svg + "</svg><ul class=\"legend\">" + legend + "</ul></figure>\n";
}

}  // namespace pdjob::launcher
