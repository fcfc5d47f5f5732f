#include "batch/report/report.h"

#include <algorithm>
#include <bit>

#include "batch/report/svg_bars.h"

namespace pdjob::batch {
namespace {

constexpr int64_t kSlicesMax = 60;
constexpr size_t kCausesMax = 32;

// Four buckets for each doubling: by the number's highest three bits.
size_t bucket_of(uint64_t number) {
  if (number < 4) {
    return static_cast<size_t>(number);
  }
  const auto bits = static_cast<size_t>(std::bit_width(number));
  return std::min((bits - 2) * 4 + ((number >> (bits - 3)) & 3), SizeCounts::kBuckets - 1);
}

uint64_t first_of(size_t bucket) {
  return bucket < 4 ? bucket : (4 + bucket % 4) << (bucket / 4 - 1);
}

std::string milliseconds_text(uint64_t milliseconds) {
  return milliseconds < 10'000 ? std::to_string(milliseconds) + " ms"
                               : std::to_string(milliseconds / 1000) + " s";
}

double per_second(uint64_t count, int64_t seconds) {
  return static_cast<double>(count) / static_cast<double>(std::max<int64_t>(seconds, 1));
}

// The rows of the first table: name and value.
std::vector<std::pair<std::string, std::string>> summary(const ReportFacts& facts) {
  const uint64_t ended = facts.answered + facts.failed;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"rows", std::to_string(ended)},
      {"answered", std::to_string(facts.answered)},
      {"failed", std::to_string(facts.failed)},
      {"attempts", std::to_string(facts.attempts)},
      {"prompt tokens", std::to_string(facts.prompt_tokens)},
      {"completion tokens", std::to_string(facts.completion_tokens)},
      {"seconds from the first end of a row to the last", std::to_string(facts.seconds)},
      {"rows per second", short_number(per_second(ended, facts.seconds))},
      {"completion tokens per second",
       short_number(per_second(facts.completion_tokens, facts.seconds))},
      {"time of an answer, median", milliseconds_text(facts.milliseconds.quantile(0.5))},
      {"time of an answer, 99 % are below", milliseconds_text(facts.milliseconds.quantile(0.99))},
      {"tokens of an answer, median", std::to_string(facts.lengths.quantile(0.5))}};
  for (const auto& [stage, restarts] : facts.stage_restarts) {
    rows.emplace_back("restarts of processes of stage " + stage, std::to_string(restarts));
  }
  return rows;
}

std::vector<Bar> bars_of(const SizeCounts& counts) {
  std::vector<Bar> bars;
  for (const SizeCounts::Bucket& bucket : counts.buckets()) {
    bars.push_back({.label = short_number(static_cast<double>(bucket.first)),
                    .value = static_cast<double>(bucket.count)});
  }
  return bars;
}

std::vector<Bar> bars_over_time(const ReportFacts& facts, bool tokens) {
  std::vector<Bar> bars;
  int64_t second = 0;
  for (const ReportFacts::Slice& slice : facts.slices) {
    bars.push_back({.label = std::to_string(second) + " s",
                    .value = per_second(tokens ? slice.tokens : slice.rows, facts.step)});
    second += facts.step;
  }
  return bars;
}

void add_row(ReportFacts& facts, const Statement& row) {
  const bool answered = row.number(0) == 0;
  const auto tokens = static_cast<uint64_t>(row.number(4));
  (answered ? facts.answered : facts.failed) += 1;
  facts.prompt_tokens += static_cast<uint64_t>(row.number(3));
  facts.completion_tokens += tokens;
  facts.attempts += static_cast<uint64_t>(row.number(5));
  if (answered) {
    facts.milliseconds.add(static_cast<uint64_t>(row.number(2)));
    facts.lengths.add(tokens);
  } else {
    const std::string cause = row.text(6);
    const bool room = facts.failures.size() < kCausesMax || facts.failures.contains(cause);
    facts.failures[room ? cause : "other"] += 1;
  }
  const auto slice =
      static_cast<size_t>(std::clamp<int64_t>((row.number(1) - facts.began_at) / facts.step, 0,
                                              static_cast<int64_t>(facts.slices.size()) - 1));
  facts.slices[slice].rows += 1;
  facts.slices[slice].tokens += tokens;
}

}  // namespace

