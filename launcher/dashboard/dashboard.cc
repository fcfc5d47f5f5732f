#include "launcher/dashboard/dashboard.h"

#include "common/config/shipped_files.h"

namespace pdjob::launcher {
namespace {

constexpr ShippedFile kShipped[] = {
#include "launcher/dashboard/shipped_texts.inc"
};

std::string_view text_of(std::string_view name) { return find_shipped(kShipped, name)->text; }

}  // namespace

std::optional<DashboardFile> dashboard_file(std::string_view path) {
  if (path == "/") {
    return DashboardFile{"text/html; charset=utf-8", text_of("page.html")};
  }
  if (path == "/dashboard.css") {
    return DashboardFile{"text/css; charset=utf-8", text_of("page.css")};
  }
  if (path == "/dashboard.js") {
    return DashboardFile{"text/javascript; charset=utf-8", text_of("page.js")};
  }
  return std::nullopt;
}

const std::vector<std::pair<std::string, std::string>>& dashboard_headers() {
  static const std::vector<std::pair<std::string, std::string>> headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
       "data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cache-Control", "no-cache"}};
  return headers;
}

}  // namespace pdjob::launcher
