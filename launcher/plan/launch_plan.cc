#include "launcher/plan/launch_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/json/json_writer.h"
#include "launcher/placement/placement.h"
#include "launcher/plan/foreign_plan.h"
#include "launcher/plan/gpu_shares.h"
#include "launcher/view/table.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {

// Overcommitment is allowed, with a warning: it is slow, not wrong.
class Placer {
 public:
  Placer(const JobConfig& config, const std::vector<Node>& nodes)
      : config_(config), nodes_(nodes), placement_(nodes) {}

  void place(LaunchPlan& plan, PlanRow row) {
    const Demand demand{.cores = row.cores, .gpus = gpus_wanted(config_, row)};
    auto choice = placement_.take(demand);
    choice = choice ? choice : placement_.take({.cores = row.cores});  // check_gpus() tells of it.
    PDJOB_CHECK(choice.has_value());
    row.node = choice->place.node;
    row.gpus = choice->place.gpus;
    row.host = std::ranges::find(nodes_, row.node, &Node::name)->host;
    plan.rows.push_back(std::move(row));
  }

 private:
  const JobConfig& config_;
  const std::vector<Node>& nodes_;
  Placement placement_;
};

// docs/explanation/determinism.md explains these rules.
ModelPlan judge_invariance(const ModelConfig& model) {
  ModelPlan plan{.name = model.served_name};
  const engine::EngineConfig& decode = model.decode_engine;
  const auto computes_on_gpu = [](const engine::EngineConfig& engine) {
    return engine.gpu || engine.gpu_layers > 0;
  };
  if (decode.kind == engine::EngineKind::kFake) {
    plan.invariant = true;
    plan.invariant_because = "the fake engine computes each sequence alone";
  } else if (decode.kind == engine::EngineKind::kForeign) {
    plan.invariant_because = "an engine of another make computes";
  } else if (computes_on_gpu(decode) || computes_on_gpu(model.prefill_engine)) {
    plan.invariant_because = "a GPU computes, which has not been measured";
  } else if (decode.kv_type == engine::KvType::kQ8_0) {
    plan.invariant = true;
    plan.invariant_because = "q8_0 KV";
  } else {
    plan.invariant_because = "f16 KV; q8_0 KV would be";
  }
  return plan;
}

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// Workers map the model's file, so each node holds a file only once.
Status check_memory(const JobConfig& config, const std::vector<Node>& nodes,
                    const std::vector<uint64_t>& model_bytes) {
  PDJOB_CHECK(model_bytes.size() == config.models.size());
  uint64_t largest = 0;
  uint64_t memory = 0;
  for (const Node& node : nodes) {
    largest = std::max(largest, node.memory_bytes);
    memory += node.memory_bytes;
  }
  const bool several = config.models.size() > 1;
  std::map<std::string, uint64_t> files;
  for (size_t i = 0; i < config.models.size(); ++i) {
    const ModelConfig& model = config.models[i];
    if (model_bytes[i] > largest) {
      return Error{ErrorCode::kUnavailable,
                   "the model " + (several ? model.served_name + " " : "") + "has " +
                       mebibytes(model_bytes[i]) + ", more than the memory of any node"};
    }
    files[model.decode_engine.model_path] = model_bytes[i];
  }
  uint64_t together = 0;
  for (const auto& [path, bytes] : files) {
    together += bytes;
  }
  if (together > memory) {
    return Error{ErrorCode::kUnavailable,
                 "the models have " + mebibytes(together) + ", more than the memory of all nodes"};
  }
  return ok();
}

// "prefill-0", or "small-prefill-0" if the model has the name "small" in `models`.
std::string worker_name(const ModelConfig& model, const char* role, uint32_t number) {
  return (model.name.empty() ? "" : model.name + "-") + role + "-" + std::to_string(number);
}

void place_workers(const ModelConfig& model, Placer& placer, LaunchPlan& plan) {
  for (uint32_t i = 0; i < model.prefill_workers; ++i) {
    placer.place(plan, {.name = worker_name(model, "prefill", i),
                        .role = net::Role::kPrefill,
                        .model = model.served_name,
                        .cores = model.prefill_engine.threads});
  }
  for (uint32_t i = 0; i < model.decode_workers; ++i) {
    placer.place(plan, {.name = worker_name(model, "decode", i),
                        .role = model.disaggregated() ? net::Role::kDecode : net::Role::kBoth,
                        .model = model.served_name,
                        .cores = model.decode_engine.threads});
  }
}

std::string title_of(const LaunchPlan& plan) {
  std::string text = "job " + plan.job + (plan.several_models() ? ", models" : ", model");
  for (const ModelPlan& model : plan.models) {
    text += (&model == &plan.models.front() ? " " : ", ") + model.name;
  }
  return text + "\n";
}

