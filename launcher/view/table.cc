#include "launcher/view/table.h"

#include <algorithm>
#include <cmath>

namespace pdjob::launcher {

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      line += row[column] + std::string(widths[column] - row[column].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string duration_text(Duration duration) {
  const auto total = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  if (total < 60) {
    return std::to_string(total) + "s";
  }
  if (total < 3600) {
    return std::to_string(total / 60) + "m" + std::to_string(total % 60) + "s";
  }
  return std::to_string(total / 3600) + "h" + std::to_string(total % 3600 / 60) + "m";
}

std::string starved_text(const std::string& process, double share) {
  return process + " is starved: " + std::to_string(std::lround(100 * share)) +
         " % of its time it waited for a core";
}

}  // namespace pdjob::launcher
