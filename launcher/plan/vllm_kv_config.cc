#include "launcher/plan/vllm_kv_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob::launcher {
namespace {

constexpr const char* kConnectorExtra = "kv_connector_extra_config";
constexpr std::string_view kNixl = "NixlConnector";

// NixlConnector gets these from pdjob, or does not read them.
constexpr auto kDerived = std::to_array<std::string_view>(
    {"kv_connector", "kv_role", "engine_id", "kv_ip", "kv_port", "kv_rank", "kv_parallel_size",
     "kv_buffer_size", kConnectorExtra});
// Members of the connector that the example file was written for.
constexpr auto kOfOthers =
    std::to_array<std::string_view>({"store_timeout", "proxy", "http_port", "node_name"});

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char left, unsigned char right) {
    return std::tolower(left) == std::tolower(right);
  });
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

struct KvConfig {
  std::string connector;            // As written.
  std::string role;                 // As written; empty: not.
  std::vector<std::string> own;     // Members that pdjob does not derive.
  std::vector<std::string> unread;  // Members that NixlConnector does not read.
};

// JSON is YAML, so the one reader reads it.
KvConfig parse(const std::string& json, const VllmKvEnd& end) {
  ConfigReader in = ConfigReader::parse("", json);
  KvConfig config{.connector = in.written("kv_connector"), .role = in.written("kv_role")};
  const std::string device = end.gpu ? "cuda" : "cpu";
  for (const std::string& key : in.written_keys()) {
    const bool derived = std::ranges::find(kDerived, key) != kDerived.end() ||
                         (key == "kv_buffer_device" && in.written(key) == device) ||
                         (key == "kv_load_failure_policy" && in.written(key) == "fail");
    if (!derived) {
      config.own.push_back(key);
    }
  }
  in.section(kConnectorExtra, {"Of the connector."}, [&](ConfigReader& extra) {
    for (const std::string& key : extra.written_keys()) {
      const bool of_others = std::ranges::find(kOfOthers, key) != kOfOthers.end();
      (of_others ? config.unread : config.own).push_back(key);
    }
  });
  return config;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

std::string with_words(std::string_view text) {
  std::string filled(text);
  replace_all(filled, "{PORT}", "{port}");
  replace_all(filled, "{KV_IP}", "{host}");
  replace_all(filled, "{NODE_NAME}", "{name}");
  return filled;
}

VllmKvConfig vllm_kv_config(const VllmKvEnd& end, const std::string& json) {
  if (!json.starts_with('{')) {
    return {.error = "must be JSON text that begins with {"};
  }
  const KvConfig config = parse(json, end);
  if (config.connector.empty()) {
    return {.error = "has no kv_connector, or is no JSON"};
  }
  if (!same_word(config.connector, kNixl)) {
    return {.passed = json,
            .warnings = {config.connector +
                         " is passed on as it stands; pdjob hands KV over as NixlConnector does, "
                         "and the job gets ready only if this connector does so, too"}};
  }
  VllmKvConfig result;
  const std::string role = end.role == "prefill" ? "kv_producer" : "kv_consumer";
  if (!config.role.empty() && config.role != role && config.role != "kv_both") {
    result.warnings.push_back("kv_role is " + config.role + " for " + end.role + ", where " + role +
                              " belongs" + (config.own.empty() ? ": pdjob writes that" : ""));
  }
  if (!config.unread.empty()) {
    result.warnings.push_back("NixlConnector does not read " + joined(config.unread));
  }
  if (!config.own.empty()) {
    result.warnings.push_back("is passed on as it stands, because pdjob does not derive " +
                              joined(config.own) +
                              "; its role, engine id and lease are yours, too");
    result.passed = json;
    replace_all(result.passed, '"' + config.connector + '"', '"' + std::string(kNixl) + '"');
  }
  return result;
}

}  // namespace pdjob::launcher
