#include "launcher/compare/fleet_figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "launcher/played/load_words.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {
namespace {

using simulation::TraceOutcome;

constexpr size_t kPlotPoints = 120;

// The shares of sorted values, as steps that a plot can draw.
Points shares_of(const std::vector<double>& sorted) {
  Points points;
  const size_t count = sorted.size();
  for (size_t i = 0; i < kPlotPoints && count > 0; ++i) {
    const size_t at = (count - 1) * i / (kPlotPoints - 1);
    points.emplace_back(sorted[at], static_cast<double>(at + 1) / static_cast<double>(count));
  }
  return points;
}

// Means of neighbours, so that few points are left.
Points thinned(const Points& all) {
  const size_t each = (all.size() + kPlotPoints - 1) / kPlotPoints;
  Points points;
  for (size_t begin = 0; begin < all.size(); begin += each) {
    const size_t end = std::min(begin + each, all.size());
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += all[i].second;
    }
    points.emplace_back(all[(begin + end - 1) / 2].first, sum / static_cast<double>(end - begin));
  }
  return points;
}

Points good_over_time(const simulation::TraceResult& result, const simulation::Slo& slo) {
  constexpr size_t kBins = 60;
  const double width = std::max(seconds(result.arrivals) / kBins, 1e-9);
  std::vector<std::pair<double, double>> bins(kBins);  // Good ones, all.
  for (const TraceOutcome& outcome : result.outcomes) {
    auto& bin = bins[std::min(static_cast<size_t>(seconds(outcome.at) / width), kBins - 1)];
    bin.first += slo.holds(outcome) ? 1 : 0;
    bin.second += 1;
  }
  Points points;
  for (size_t i = 0; i < kBins; ++i) {
    if (bins[i].second > 0) {
      points.emplace_back((static_cast<double>(i) + 0.5) * width, bins[i].first / bins[i].second);
    }
  }
  return points;
}

void take_samples(const simulation::TraceResult& result, FleetFigures& figures) {
  for (size_t role = 0; role < figures.roles.size(); ++role) {
    RoleFigures& of_role = figures.roles[role];
    Points busy;
    Points queued;
    Points workers;
    if (!result.samples.empty()) {
      of_role.workers_min = result.samples.front().roles[role].workers;
    }
    for (const simulation::TraceSample& sample : result.samples) {
      const auto& now = sample.roles[role];
      of_role.queued += now.queued;
      of_role.running += now.running;
      of_role.queued_max = std::max(of_role.queued_max, now.queued);
      of_role.kv_rows_max = std::max(of_role.kv_rows_max, now.kv_rows_used);
      busy.emplace_back(seconds(sample.at), now.busy);
      queued.emplace_back(seconds(sample.at), now.queued);
      workers.emplace_back(seconds(sample.at), now.workers);
      of_role.workers = std::max(of_role.workers, now.workers);
      of_role.workers_min = std::min(of_role.workers_min, now.workers);
    }
    const double samples = std::max<double>(1, static_cast<double>(result.samples.size()));
    of_role.queued /= samples;
    of_role.running /= samples;
    if (of_role.workers > 0) {
      figures.busy_over_time[role] = thinned(busy);
      figures.queued_over_time[role] = thinned(queued);
      figures.workers_over_time[role] = thinned(workers);
    }
  }
}

void take_workers(const simulation::TraceResult& result, FleetFigures& figures) {
  const double lasted = std::max(seconds(result.lasted), 1e-9);
  std::array<double, 3> lived{};
  std::array<uint32_t, 3> whole{};  // Workers that were there all the time.
  for (const simulation::TraceWorker& worker : result.workers) {
    const size_t role = worker.role == net::Role::kPrefill  ? 0
                        : worker.role == net::Role::kDecode ? 1
                                                            : 2;
    lived[role] += seconds(worker.lived);
    whole[role] += worker.lived >= result.lasted ? 1 : 0;
    figures.roles[role].busy += seconds(worker.busy);
    figures.kv_transfers += worker.kv_transfers;
    figures.kv_tokens += static_cast<double>(worker.kv_rows_sent) / lasted;
    figures.worker_hours += seconds(worker.lived) / 3600;
  }
  for (size_t role = 0; role < lived.size(); ++role) {
    RoleFigures& of_role = figures.roles[role];
    of_role.busy = std::min(of_role.busy / std::max(lived[role], 1e-9), 1.0);
    of_role.workers = of_role.workers_min = whole[role];
  }
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %%", share < 0.0995 ? 1 : 0, 100 * share);
  return text;
}

}  // namespace

std::string verdict_of(const FleetFigures& figures) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3g requests/s within the SLO with ", figures.goodput);
  return text + figures.name;
}

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) {
    return 0;
  }
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(
                    std::clamp<double>(rank, 1, static_cast<double>(sorted.size()))) -
                1];
}

Percentiles percentiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {.p50 = percentile(values, 0.5),
          .p90 = percentile(values, 0.9),
          .p99 = percentile(values, 0.99)};
}

