#include "launcher/launch_plan.h"

#include <algorithm>
#include <utility>

#include "launcher/gpu_shares.h"
#include "launcher/table.h"
#include "net/http_client.h"
#include "net/json_writer.h"

namespace pdjob::launcher {

namespace {

struct NodeShare {
  const Node* node;
  uint32_t cores_used = 0;
};

// The node with the most free cores; the first of equals. Overcommitment is allowed and warned
// about: it is slow, not wrong.
NodeShare& roomiest(std::vector<NodeShare>& shares) {
  return *std::ranges::max_element(shares, {}, [](const NodeShare& share) {
    return static_cast<int64_t>(share.node->cores) - share.cores_used;
  });
}

void place(LaunchPlan& plan, std::vector<NodeShare>& shares, PlanRow row) {
  NodeShare& share = roomiest(shares);
  share.cores_used += row.cores;
  row.node = share.node->name;
  row.host = share.node->host;
  plan.rows.push_back(std::move(row));
}

// Facts behind it: docs/determinism.md.
void judge_invariance(const JobConfig& config, LaunchPlan& plan) {
  const engine::EngineConfig& decode = config.decode_engine;
  const auto computes_on_gpu = [](const engine::EngineConfig& engine) {
    return engine.gpu || engine.gpu_layers > 0;
  };
  if (decode.kind == engine::EngineKind::kFake) {
    plan.invariant = true;
    plan.invariant_because = "the fake engine computes each sequence alone";
  } else if (computes_on_gpu(decode) || computes_on_gpu(config.prefill_engine)) {
    plan.invariant_because = "a GPU computes, which has not been measured";
  } else if (decode.kv_type == engine::KvType::kQ8_0) {
    plan.invariant = true;
    plan.invariant_because = "q8_0 KV";
  } else if (decode.threads == 1 && config.prefill_engine.threads == 1 &&
             config.prefill.chunk_tokens >= 64) {
    plan.invariant = true;
    plan.invariant_because = "one thread per engine and chunks of 64 tokens or more";
  } else {
    plan.invariant_because =
        "f16 KV; choose q8_0 KV, or one thread per engine and chunks of 64 tokens or more";
  }
}

Status check_memory(const std::vector<Node>& nodes, uint64_t model_bytes) {
  const bool fits = std::ranges::any_of(
      nodes, [&](const Node& node) { return node.memory_bytes >= model_bytes; });
  if (!fits) {
    return Error{ErrorCode::kUnavailable, "the model has " + std::to_string(model_bytes >> 20) +
                                              " MiB, more than the memory of any node"};
  }
  return ok();
}

}  // namespace

std::string address_text(const PlanRow& row) {
  return row.host + ":" + (row.port == 0 ? "any" : std::to_string(row.port));
}

Result<LaunchPlan> make_plan(const JobConfig& config, const std::vector<Node>& nodes,
                             uint64_t model_bytes) {
  PDJOB_TRY_STATUS(check_memory(nodes, model_bytes));
  PDJOB_TRY(const net::HttpAddress front, net::parse_http_address(config.router.listen));
  LaunchPlan plan{.job = config.name, .model = config.served_name};
  for (uint32_t i = 0; i < config.router.replicas; ++i) {
    plan.rows.push_back({.name = "router-" + std::to_string(i),
                         .role = net::Role::kRouter,
                         .node = nodes.front().name,
                         .host = front.host,
                         .port = front.port});
  }

  std::vector<NodeShare> shares;
  for (const Node& node : nodes) {
    shares.push_back({.node = &node});
  }
  for (uint32_t i = 0; i < config.prefill_workers; ++i) {
    place(plan, shares,
          {.name = "prefill-" + std::to_string(i),
           .role = net::Role::kPrefill,
           .cores = config.prefill_engine.threads});
  }
  const net::Role decode_role = config.disaggregated() ? net::Role::kDecode : net::Role::kBoth;
  for (uint32_t i = 0; i < config.decode_workers; ++i) {
    place(plan, shares,
          {.name = "decode-" + std::to_string(i),
           .role = decode_role,
           .cores = config.decode_engine.threads});
  }
  for (const NodeShare& share : shares) {
    if (share.cores_used > share.node->cores) {
      plan.warnings.push_back(
          "node " + share.node->name + " has " + std::to_string(share.node->cores) + " cores for " +
          std::to_string(share.cores_used) + " engine threads: expect them to slow each other");
    }
  }
  PDJOB_TRY_STATUS(share_gpus(config, nodes, plan));
  judge_invariance(config, plan);
  return plan;
}

std::string LaunchPlan::to_text() const {
  const bool gpus = std::ranges::any_of(rows, [](const PlanRow& row) { return !row.gpu.empty(); });
  std::vector<std::vector<std::string>> table = {{"NAME", "ROLE", "NODE", "CORES", "ADDRESS"}};
  for (const PlanRow& row : rows) {
    table.push_back({row.name, to_string(row.role), row.node,
                     row.cores == 0 ? "-" : std::to_string(row.cores), address_text(row)});
  }
  for (size_t i = 0; gpus && i < table.size(); ++i) {
    const std::string gpu = i == 0 ? "GPU" : rows[i - 1].gpu.empty() ? "-" : rows[i - 1].gpu;
    table[i].insert(table[i].end() - 1, gpu);
  }
  std::string text = "job " + job + ", model " + model + "\n" + format_table(table);
  text +=
      std::string("invariant: ") + (invariant ? "yes" : "no") + " (" + invariant_because + ")\n";
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

std::string LaunchPlan::to_json() const {
  std::string text;
  net::JsonWriter json(text);
  json.begin_object();
  json.key("job").string(job);
  json.key("model").string(model);
  json.key("invariant").boolean(invariant);
  json.key("invariant_because").string(invariant_because);
  json.key("processes").begin_array();
  for (const PlanRow& row : rows) {
    json.begin_object();
    json.key("name").string(row.name);
    json.key("role").string(to_string(row.role));
    json.key("node").string(row.node);
    json.key("cores").integer(row.cores);
    if (!row.gpu.empty()) {
      json.key("gpu").string(row.gpu);
    }
    json.key("host").string(row.host);
    json.key("port").integer(row.port);
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