void append_invariance(JsonWriter& json, const ModelPlan& model) {
  json.key("invariant").boolean(model.invariant);
  json.key("invariant_because").string(model.invariant_because);
}

}  // namespace

std::string address_text(const PlanRow& row) {
  return row.host + ":" + (row.port == 0 ? "any" : std::to_string(row.port));
}

Result<LaunchPlan> make_plan(const JobConfig& config, const std::vector<Node>& nodes,
                             const std::vector<uint64_t>& model_bytes) {
  PDJOB_TRY_STATUS(check_memory(config, nodes, model_bytes));
  PDJOB_TRY(const net::HttpAddress front, net::parse_http_address(config.router.listen));
  LaunchPlan plan{.job = config.name};
  for (uint32_t i = 0; i < config.router.replicas; ++i) {
    plan.rows.push_back({.name = "router-" + std::to_string(i),
                         .role = net::Role::kRouter,
                         .node = nodes.front().name,
                         .host = front.host,
                         .port = front.port});
  }

  Placer placer(config, nodes);
  for (const ModelConfig& model : config.models) {
    place_workers(model, placer, plan);
    plan.models.push_back(judge_invariance(model));
  }
  for (const Node& node : nodes) {
    uint32_t used = 0;
    for (const PlanRow& row : plan.rows) {
      used += row.node == node.name ? row.cores : 0;
    }
    if (used > node.cores) {
      plan.warnings.push_back("node " + node.name + " has " + std::to_string(node.cores) +
                              " cores for " + std::to_string(used) +
                              " engine threads: expect them to slow each other");
    }
  }
  PDJOB_TRY_STATUS(check_gpus(config, nodes, plan));
  plan_foreign_engines(config, plan);
  if (config.router.kv_events.port > 0) {
    plan.warnings.emplace_back(
        "router.kv_events.port is for engines that a router is given by address; the workers of a "
        "job tell what they keep without it");
  }
  return plan;
}

std::string LaunchPlan::to_text() const {
  const bool gpus = std::ranges::any_of(rows, [](const PlanRow& row) { return !row.gpus.empty(); });
  std::vector<std::vector<std::string>> table = {{"NAME", "ROLE", "NODE", "CORES", "ADDRESS"}};
  for (const PlanRow& row : rows) {
    table.push_back({row.name, to_string(row.role), row.node,
                     row.cores == 0 ? "-" : std::to_string(row.cores), address_text(row)});
  }
  for (size_t i = 0; gpus && i < table.size(); ++i) {
    const std::string gpu = i == 0                     ? "GPU"
                            : rows[i - 1].gpus.empty() ? "-"
                                                       : gpus_text(rows[i - 1].gpus);
    table[i].insert(table[i].end() - 1, gpu);
  }
  for (size_t i = 0; several_models() && i < table.size(); ++i) {
    const std::string model = i == 0                      ? "MODEL"
                              : rows[i - 1].model.empty() ? "-"
                                                          : rows[i - 1].model;
    table[i].insert(table[i].begin() + 1, model);
  }
  std::string text = title_of(*this) + format_table(table);
  for (const PlanRow& row : rows) {
    text += row.command.empty() ? "" : row.name + " runs: " + row.command + "\n";
  }
  for (const ModelPlan& model : models) {
    text += (several_models() ? model.name + " is invariant: " : "invariant: ") +
            (model.invariant ? "yes" : "no") + " (" + model.invariant_because + ")\n";
  }
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

std::string LaunchPlan::to_json() const {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("job").string(job);
  if (several_models()) {
    json.key("models").begin_array();
    for (const ModelPlan& model : models) {
      json.begin_object();
      json.key("name").string(model.name);
      append_invariance(json, model);
      json.end_object();
    }
    json.end_array();
  } else {
    json.key("model").string(models.front().name);
    append_invariance(json, models.front());
  }
  json.key("processes").begin_array();
  for (const PlanRow& row : rows) {
    json.begin_object();
    json.key("name").string(row.name);
    json.key("role").string(to_string(row.role));
    if (several_models() && !row.model.empty()) {
      json.key("model").string(row.model);
    }
    json.key("node").string(row.node);
    json.key("cores").integer(row.cores);
    if (!row.gpus.empty()) {
      json.key("gpu").string(gpus_text(row.gpus));
    }
    json.key("host").string(row.host);
    json.key("port").integer(row.port);
    if (!row.command.empty()) {
      json.key("command").string(row.command);
    }
    json.end_object();
  }
  json.end_array();
  json.key("warnings").begin_array();
  for (const std::string& warning : warnings) {
    json.string(warning);
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
