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
  constexpr const char* kScript = "text/javascript; charset=utf-8";
  static constexpr std::array<std::array<const char*, 3>, 6> kFiles = {
      {{"/", "text/html; charset=utf-8", "page.html"},
       {"/dashboard.css", "text/css; charset=utf-8", "page.css"},
       {"/dashboard.js", kScript, "page.js"},
       {"/dashboard_drawings.js", kScript, "page_drawings.js"},
       {"/dashboard_requests.js", kScript, "page_requests.js"},
       {"/dashboard_words.js", kScript, "page_words.js"}}};
  const auto* const found =
      std::ranges::find(kFiles, path, [](const auto& file) { return std::string_view(file[0]); });
  if (found == kFiles.end()) {
    return std::nullopt;
  }
  return DashboardFile{(*found)[1], text_of((*found)[2])};
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
