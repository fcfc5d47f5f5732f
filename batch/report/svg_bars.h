// A bar chart as an SVG element. Pure.
#pragma once

#include <string>
#include <vector>

namespace pdjob::batch {

struct Bar {
  std::string label;
  double value = 0;
};

// With at most a few labels below, so that they can be read. `unit`: of the values.
std::string svg_bars(const std::string& title, const std::string& unit,
                     const std::vector<Bar>& bars);
// For text in HTML and SVG.
std::string html_escaped(const std::string& text);
// "1.2k", "3.4M".
std::string short_number(double number);

}  // namespace pdjob::batch
