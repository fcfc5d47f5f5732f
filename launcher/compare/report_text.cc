#include "launcher/compare/report_text.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "common/json/json_writer.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {
namespace {

constexpr std::array kRoleWords{"prefill", "decode", "both"};

__attribute__((format(printf, 1, 2))) std::string printed(const char* format, ...) {
  std::array<char, 128> text{};
  va_list values;
  va_start(values, format);
  std::vsnprintf(text.data(), text.size(), format, values);
  va_end(values);
  return text.data();
}

std::string three(const Percentiles& times) {
  return time_text(times.p50) + " / " + time_text(times.p90) + " / " + time_text(times.p99);
}

void write(JsonWriter& json, const char* key, const Percentiles& times) {
  json.key(key).begin_object();
  json.key("p50").number(times.p50);
  json.key("p90").number(times.p90);
  json.key("p99").number(times.p99);
  json.end_object();
}

}  // namespace

void write_figures(JsonWriter& json, const FleetFigures& fleet) {
  json.begin_object();
  json.key("name").string(fleet.name);
  if (fleet.chunk > 0) {
    json.key("chunk").integer(fleet.chunk);
  }
  json.key("requests").integer(fleet.requests);
  json.key("served").integer(fleet.served);
  json.key("refused").integer(fleet.refused);
  json.key("unfinished").integer(fleet.requests - fleet.served - fleet.refused);
  json.key("within_slo").integer(fleet.good);
  json.key("share_within_slo").number(fleet.share());
  json.key("offered_per_second").number(fleet.offered);
  json.key("goodput_per_second").number(fleet.goodput);
  json.key("seconds").number(fleet.seconds);
  write(json, "ttft_seconds", fleet.ttft);
  write(json, "itl_seconds", fleet.itl);
  write(json, "longest_gap_seconds", fleet.gap);
  json.key("prompt_tokens_per_second").number(fleet.prompt_tokens);
  json.key("output_tokens_per_second").number(fleet.output_tokens);
  json.key("prompt_tokens_from_cache").number(fleet.reused);
  json.key("kv_transfers").integer(fleet.kv_transfers);
  json.key("kv_tokens_per_second").number(fleet.kv_tokens);
  json.key("worker_hours").number(fleet.worker_hours);
  json.key("roles").begin_object();
  for (size_t i = 0; i < kRoleWords.size(); ++i) {
    const RoleFigures& role = fleet.roles[i];
    if (role.workers == 0) {
      continue;
    }
    json.key(kRoleWords[i]).begin_object();
    json.key("workers").integer(role.workers);
    json.key("workers_min").integer(role.workers_min);
    json.key("busy").number(role.busy);
    json.key("running").number(role.running);
    json.key("queued").number(role.queued);
    json.key("queued_max").integer(role.queued_max);
    json.key("kv_tokens_max").integer(role.kv_rows_max);
    json.end_object();
  }
  json.end_object();
  json.end_object();
}

std::string percent_text(double share) { return printed("%.1f %%", 100 * share); }

std::string time_text(double seconds) {
  if (seconds >= 100) {
    return printed("%.0f s", seconds);
  }
  if (seconds >= 1) {
    return printed("%.2f s", seconds);
  }
  return seconds >= 0.1 ? printed("%.0f ms", 1e3 * seconds) : printed("%.1f ms", 1e3 * seconds);
}