void SizeCounts::add(uint64_t number) {
  counts_[bucket_of(number)] += 1;
  total_ += 1;
}

uint64_t SizeCounts::quantile(double part) const {
  const double wanted = part * static_cast<double>(total_);
  uint64_t below = 0;
  for (size_t i = 0; i < kBuckets && total_ > 0; ++i) {
    below += counts_[i];
    if (static_cast<double>(below) >= wanted && counts_[i] > 0) {
      return first_of(i);
    }
  }
  return 0;
}

std::vector<SizeCounts::Bucket> SizeCounts::buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] > 0 || !buckets.empty()) {
      buckets.push_back({.first = first_of(i), .count = counts_[i]});
    }
  }
  while (!buckets.empty() && buckets.back().count == 0) {
    buckets.pop_back();
  }
  return buckets;
}

Result<ReportFacts> read_facts(Database& database) {
  ReportFacts facts;
  PDJOB_TRY(facts.began_at, database.number("SELECT coalesce(min(ended_at), 0) FROM answers"));
  PDJOB_TRY(const int64_t ended_at,
            database.number("SELECT coalesce(max(ended_at), 0) FROM answers"));
  facts.seconds = ended_at - facts.began_at;
  facts.step = facts.seconds / kSlicesMax + 1;
  facts.slices.resize(static_cast<size_t>(facts.seconds / facts.step) + 1);
  Statement rows = database.prepare(
      "SELECT kind, ended_at, milliseconds, prompt_tokens, completion_tokens, attempts, cause "
      "FROM answers");
  while (true) {
    PDJOB_TRY(const bool there, rows.step());
    if (!there) {
      return facts;
    }
    add_row(facts, rows);
  }
}

std::string report_markdown(const ReportFacts& facts) {
  std::string text = "# Batch report\n\n| | |\n|---|---|\n";
  for (const auto& [name, value] : summary(facts)) {
    text.append("| ").append(name).append(" | ").append(value).append(" |\n");
  }
  if (!facts.failures.empty()) {
    text += "\n## Failures\n\n| cause | rows |\n|---|---|\n";
    for (const auto& [cause, count] : facts.failures) {
      text.append("| ").append(cause).append(" | ");
      text.append(std::to_string(count)).append(" |\n");
    }
  }
  return text;
}

std::string report_html(const ReportFacts& facts) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Batch "
      "report</title>\n<style>\n"
      "body{font:16px/1.5 system-ui,sans-serif;max-width:720px;margin:2em auto;padding:0 1em;"
      "color:#222}\n"
      "table{border-collapse:collapse}td{padding:.2em 1.5em .2em 0;border-bottom:1px solid #ddd}\n"
      "svg{width:100%;margin-top:1.5em;font:11px system-ui,sans-serif;fill:#555}\n"
      "svg rect{fill:#3b6ea5}svg line{stroke:#ddd}svg .title{font-size:14px;fill:#222}\n"
      "</style></head><body>\n<h1>Batch report</h1>\n<table>\n";
  for (const auto& [name, value] : summary(facts)) {
    text.append("<tr><td>").append(name).append("</td><td>").append(value).append("</td></tr>\n");
  }
  text += "</table>\n";
  text += svg_bars("Throughput over time", "completion tokens/s", bars_over_time(facts, true));
  text += svg_bars("Throughput over time", "rows/s", bars_over_time(facts, false));
  text += svg_bars("Times of answers in milliseconds", "rows", bars_of(facts.milliseconds));
  text += svg_bars("Lengths of answers in tokens", "rows", bars_of(facts.lengths));
  std::vector<Bar> causes;
  for (const auto& [cause, count] : facts.failures) {
    causes.push_back({.label = cause, .value = static_cast<double>(count)});
  }
  if (!causes.empty()) {
    text += svg_bars("Failures by cause", "rows", causes);
  }
  return text + "</body></html>\n";
}

}  // namespace pdjob::batch
