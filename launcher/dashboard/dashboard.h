// The dashboard: a page of three files that are part of the program. It reads the pages of the
// admin API, and changes nothing. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pdjob::launcher {

struct DashboardFile {
  std::string_view content_type;
  std::string_view text;
};

// The file at this path: "/", and the scripts and the style that it names.
std::optional<DashboardFile> dashboard_file(std::string_view path);

// What a browser must keep to: nothing but the page's own files runs or is asked, and no other site
// may show it.
const std::vector<std::pair<std::string, std::string>>& dashboard_headers();

}  // namespace pdjob::launcher
