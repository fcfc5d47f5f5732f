#include "router/worker_description.h"

#include <charconv>
#include <concepts>

#include "router/json_members.h"

namespace pdjob::router {
namespace {

// Calls `take(name, value)` for each member; false if `text` is no object.
bool for_members(std::string_view text, const auto& take) {
  const auto members = json_members(text);
  if (!members) {
    return false;
  }
  for (const JsonMember& member : *members) {
    take(std::string_view(member.name),
         text.substr(member.value_begin, member.value_end - member.value_begin));
  }
  return true;
}

void take_number(std::string_view value, std::unsigned_integral auto& number) {
  std::from_chars(value.data(), value.data() + value.size(), number);
}

net::WorkerLoad parse_load(std::string_view text) {
  net::WorkerLoad load;
  for_members(text, [&load](std::string_view name, std::string_view value) {
    if (name == "requests_running") {
      take_number(value, load.requests_running);
    } else if (name == "requests_queued") {
      take_number(value, load.requests_queued);
    } else if (name == "tokens_queued") {
      take_number(value, load.tokens_queued);
    } else if (name == "kv_rows_used") {
      take_number(value, load.kv_rows_used);
    } else if (name == "kv_rows_max") {
      take_number(value, load.kv_rows_max);
    }
  });
  return load;
}

net::Role parse_role(std::string_view value) {
  const std::string word = json_string(value).value_or("");
  if (word == "prefill") {
    return net::Role::kPrefill;
  }
  return word == "decode" ? net::Role::kDecode : net::Role::kBoth;
}

}  // namespace

Result<WorkerDescription> parse_worker_description(std::string_view body) {
  WorkerDescription described;
  const bool object =
      for_members(body, [&described](std::string_view name, std::string_view value) {
        if (name == "name") {
          described.entry.name = json_string(value).value_or("");
        } else if (name == "engine_id") {
          described.entry.engine_id = json_string(value).value_or("");
        } else if (name == "role") {
          described.entry.role = parse_role(value);
        } else if (name == "model") {
          described.entry.model = json_string(value).value_or("");
        } else if (name == "kv_address") {
          described.entry.kv_address = value.starts_with('{') ? value : "";
        } else if (name == "draining") {
          described.draining = value == "true";
        } else if (name == "load") {
          described.load = parse_load(value);
        }
      });
  if (!object || described.entry.name.empty()) {
    return Error{ErrorCode::kCorrupt, "not an object with a name"};
  }
  return described;
}

std::string first_model(std::string_view body) {
  std::string model;
  for_members(body, [&model](std::string_view name, std::string_view value) {
    if (name == "data") {
      for_members(json_first_element(value),
                  [&model](std::string_view field, std::string_view text) {
                    if (field == "id") {
                      model = json_string(text).value_or("");
                    }
                  });
    }
  });
  return model;
}

}  // namespace pdjob::router