Result<simulation::Slo> parse_slo(const std::string& option, const std::string& text) {
  simulation::Slo slo;
  const size_t comma = text.find(',');
  for (const std::string& part :
       {text.substr(0, comma), comma == text.npos ? "" : text.substr(comma + 1)}) {
    Duration* const target = part.starts_with("ttft=")  ? &slo.ttft
                             : part.starts_with("itl=") ? &slo.itl
                                                        : nullptr;
    if (target == nullptr) {
      return Error{ErrorCode::kInvalidArgument,
                   option + ": expected ttft=TIME,itl=TIME, such as ttft=1s,itl=50ms, got \"" +
                       text.substr(0, 80) + '"'};
    }
    PDJOB_TRY(*target, simulation::parse_time(option, part.substr(part.find('=') + 1)));
  }
  if (slo.ttft == Duration::zero() || slo.itl == Duration::zero()) {
    return Error{ErrorCode::kInvalidArgument, option + ": both ttft and itl are needed"};
  }
  return slo;
}

FleetFigures figures_of(const simulation::TraceRun& run, const simulation::TraceResult& result,
                        const simulation::Slo& slo) {
  FleetFigures figures{.requests = result.outcomes.size(), .seconds = seconds(result.lasted)};
  take_workers(result, figures);
  take_samples(result, figures);
  const auto add = [&figures](size_t role, const char* word) {
    const auto& [most, least] =
        std::pair(figures.roles[role].workers, figures.roles[role].workers_min);
    if (most > 0) {
      figures.name += (figures.name.empty() ? "" : " + ") +
                      (least == most ? "" : std::to_string(least) + "..") + std::to_string(most) +
                      ' ' + word;
    }
  };
  add(0, "prefill");
  add(1, "decode");
  add(2, "both");
  if (run.job.both > 0) {
    const uint32_t chunk = run.job.decode_config.local_chunk_tokens;
    figures.chunk = chunk == 0 ? decode::kLongChunk : chunk;
    figures.name += ", chunk " + std::to_string(figures.chunk);
  }
  for (const simulation::TraceDecision& decision : result.decisions) {
    figures.decisions.push_back(duration_text(decision.at) + "  " +
                                decision.text.substr(0, decision.text.find('\n')));
  }
  std::vector<double> ttft;
  std::vector<double> itl;
  std::vector<double> gap;
  double prompt_tokens = 0;
  double output_tokens = 0;
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    const TraceOutcome& outcome = result.outcomes[i];
    figures.served += outcome.served ? 1 : 0;
    figures.refused += outcome.refused ? 1 : 0;
    figures.good += slo.holds(outcome) ? 1 : 0;
    if (!outcome.served) {
      continue;
    }
    prompt_tokens += run.trace[i].prompt_tokens;
    output_tokens += run.trace[i].output_tokens;
    ttft.push_back(seconds(outcome.ttft));
    if (outcome.itl > Duration::zero()) {
      itl.push_back(seconds(outcome.itl));
      gap.push_back(seconds(outcome.gap_max));
    }
  }
  // A load of one instant still has a rate.
  const double loaded = std::max(seconds(result.arrivals), 1e-3);
  figures.offered = static_cast<double>(figures.requests) / loaded;
  figures.goodput = static_cast<double>(figures.good) / loaded;
  const double lasted = std::max(figures.seconds, 1e-9);
  figures.prompt_tokens = prompt_tokens / lasted;
  figures.output_tokens = output_tokens / lasted;
  figures.reused = prompt_tokens > 0 ? static_cast<double>(result.rows_reused) / prompt_tokens : 0;
  std::ranges::sort(ttft);
  std::ranges::sort(itl);
  figures.ttft_shares = shares_of(ttft);
  figures.itl_shares = shares_of(itl);
  figures.ttft = percentiles_of(std::move(ttft));
  figures.itl = percentiles_of(std::move(itl));
  figures.gap = percentiles_of(std::move(gap));
  figures.good_over_time = good_over_time(result, slo);
  return figures;
}

bool better(const FleetFigures& one, const FleetFigures& other) {
  return one.good != other.good ? one.good > other.good : one.ttft.p90 < other.ttft.p90;
}

std::string verdict(const FleetFigures& job, const FleetFigures& both) {
  if (job.good == 0 && both.good == 0) {
    return "Neither " + job.name + " nor " + both.name +
           " serves one request within the SLO: more workers, a faster model, or a lower rate";
  }
  const std::string figures = ": " + verdict_of(job) + ", " + verdict_of(both);
  if (both.good == 0) {
    return "Disaggregation gains all" + figures;
  }
  const double gain = static_cast<double>(job.good) / static_cast<double>(both.good) - 1;
  constexpr double kSame = 0.01;  // Less is chance.
  if (std::abs(gain) < kSame) {
    return "Disaggregation changes nothing at this load" + figures;
  }
  return "Disaggregation " + std::string(gain > 0 ? "gains " : "costs ") + percent(std::abs(gain)) +
         figures;
}

}  // namespace pdjob::launcher
