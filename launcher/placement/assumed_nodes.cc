#include "launcher/placement/assumed_nodes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "common/config/config_reader.h"
#include "common/config/config_text.h"
#include "common/parse_number.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kGpusOfNodeMax = 1024;

// "64GiB", "512GB", "1048576": a number of bytes, with or without a unit.
std::optional<uint64_t> parse_memory(std::string_view text) {
  constexpr auto kUnits =
      std::to_array<std::pair<std::string_view, uint64_t>>({{"KiB", uint64_t{1} << 10},
                                                            {"MiB", uint64_t{1} << 20},
                                                            {"GiB", uint64_t{1} << 30},
                                                            {"TiB", uint64_t{1} << 40},
                                                            {"kB", 1'000},
                                                            {"MB", 1'000'000},
                                                            {"GB", 1'000'000'000},
                                                            {"TB", 1'000'000'000'000},
                                                            {"", 1}});
  constexpr uint64_t kNumberMax = 1'000'000;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_number<uint64_t>(text.substr(0, digits));
  text.remove_prefix(digits);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto* const unit =
      std::ranges::find(kUnits, text, &std::pair<std::string_view, uint64_t>::first);
  if (!number || *number == 0 || unit == kUnits.end() ||
      (unit->second > 1 && *number > kNumberMax)) {
    return std::nullopt;
  }
  return *number * unit->second;
}

struct Written {
  Node node;
  uint32_t gpus = 0;
  uint32_t count = 1;
};

void read_node(ConfigReader& in, Written& written) {
  Node& node = written.node;
  std::string memory;
  in.field("cores", node.cores, {.doc = "Cores that it offers."}, {1, 65536});
  in.field("memory", memory, {.doc = "Memory that it offers, such as 64GiB."});
  in.field("gpus", written.gpus, {.doc = "How many GPUs it has."}, {0, kGpusOfNodeMax});
  in.field("cluster", node.cluster, {.doc = "Which of the job's clusters it is in."});
  in.field("host", node.host, {.doc = "Its address."});
  in.field("count", written.count, {.doc = "How many such nodes there are: NAME-0, NAME-1, ..."},
           {1, kAssumedNodesMax});
  in.section("labels", {.doc = "What groups may ask for."}, [&](ConfigReader& section) {
    for (const std::string& name : section.written_keys()) {
      section.field(name, node.labels[name], {.doc = "A label."});
    }
  });
  if (node.cores == 0) {
    in.fail("cores", "is missing: how many cores does it offer?");
  }
  const auto bytes = parse_memory(memory);
  if (memory.empty()) {
    in.fail("memory", "is missing: how much does it offer, such as 64GiB?");
  } else if (!bytes) {
    in.fail("memory",
            "must be a number of bytes, or one with KiB, MiB, GiB, TiB, kB, MB, GB or "
            "TB, got " +
                quote(memory));
  }
  node.memory_bytes = bytes.value_or(0);
}

void add(const Written& written, std::vector<Node>& nodes) {
  for (uint32_t i = 0; i < written.count; ++i) {
    Node node = written.node;
    node.name += written.count > 1 ? "-" + std::to_string(i) : "";
    node.host = node.host.empty() ? node.name : node.host;
    for (uint32_t gpu = 0; gpu < written.gpus; ++gpu) {
      node.gpus.push_back(std::to_string(gpu));
    }
    nodes.push_back(std::move(node));
  }
}

}  // namespace

Result<std::vector<Node>> parse_assumed_nodes(const std::string& source, const std::string& text) {
  std::vector<Node> nodes;
  ConfigReader in = ConfigReader::parse(source, text);
  in.named_sections("nodes", {.doc = "The machines, by name."},
                    [&](const std::string& name, ConfigReader& section) {
                      Written written{.node = {.name = name, .cluster = ""}};
                      read_node(section, written);
                      if (nodes.size() + written.count > kAssumedNodesMax) {
                        section.fail("", "is one node too many: at most " +
                                             std::to_string(kAssumedNodesMax) + " are allowed");
                        return;
                      }
                      add(written, nodes);
                    });
  if (nodes.empty()) {
    in.fail("nodes", "is missing: name at least one node");
  }
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return nodes;
}

std::string assumed_nodes_text(const std::vector<Node>& nodes) {
  std::string text = "nodes:\n";
  for (const Node& node : nodes) {
    if (node.routers_only) {
      continue;
    }
    text += "  " + double_quoted(node.name) + ":\n    cores: " + std::to_string(node.cores) +
            "\n    memory: " + std::to_string(node.memory_bytes) +
            "\n    gpus: " + std::to_string(node.gpus.size()) +
            "\n    cluster: " + yaml_text(node.cluster) + "\n    host: " + yaml_text(node.host) +
            "\n";
    text += node.labels.empty() ? "" : "    labels:\n";
    for (const auto& [key, value] : node.labels) {
      text += "      " + double_quoted(key) + ": " + double_quoted(value) + "\n";
    }
  }
  return text;
}

}  // namespace pdjob::launcher
