#include "launcher/compare/report_page.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "launcher/compare/plot.h"
#include "launcher/compare/report_text.h"

namespace pdjob::launcher {
namespace {

// The colours are those of the dashboard (launcher/dashboard/page.css).
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #ffffff; --line: #d5d9e0; --text: #17191d; --soft: #565c67;
  --prefill: #0b5cad; --decode: #8a4b00; --both: #5b3fa8; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ground: #101216; --card: #191c22; --line: #343a45; --text: #eceef2; --soft: #a9b0bc;
  --prefill: #74b8ff; --decode: #f2b35c; --both: #bda6ff; --bad: #ff8f87; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 16px 20px 40px; }
h1 { font-size: 22px; line-height: 1.3; margin: 8px 0 16px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 28px 0 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dt, figcaption span, .hint { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 12px; }
figure, .scroll, .notes { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 0; padding: 10px 14px; }
figcaption { font-size: 14px; font-weight: 600; display: flex; justify-content: space-between; gap: 12px; }
figcaption span { font-weight: 400; }
figure > svg { width: 100%; height: auto; display: block; }
figure text { fill: var(--soft); font-size: 11px; font-family: inherit; }
.grid { stroke: var(--line); }
.line { fill: none; stroke: currentColor; stroke-width: 2; }
.dashed { stroke-dasharray: 6 4; }
.prefill { color: var(--prefill); } .decode { color: var(--decode); } .both { color: var(--both); } .job { color: var(--prefill); }
.limit { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 2 3; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0 0; padding: 0; font-size: 13px; }
.key { width: 26px; height: 8px; margin-right: 6px; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 3px solid var(--prefill); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { text-align: right; padding: 3px 0 3px 24px; border-top: 1px solid var(--line); }
th:first-child { text-align: left; padding-left: 0; font-weight: 400; }
thead th { border-top: 0; }
.notes { padding-left: 32px; }
)";

std::string fact(const char* name, const std::string& value) {
  return std::string("<dt>") + name + "</dt><dd>" + html_escaped(value) + "</dd>\n";
}

std::string table_html(const std::vector<std::vector<std::string>>& rows, const char* label) {
  std::string html =
      std::string("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"") + label +
      "\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    html += i == 0 ? "<thead><tr>" : "<tr>";
    for (size_t column = 0; column < rows[i].size(); ++column) {
      const bool heading = i == 0 || column == 0;
      const std::string scope = !heading ? "" : i == 0 ? " scope=\"col\"" : " scope=\"row\"";
      const std::string cell = heading ? "th" : "td";
      html.append("<").append(cell).append(scope).append(">");
      html.append(html_escaped(rows[i][column])).append("</").append(cell).append(">");
    }
    html += i == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string list_html(const std::vector<std::string>& lines) {
  std::string html = "<ul class=\"notes\">\n";
  for (const std::string& line : lines) {
    html += "<li>" + html_escaped(line) + "</li>\n";
  }
  return html + "</ul>\n";
}

Plot shares_plot(const Comparison& comparison, const char* title, Points FleetFigures::* shares,
                 Percentiles FleetFigures::* times, double limit) {
  Plot plot{.title = title,
            .x_name = "seconds",
            .y_name = "share of the requests",
            .x_limit = limit,
            .y_max = 1};
  double last = 2 * limit;
  for (const FleetFigures* fleet : fleets_shown(comparison)) {
    plot.lines.push_back({.name = fleet->name,
                          .look = fleet == &comparison.job ? "job" : "both dashed",
                          .points = fleet->*shares});
    last = std::max(last, (fleet->*times).p90);
  }
  plot.x_max = last;
  return plot;
}

Plot roles_plot(const Comparison& comparison, const char* title, const char* y_name,
                std::array<Points, 3> FleetFigures::* what, double y_max) {
  Plot plot{.title = title,
            .x_name = "seconds since the first request",
            .y_name = y_name,
            .y_max = y_max};
  constexpr std::array kLooks{"prefill", "decode", "both"};
  const auto add = [&](const FleetFigures& fleet, const char* dashed) {
    for (size_t i = 0; i < kLooks.size(); ++i) {
      plot.lines.push_back({.name = fleet.name + ": " + kLooks[i],
                            .look = std::string(kLooks[i]) + dashed,
                            .points = (fleet.*what)[i]});
    }
  };
  add(comparison.job, "");
  if (const FleetFigures* other = comparison.other();
      other != nullptr && other->name != comparison.job.name) {
    add(*other, " dashed");
  }
  return plot;
}

std::string plots(const Comparison& comparison) {
  std::string html = "<div class=\"plots\">\n";
  html += plot_html(shares_plot(comparison, "Time to first token", &FleetFigures::ttft_shares,
                                &FleetFigures::ttft, seconds(comparison.slo.ttft)));
  html += plot_html(shares_plot(comparison, "Inter-token latency", &FleetFigures::itl_shares,
                                &FleetFigures::itl, seconds(comparison.slo.itl)));
  Plot good{.title = "Within the SLO",
            .x_name = "seconds since the first request",
            .y_name = "share of the requests",
            .y_max = 1};
  for (const FleetFigures* fleet : fleets_shown(comparison)) {
    good.lines.push_back({.name = fleet->name,
                          .look = fleet == &comparison.job ? "job" : "both dashed",
                          .points = fleet->good_over_time});
  }
  html += plot_html(good);
  html += plot_html(roles_plot(comparison, "Use of the workers", "share of the time",
                               &FleetFigures::busy_over_time, 1));
  html += plot_html(roles_plot(comparison, "Queues in the workers", "requests",
                               &FleetFigures::queued_over_time, 0));
  if (comparison.scales()) {
    html += plot_html(
        roles_plot(comparison, "Workers", "workers", &FleetFigures::workers_over_time, 0));
  }
  return html + "</div>\n";
}

std::vector<std::vector<std::string>> chunk_rows(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows{{"chunk", "within the SLO", "TTFT p90", "ITL p90"}};
  for (const FleetFigures& fleet : comparison.both) {
    const auto all = report_rows({&fleet});
    rows.push_back({std::to_string(fleet.chunk), all[1][1], time_text(fleet.ttft.p90),
                    time_text(fleet.itl.p90)});
  }
  return rows;
}

}  // namespace

std::string report_page(const Comparison& comparison) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>pdjob simulate: " +
      html_escaped(comparison.source) + "</title>\n<style>";
  html += kStyle;
  html += "</style>\n</head>\n<body>\n<main>\n<h1>" + html_escaped(comparison.headline()) +
          "</h1>\n<dl>\n";
  html += fact("Job", comparison.source);
  html += fact("Load", comparison.load);
  html += fact("SLO", "TTFT " + time_text(seconds(comparison.slo.ttft)) + ", ITL " +
                          time_text(seconds(comparison.slo.itl)) + " (mean of a request)");
  html += fact("Model", comparison.model);
  html += fact("Seed", std::to_string(comparison.seed));
  html += "</dl>\n<h2>Plots</h2>\n" + plots(comparison);
  html += "<h2>Figures</h2>\n" +
          table_html(report_rows(fleets_shown(comparison)), "Figures of the fleets");
  if (!comparison.both.empty()) {
    html += "<h2>Workers of both roles, by chunk</h2>\n" +
            table_html(chunk_rows(comparison), "Workers of both roles, by chunk");
  }
  if (comparison.scales()) {
    html += "<h2>Decisions of the autoscaler</h2>\n" + list_html(comparison.job.decisions);
  }
  if (!comparison.notes.empty()) {
    html += "<h2>What differs from the real job</h2>\n" + list_html(comparison.notes);
  }
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace pdjob::launcher