std::string count_text(uint64_t count) {
  std::string text = std::to_string(count);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::vector<const FleetFigures*> fleets_shown(const Comparison& comparison) {
  std::vector<const FleetFigures*> fleets{&comparison.job};
  if (const FleetFigures* other = comparison.other()) {
    fleets.push_back(other);
  }
  return fleets;
}

std::vector<std::vector<std::string>> report_rows(const std::vector<const FleetFigures*>& fleets) {
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const std::string& name, const auto& value) {
    rows.push_back({name});
    for (const FleetFigures* fleet : fleets) {
      rows.back().push_back(value(*fleet));
    }
  };
  using Figures = const FleetFigures&;
  row("", [](Figures fleet) { return fleet.name; });
  row("within the SLO", [](Figures fleet) { return percent_text(fleet.share()); });
  row("goodput, requests/s", [](Figures fleet) { return printed("%.3g", fleet.goodput); });
  row("TTFT p50 / p90 / p99", [](Figures fleet) { return three(fleet.ttft); });
  row("ITL p50 / p90 / p99", [](Figures fleet) { return three(fleet.itl); });
  row("longest gap p50 / p90 / p99", [](Figures fleet) { return three(fleet.gap); });
  row("tokens/s in, out", [](Figures fleet) {
    return printed("%.0f, %.0f", fleet.prompt_tokens, fleet.output_tokens);
  });
  for (size_t i = 0; i < kRoleWords.size(); ++i) {
    const auto has = [i](const FleetFigures* fleet) { return fleet->roles[i].workers > 0; };
    bool any = false;
    for (const FleetFigures* fleet : fleets) {
      any = any || has(fleet);
    }
    if (!any) {
      continue;
    }
    const auto of_role = [&](const std::string& name, const auto& value) {
      row(std::string(kRoleWords[i]) + ": " + name,
          [&](Figures fleet) { return has(&fleet) ? value(fleet.roles[i]) : std::string("-"); });
    };
    of_role("busy", [](const RoleFigures& role) { return percent_text(role.busy); });
    of_role("queue mean, most", [](const RoleFigures& role) {
      return printed("%.1f, %u", role.queued, role.queued_max);
    });
    of_role("running mean", [](const RoleFigures& role) { return printed("%.1f", role.running); });
  }
  row("KV moved, tokens/s", [](Figures fleet) { return printed("%.0f", fleet.kv_tokens); });
  row("prompts from cache", [](Figures fleet) { return percent_text(fleet.reused); });
  row("refused", [](Figures fleet) { return count_text(fleet.refused); });
  row("unfinished",
      [](Figures fleet) { return count_text(fleet.requests - fleet.served - fleet.refused); });
  row("worker-hours", [](Figures fleet) { return printed("%.3g", fleet.worker_hours); });
  return rows;
}

// The decisions of the job's autoscaler; if there are many, the first and the last ones.
std::string decisions_text(const FleetFigures& job) {
  constexpr size_t kEnds = 10;
  const std::vector<std::string>& all = job.decisions;
  std::string text = "Decisions of the autoscaler: " + count_text(all.size()) + "\n";
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == kEnds && all.size() > 2 * kEnds) {
      text += "  ... (all of them: --json)\n";
      i = all.size() - kEnds;
    }
    text += "  " + all[i] + '\n';
  }
  return text;
}

std::string report_text(const Comparison& comparison) {
  std::string text = comparison.headline() + "\n\n";
  text += "job    " + comparison.source + '\n';
  text += "load   " + comparison.load + '\n';
  text += "SLO    TTFT " + time_text(seconds(comparison.slo.ttft)) + ", ITL " +
          time_text(seconds(comparison.slo.itl)) + " (mean of a request)\n";
  text += "model  " + comparison.model + '\n';
  text += "seed   " + std::to_string(comparison.seed) + "\n\n";
  text += format_table(report_rows(fleets_shown(comparison)));
  if (!comparison.both.empty()) {
    text += "\nWorkers of both roles, by chunk:";
    for (const FleetFigures& fleet : comparison.both) {
      text += (&fleet == &comparison.both.front() ? " " : ", ") + std::to_string(fleet.chunk) +
              ": " + percent_text(fleet.share()) + " within the SLO";
    }
    text += ".\n";
  }
  if (comparison.scales()) {
    text += "\n" + decisions_text(comparison.job);
  }
  for (const std::string& note : comparison.notes) {
    text += note + '\n';
  }
  return text;
}

std::string report_json(const Comparison& comparison) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("headline").string(comparison.headline());
  json.key("job_file").string(comparison.source);
  json.key("load").string(comparison.load);
  json.key("model").string(comparison.model);
  json.key("slo").begin_object();
  json.key("ttft_seconds").number(seconds(comparison.slo.ttft));
  json.key("itl_seconds").number(seconds(comparison.slo.itl));
  json.end_object();
  json.key("seed").integer(comparison.seed);
  json.key("job");
  write_figures(json, comparison.job);
  json.key("both").begin_array();
  for (const FleetFigures& fleet : comparison.both) {
    write_figures(json, fleet);
  }
  json.end_array();
  if (!comparison.both.empty()) {
    json.key("best_both_chunk").integer(comparison.best_both().chunk);
  }
  if (comparison.scales()) {
    json.key("decisions").begin_array();
    for (const std::string& decision : comparison.job.decisions) {
      json.string(decision);
    }
    json.end_array();
  }
  if (comparison.fixed) {
    json.key("fixed");
    write_figures(json, *comparison.fixed);
  }
  json.key("notes").begin_array();
  for (const std::string& note : comparison.notes) {
    json.string(note);
  }
  json.end_array();
  json.end_object();
  return text + '\n';
}

}  // namespace pdjob::launcher
