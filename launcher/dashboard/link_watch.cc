#include "launcher/dashboard/link_watch.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "common/crypto/job_keys.h"
#include "common/json/json_writer.h"
#include "common/limits.h"
#include "openai/json/json_edit.h"

namespace pdjob::launcher {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(900);
constexpr Duration kTimeout = std::chrono::seconds(2);
constexpr size_t kAskingMax = 32;
constexpr size_t kAnswerBytesMax = 512 * limits::kKiB;
constexpr size_t kLinksMax = 1024;  // Of one worker.
constexpr size_t kWordBytesMax = 128;

double number_of(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The sum of an object's numbers.
double sum_of(std::string_view object) {
  double sum = 0;
  const auto members = openai::json_members(std::string(object));
  if (members) {
    for (const openai::JsonMember& member : *members) {
      sum += number_of(member.value);
    }
  }
  return sum;
}

bool append_link(JsonWriter& json, const std::string& link) {
  static constexpr std::string_view kWords[] = {"peer", "transport", "direction", "state"};
  static constexpr std::string_view kNumbers[] = {"transfers", "bytes", "transfers_alive",
                                                  "leases"};
  static constexpr std::string_view kAll[] = {"peer",      "transport", "direction",       "state",
                                              "transfers", "bytes",     "transfers_alive", "leases",
                                              "failures"};
  const auto object = openai::JsonObject::scan(link, kAll);
  if (!object) {
    return false;
  }
  json.begin_object();
  for (const std::string_view name : kWords) {
    json.key(name).string(
        openai::json_string(object->value(name)).value_or("").substr(0, kWordBytesMax));
  }
  for (const std::string_view name : kNumbers) {
    json.key(name).number(number_of(object->value(name)));
  }
  json.key("failures").number(sum_of(object->value("failures")));
  json.end_object();
  return true;
}

}  // namespace

std::string links_of_answer(const std::string& body) {
  static constexpr std::string_view kLinks[] = {"links"};
  const auto object = openai::JsonObject::scan(body, kLinks);
  if (!object || !object->value("links").starts_with('[')) {
    return "";
  }
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  size_t count = 0;
  for (const std::string& link : openai::json_array_items(object->value("links"))) {
    if (!append_link(json, link) || ++count == kLinksMax) {
      break;
    }
  }
  json.end_array();
  return text;
}

LinkWatch::LinkWatch(net::Loop& loop, std::function<std::vector<WatchedWorker>()> workers)
    : loop_(loop), workers_(std::move(workers)), client_(net::HttpClient::create(loop)) {}

std::string LinkWatch::look() {
  const std::vector<WatchedWorker> workers = workers_();
  if (asking_ == 0 && to_ask_.empty() &&
      (asked_ == Instant{} || loop_.now() - asked_ >= kInterval)) {
    asked_ = loop_.now();
    std::set<std::string> alive;
    for (const WatchedWorker& worker : workers) {
      alive.insert(worker.engine_id);
    }
    std::erase_if(links_, [&](const auto& entry) { return !alive.contains(entry.first); });
    to_ask_.assign(workers.begin(), workers.end());
    while (asking_ < kAskingMax && !to_ask_.empty()) {
      ask_next();
    }
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("workers").begin_array();
  for (const WatchedWorker& worker : workers) {
    if (const auto found = links_.find(worker.engine_id); found != links_.end()) {
      json.begin_object();
      json.key("name").string(worker.name);
      json.key("engine_id").string(worker.engine_id);
      json.key("links").raw(found->second);
      json.end_object();
    }
  }
  json.end_array().end_object();
  return text;
}

void LinkWatch::ask_next() {
  const WatchedWorker worker = std::move(to_ask_.front());
  to_ask_.pop_front();
  ++asking_;
  const std::string key_line = authorization_line(worker.key);
  net::HttpCall call;
  call.to = worker.address;
  call.header_lines = key_line;
  call.method = "GET";
  call.target = "/pdjob/links";
  call.connect_timeout = call.head_timeout = call.idle_timeout = kTimeout;
  net::fetch(loop_, *client_, call, kAnswerBytesMax,
             [this, engine_id = worker.engine_id](const Result<net::HttpReply>& reply) {
               --asking_;
               std::string links =
                   reply && reply->status == 200 ? links_of_answer(reply->body) : "";
               if (links.empty()) {
                 links_.erase(engine_id);
               } else {
                 links_[engine_id] = std::move(links);
               }
               if (!to_ask_.empty()) {
                 ask_next();
               }
             });
}

}  // namespace pdjob::launcher
