#include "launcher/ray/shim_line.h"

#include <algorithm>
#include <utility>

#include "common/json/json_fields.h"
#include "common/json/json_writer.h"

namespace pdjob::launcher {
namespace {

void write_share(JsonWriter& json, const RayShare& share) {
  json.key("cpus").integer(share.cpus).key("gpus").integer(share.gpus);
  json.key("memory").integer(share.memory_bytes);
}

// Ray's shim counts in seconds.
void write_seconds(JsonWriter& json, const char* key, Duration duration) {
  json.key(key).number(seconds(duration));
}

class RequestWriter {
 public:
  explicit RequestWriter(JsonWriter& json) : json_(json) {}

  void operator()(const OpenHome& request) {
    text("op", "open").text("name", request.name).text("address", request.address);
    text("job", request.job);
    write_seconds(json_, "lease_s", request.lease);
    json_.key("reconnect_s").integer(static_cast<int64_t>(seconds(request.reconnect)));
  }
  void operator()(const JoinHome& request) {
    text("op", "join").text("slot", request.slot).text("submission", request.submission);
    text("cluster", request.cluster).text("dashboard", request.dashboard);
    text("python", request.python).text("token_file", request.token_file);
    text("home_token_file", request.home_token_file);
    write_share(json_, request.share);
  }
  void operator()(const LeaveHome& request) {
    text("op", "leave").text("submission", request.submission);
    text("dashboard", request.dashboard).text("token_file", request.token_file);
  }
  void operator()(const Reserve& request) {
    text("op", "reserve").text("name", request.name);
    write_seconds(json_, "timeout_s", request.timeout);
    json_.key("bundles").begin_array();
    for (const RayBundle& bundle : request.bundles) {
      json_.begin_object();
      text("slot", bundle.slot);
      json_.key("guest").boolean(bundle.guest);
      write_share(json_, bundle.share);
      json_.end_object();
    }
    json_.end_array();
  }
  void operator()(const Release& request) { text("op", "release").text("name", request.name); }
  void operator()(const StartAgent& request) {
    text("op", "start_agent").text("slot", request.slot);
    text("reservation", request.reservation);
    json_.key("bundle").integer(request.bundle);
    text("program", request.program).text("secret", request.secret).text("log", request.log);
    json_.key("ship").boolean(request.ship);
    json_.key("arguments").begin_array();
    for (const std::string& argument : request.arguments) {
      json_.string(argument);
    }
    json_.end_array();
  }
  void operator()(const CloseHome& /*request*/) { text("op", "close"); }

 private:
  RequestWriter& text(const char* key, const std::string& value) {
    json_.key(key).string(value);
    return *this;
  }

  JsonWriter& json_;
};

// Reads the fields of one line. The first fault is kept.
class LineReader {
 public:
  explicit LineReader(const std::string& line) : fields_("the shim's line", line) {}

  LineReader& text(const char* key, std::string& value) {
    fields_.take(key, value);
    return *this;
  }
  LineReader& flag(const char* key, bool& value) {
    int number = 0;
    fields_.take(key, number);
    if (number != 0 && number != 1) {
      fault_ = std::string(key) + " is neither 0 nor 1";
    }
    value = number == 1;
    return *this;
  }
  LineReader& id(uint64_t& value) {
    int64_t number = 1;
    fields_.take("id", number);
    if (number < 1) {
      fault_ = "id is no number of a request";
    }
    value = static_cast<uint64_t>(number);
    return *this;
  }
  LineReader& number(const char* key, int& value) {
    fields_.take(key, value);
    return *this;
  }
  LineReader& names(const char* key, std::vector<std::string>& value) {
    std::string list;
    fields_.take(key, list);
    value = split_names(list);
    if (value.size() > kShimNodesMax) {
      fault_ = std::string(key) + " has too many names";
    }
    return *this;
  }

  template <class Line>
  Result<ShimLine> result(Line line) const {
    const Status read = fields_.status();
    if (!read || !fault_.empty()) {
      return Error{ErrorCode::kCorrupt, read ? "the shim's line: " + fault_ : read.error().message};
    }
    return ShimLine(std::move(line));
  }

 private:
  JsonFields fields_;
  std::string fault_;
};

Result<ShimLine> decode_reply(const std::string& type, LineReader& in) {
  if (type == "done") {
    ShimDone line;
    in.id(line.id).text("text", line.text);
    return in.result(std::move(line));
  }
  ShimRefused line;
  in.id(line.id).text("kind", line.kind).text("text", line.text);
  return in.result(std::move(line));
}

Result<ShimLine> decode_reservation(LineReader& in) {
  ReservationSeen line;
  std::string state;
  in.text("name", line.name).text("state", state).names("nodes", line.nodes);
  line.removed = state == "removed";
  return in.result(std::move(line));
}

Result<ShimLine> decode_event(const std::string& type, LineReader& in) {
  if (type == "hello") {
    ShimHello line;
    in.number("protocol", line.protocol).text("ray", line.ray).text("python", line.python);
    return in.result(std::move(line));
  }
  if (type == "no_ray") {
    ShimHasNoRay line;
    in.text("text", line.text);
    return in.result(std::move(line));
  }
  if (type == "node") {
    RayNodeSeen line;
    in.text("node", line.node).flag("alive", line.alive).text("address", line.address);
    in.text("cluster", line.cluster).text("slot", line.slot).text("reason", line.reason);
    return in.result(std::move(line));
  }
  if (type == "guest_ended") {
    GuestEnded line;
    in.text("slot", line.slot).text("submission", line.submission);
    in.flag("refused", line.refused).text("reason", line.reason);
    return in.result(std::move(line));
  }
  if (type == "reservation") {
    return decode_reservation(in);
  }
  if (type == "home") {
    HomeSeen line;
    in.flag("reachable", line.reachable);
    return in.result(line);
  }
  return Error{ErrorCode::kCorrupt, "the shim's line: unknown type"};
}

}  // namespace

std::string encode_request(uint64_t id, const ShimRequest& request) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("id").integer(id);
  std::visit(RequestWriter(json), request);
  json.end_object();
  return text;
}

Result<ShimLine> decode_shim_line(std::string_view line) {
  if (line.size() > kShimLineBytesMax) {
    return Error{ErrorCode::kCorrupt, "the shim's line is too long"};
  }
  LineReader in{std::string(line)};
  std::string type;
  in.text("type", type);
  if (auto read = in.result(HomeSeen{}); !read) {
    return read;
  }
  return type == "done" || type == "refused" ? decode_reply(type, in) : decode_event(type, in);
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    names.emplace_back(text.substr(0, end));
    if (end == text.size()) {
      return names;
    }
    text.remove_prefix(end + 1);
    if (text.empty()) {
      names.emplace_back();
    }
  }
  return names;
}

}  // namespace pdjob::launcher
