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

// True if the request names this machine, as each request to a loopback address does. A browser
// that was led here by another site's name (DNS rebinding) names that one. Empty: no browser.
bool names_this_machine(std::string_view host_header);

}  // namespace pdjob::launcher
