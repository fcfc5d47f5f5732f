#include "launcher/look/links.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "common/json/json_writer.h"
#include "launcher/look/status_page.h"
#include "launcher/view/table.h"
#include "openai/json/json_edit.h"

namespace pdjob::launcher {
namespace {

using openai::JsonObject;
struct End {
  std::string name;
  std::string node;
};
using Ends = std::map<std::string, End>;  // By engine id.

std::string field_text(const JsonObject& object, std::string_view name) {
  return openai::json_string(object.value(name)).value_or("");
}

double number_of(const JsonObject& object, std::string_view name) {
  const std::string_view text = object.value(name);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string count_text(double value) { return std::to_string(static_cast<uint64_t>(value)); }

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) {
    bytes /= 1000;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}

std::string rate_text(double gb_per_second) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", gb_per_second);
  return gb_per_second > 0 ? text : "-";
}

// "3" or "3 (2 link, 1 digest)"
std::string causes_text(std::string_view object) {
  static constexpr std::string_view kCauses[] = {
      "cancelled", "peer", "link",    "timeout", "stalled", "digest", "broken_promise",
      "local",     "push", "arrival", "payload", "silence", "cancel"};
  const std::string text(object);
  const auto causes = JsonObject::scan(text, kCauses);
  if (!causes) {
    return "-";
  }
  double total = 0;
  std::string named;
  for (const std::string_view cause : kCauses) {
    if (const double count = number_of(*causes, cause); count > 0) {
      total += count;
      named.append(named.empty() ? "" : ", ").append(count_text(count)).append(" ").append(cause);
    }
  }
  return count_text(total) + (named.empty() ? "" : " (" + named + ")");
}

constexpr std::ptrdiff_t kNodesColumn = 1;
constexpr const char* kNoLinks =
    "no KV links: they are made when a decode worker first fetches from a prefill worker\n";

// One end of a link.
struct LinkRow {
  std::vector<std::string> cells;
  bool sends = false;

  bool operator<(const LinkRow& other) const { return cells < other.cells; }
};

struct LinkRows {
  std::vector<LinkRow> rows;  // Sorted.
  std::string notes;          // A line for each worker that did not answer.
  size_t nodes = 0;
};

LinkRow row_of(const std::string& link, const End& worker, const Ends& ends) {
  static constexpr std::string_view kNames[] = {
      "peer",    "transport", "direction", "state",         "epoch",           "links_opened",
      "bytes",   "transfers", "leases",    "gb_per_second", "transfers_alive", "failures",
      "suspect", "stalls",    "encrypted"};
  const auto object = JsonObject::scan(link, kNames);
  if (!object) {
    return {};
  }
  const std::string engine = field_text(*object, "peer");
  const auto known = ends.find(engine);
  const End peer = known == ends.end() ? End{.name = engine, .node = "?"} : known->second;
  const bool sends = field_text(*object, "direction") == "sends";
  const double opened = number_of(*object, "links_opened");
  const End& from = sends ? worker : peer;
  const End& to = sends ? peer : worker;
  return {
      {from.name + " > " + to.name, from.node + " > " + to.node, worker.name,
       field_text(*object, "transport") + (object->value("encrypted") == "true" ? ", tls" : ""),
       field_text(*object, "state") + (object->value("suspect") == "true" ? ", suspect" : ""),
       count_text(number_of(*object, "epoch")), count_text(std::max(opened - 1, 0.0)),
       count_text(number_of(*object, "transfers")), bytes_text(number_of(*object, "bytes")),
       rate_text(number_of(*object, "gb_per_second")),
       count_text(number_of(*object, "transfers_alive")), count_text(number_of(*object, "leases")),
       causes_text(object->value("failures")), causes_text(object->value("stalls"))},
      sends};
}

LinkRows rows_of(const std::vector<LinksAnswer>& answers) {
  LinkRows links;
  Ends ends;
  std::set<std::string> nodes;
  for (const LinksAnswer& answer : answers) {
    ends[answer.worker.engine_id] = {answer.worker.name, answer.worker.node};
    nodes.insert(answer.worker.node);
  }
  for (const LinksAnswer& answer : answers) {
    if (!answer.body) {
      links.notes += answer.worker.name + ": " + answer.body.error().message + "\n";
      continue;
    }
    static constexpr std::string_view kLinks[] = {"links"};
    const auto object = JsonObject::scan(*answer.body, kLinks);
    for (const std::string& link :
         object ? openai::json_array_items(object->value("links")) : std::vector<std::string>()) {
      if (LinkRow row = row_of(link, ends.at(answer.worker.engine_id), ends); !row.cells.empty()) {
        links.rows.push_back(std::move(row));
      }
    }
  }
  std::ranges::sort(links.rows, std::less<>());
  links.nodes = nodes.size();
  return links;
}

}  // namespace

Result<std::vector<LinkedWorker>> linked_workers(const std::string& status_json) {
  PDJOB_TRY(const StatusPage status, read_status(status_json));
  std::vector<LinkedWorker> workers;
  for (const ProcessLine& process : status.processes) {
    if (process.is_worker()) {
      workers.push_back({.name = process.name,
                         .engine_id = process.engine_id,
                         .url = process.url,
                         .serving = process.serving(),
                         .node = process.node});
    }
  }
  return workers;
}

std::string links_text(const std::vector<LinksAnswer>& answers) {
  LinkRows links = rows_of(answers);
  if (links.rows.empty()) {
    return links.notes + kNoLinks;
  }
  std::vector<std::vector<std::string>> table = {{"PAIR", "NODES", "SEEN BY", "VIA", "STATE",
                                                  "EPOCH", "RETRIES", "TRANSFERS", "BYTES", "GB/S",
                                                  "ALIVE", "LEASES", "FAILED", "STALLS"}};
  for (LinkRow& link : links.rows) {
    table.push_back(std::move(link.cells));
  }
  for (std::vector<std::string>& row : table) {
    if (links.nodes == 1) {
      row.erase(row.begin() + kNodesColumn);  // All are on one machine.
    }
  }
  return format_table(table) + links.notes;
}

std::string links_brief(const std::vector<LinksAnswer>& answers, size_t pairs_max) {
  // Pair, via, state, bytes, GB/s, alive, failed, stalls: as above.
  static constexpr size_t kColumns[] = {0, 3, 4, 8, 9, 10, 12, 13};
  const LinkRows links = rows_of(answers);
  std::vector<std::vector<std::string>> table = {
      {"KV LINK", "VIA", "STATE", "BYTES", "GB/S", "ALIVE", "FAILED", "STALLS"}};
  size_t pairs = 0;
  for (const LinkRow& link : links.rows) {
    if (link.sends || ++pairs > pairs_max) {
      continue;
    }
    std::vector<std::string>& row = table.emplace_back();
    for (const size_t column : kColumns) {
      row.push_back(link.cells[column]);
    }
  }
  const std::string more = pairs > pairs_max ? "and " + std::to_string(pairs - pairs_max) +
                                                   " more: pdjob links shows them\n"
                                             : "";
  return (pairs == 0 ? kNoLinks : format_table(table)) + more + links.notes;
}

std::string links_json(const std::string& job, const std::vector<LinksAnswer>& answers) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("job").string(job);
  json.key("workers").begin_array();
  for (const LinksAnswer& answer : answers) {
    if (answer.body) {
      json.raw(*answer.body);
    } else {
      json.begin_object();
      json.key("name").string(answer.worker.name);
      json.key("engine_id").string(answer.worker.engine_id);
      json.key("error").string(answer.body.error().message);
      json.end_object();
    }
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
