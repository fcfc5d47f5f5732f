#include "launcher/dashboard/process_watch.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
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
constexpr size_t kLinksMax = 1024;    // Of one worker.
constexpr size_t kRequestsMax = 128;  // Of one router.
constexpr size_t kWordBytesMax = 128;

double number_of(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The sum of an object's numbers.
double sum_of(std::string_view object) {
  double sum = 0;
  const std::string text(object);
  const auto members = openai::json_members(text);
  if (members) {
    for (const openai::JsonMember& member : *members) {
      sum += number_of(member.value);
    }
  }
  return sum;
}

std::string word_of(const openai::JsonObject& object, std::string_view name) {
  return openai::json_string(object.value(name)).value_or("").substr(0, kWordBytesMax);
}

using Names = std::span<const std::string_view>;

void append_known(JsonWriter& json, const openai::JsonObject& object, Names words, Names numbers) {
  for (const std::string_view name : words) {
    json.key(name).string(word_of(object, name));
  }
  for (const std::string_view name : numbers) {
    json.key(name).number(number_of(object.value(name)));
  }
}

bool append_link(JsonWriter& json, const std::string& link) {
  static constexpr std::string_view kNames[] = {
      "peer",      "transport", "direction",       "state",   // Words.
      "transfers", "bytes",     "transfers_alive", "leases",  // Numbers.
      "failures"};
  const auto object = openai::JsonObject::scan(link, kNames);
  if (!object) {
    return false;
  }
  json.begin_object();
  append_known(json, *object, Names(kNames).first(4), Names(kNames).subspan(4, 4));
  json.key("failures").number(sum_of(object->value("failures")));
  json.end_object();
  return true;
}

bool append_request(JsonWriter& json, const std::string& request) {
  static constexpr std::string_view kNames[] = {
      // Words.
      "request_id", "tenant", "prefill", "decode", "outcome",
      // Numbers.
      "number", "attempts", "status", "ended_at", "queue_us", "kv_us", "prefill_us", "decode_us",
      // A flag.
      "stream"};
  const auto object = openai::JsonObject::scan(request, kNames);
  if (!object) {
    return false;
  }
  json.begin_object();
  append_known(json, *object, Names(kNames).first(5), Names(kNames).subspan(5, 8));
  json.key("stream").boolean(object->value("stream") == "true");
  json.end_object();
  return true;
}

// The items of a list, written anew. Empty: there is no such list.
std::string items_of_answer(const std::string& body, std::string_view name, size_t items_max,
                            bool (*append)(JsonWriter&, const std::string&)) {
  const std::string_view names[] = {name};
  const auto object = openai::JsonObject::scan(body, names);
  if (!object || !object->value(name).starts_with('[')) {
    return "";
  }
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  size_t count = 0;
  for (const std::string& item : openai::json_array_items(object->value(name))) {
    if (!append(json, item) || ++count == items_max) {
      break;
    }
  }
  json.end_array();
  return text;
}

}  // namespace

std::string links_of_answer(const std::string& body) {
  return items_of_answer(body, "links", kLinksMax, append_link);
}

std::string requests_of_answer(const std::string& body) {
  return items_of_answer(body, "requests", kRequestsMax, append_request);
}

ProcessWatch::ProcessWatch(net::Loop& loop, const WatchedPage& page,
                           std::function<std::vector<WatchedProcess>()> processes)
    : loop_(loop),
      page_(page),
      processes_(std::move(processes)),
      client_(net::HttpClient::create(loop)) {}

std::string ProcessWatch::look() {
  const std::vector<WatchedProcess> processes = processes_();
  if (asking_ == 0 && to_ask_.empty() &&
      (asked_ == Instant{} || loop_.now() - asked_ >= kInterval)) {
    asked_ = loop_.now();
    std::set<std::string> alive;
    for (const WatchedProcess& process : processes) {
      alive.insert(process.engine_id);
    }
    std::erase_if(answers_, [&](const auto& entry) { return !alive.contains(entry.first); });
    to_ask_.assign(processes.begin(), processes.end());
    while (asking_ < kAskingMax && !to_ask_.empty()) {
      ask_next();
    }
  }
  std::string text;
  JsonWriter json(text);
  json.begin_object().key(page_.processes).begin_array();
  for (const WatchedProcess& process : processes) {
    if (const auto found = answers_.find(process.engine_id); found != answers_.end()) {
      json.begin_object();
      json.key("name").string(process.name);
      json.key("engine_id").string(process.engine_id);
      json.key(page_.items).raw(found->second);
      json.end_object();
    }
  }
  json.end_array().end_object();
  return text;
}

void ProcessWatch::ask_next() {
  const WatchedProcess process = std::move(to_ask_.front());
  to_ask_.pop_front();
  ++asking_;
  const std::string key_line = authorization_line(process.key);
  net::HttpCall call;
  call.to = process.address;
  call.header_lines = key_line;
  call.method = "GET";
  call.target = page_.target;
  call.connect_timeout = call.head_timeout = call.idle_timeout = kTimeout;
  net::fetch(loop_, *client_, call, kAnswerBytesMax,
             [this, engine_id = process.engine_id](const Result<net::HttpReply>& reply) {
               --asking_;
               std::string answer = reply && reply->status == 200 ? page_.read(reply->body) : "";
               if (answer.empty()) {
                 answers_.erase(engine_id);
               } else {
                 answers_[engine_id] = std::move(answer);
               }
               if (!to_ask_.empty()) {
                 ask_next();
               }
             });
}

}  // namespace pdjob::launcher
