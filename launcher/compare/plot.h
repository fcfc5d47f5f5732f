// Plots as SVG inside an HTML page: lines over two axes from zero. Colours are classes of the page
// (report_page.css). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/compare/fleet_figures.h"

namespace pdjob::launcher {

struct PlotLine {
  std::string name;
  std::string look;  // A class of the page: "job", "both", "prefill", "decode"; or with " dashed".
  Points points;
};

struct Plot {
  std::string title;
  std::string x_name, y_name;      // With units.
  std::vector<PlotLine> lines;     // Those without points are left out.
  std::optional<double> x_limit;   // A vertical line: what the SLO allows.
  std::optional<double> x_max;     // Points behind it are cut off.
  double y_max = 0;                // 0: as high as the points.
};

// A <figure> with its legend. Every text is escaped.
std::string plot_html(const Plot& plot);

// Text for HTML.
std::string html_escaped(const std::string& text);

// A round number of at least `most`, for the end of an axis: 1, 2 or 5 times a power of ten.
double axis_end(double most);

}  // namespace pdjob::launcher
