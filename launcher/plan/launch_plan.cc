#include "launcher/plan/launch_plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "common/address_text.h"
#include "common/check.h"
#include "common/config/config_text.h"
#include "common/json/json_writer.h"
#include "launcher/placement/crowding.h"
#include "launcher/placement/gang.h"
#include "launcher/placement/node_share.h"
#include "launcher/placement/placement.h"
#include "launcher/plan/foreign_plan.h"
#include "launcher/plan/gpu_shares.h"
#include "launcher/view/table.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

namespace {

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
    plan.invariant_because =
        "a GPU computes: a request alone gives equal tokens, but a batch takes other kernels";
  } else if (decode.kv_type == engine::KvType::kQ8_0) {
    plan.invariant = true;
    plan.invariant_because = "q8_0 KV";
  } else {
    plan.invariant_because = "f16 KV; q8_0 KV would be";
  }
  return plan;
}

// KV in a GPU's memory takes none of the node. Engines of other makes do not tell.
uint64_t own_memory(const engine::EngineConfig& engine, const GroupConfig& group,
                    const ModelSize& size) {
  constexpr uint64_t kMiB = 1 << 20;
  if (group.memory_mib > 0) {
    return group.memory_mib * kMiB;
  }
  const bool here = engine.kind == engine::EngineKind::kLlama && !engine.gpu;
  return here ? uint64_t{engine.sequences} * engine.tokens_per_sequence * size.kv_bytes_per_token
              : 0;
}

PlanGroup make_group(const JobConfig& config, const ModelConfig& model, const ModelSize& size,
                     net::Role role, const std::vector<Node>& nodes) {
  const bool prefill = role == net::Role::kPrefill;
  const engine::EngineConfig& engine = model.engine_of(role);
  const GroupConfig& group = prefill ? model.prefill_group : model.decode_group;
  const uint32_t workers = prefill ? model.prefill_workers : model.decode_workers;
  const std::string& path = model.decode_engine.model_path;  // Of both roles.
  const std::string& file = path.empty() ? model.served_name : path;
  // Such a worker maps no file: it has weights of its own, and a second engine while it prepares
  // others.
  const bool updates =
      config.mode == Mode::kRollout && engine.kind == engine::EngineKind::kLlama && !engine.gpu;
  uint64_t memory = own_memory(engine, group, size);
  if (updates) {
    memory += 2 * size.file_bytes + (group.memory_mib > 0 ? 0 : memory);
  }
  const engine::EngineShape shape = shape_of(engine);
  Demand demand{.parts = shape.nodes,
                .cores = engine.threads * (engine.gpu ? 1 : shape.ranks_per_node()),
                .lends = borrows_threads(engine),
                .memory_bytes = memory,
                .file = file,
                .file_bytes = updates ? 0 : size.file_bytes,
                .role = to_string(role),
                .model = model.served_name,
                .clusters = group.clusters,
                .labels = group.labels,
                .arrange = group.arrange,
                .near = near_of(model, engine)};
  demand.gpus = gpus_to_place(gpus_wanted(config, model, role), demand, nodes);
  demand.gpu_percent = engine.gpu_percent;
  return {.role = role,
          .model = model.served_name,
          .group = {.name = group_name(model, prefill ? "prefill" : "decode"),
                    .demand = std::move(demand),
                    .workers = workers + group.spares,
                    .workers_min = group.workers_min > 0 ? group.workers_min : workers},
          .spares = group.spares};
}

std::vector<PlanGroup> make_groups(const JobConfig& config, const std::vector<ModelSize>& sizes,
                                   const std::vector<Node>& nodes) {
  PDJOB_CHECK(sizes.size() == config.models.size());
  std::vector<PlanGroup> groups;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const ModelConfig& model = config.models[i];
    if (model.disaggregated()) {
      groups.push_back(make_group(config, model, sizes[i], net::Role::kPrefill, nodes));
    }
    const net::Role role = model.disaggregated() ? net::Role::kDecode : net::Role::kBoth;
    groups.push_back(make_group(config, model, sizes[i], role, nodes));
  }
  return groups;
}

void add_rows(const PlanGroup& group, const std::vector<ChosenPlace>& choices,
              const std::vector<Node>& nodes, LaunchPlan& plan) {
  for (uint32_t i = 0; i < group.group.workers; ++i) {
    PlanRow row{.name = group.group.name + "-" + std::to_string(i),
                .role = group.role,
                .model = group.model,
                .cores = group.group.demand.cores};
    if (i < choices.size()) {
      const Place& place = choices[i].place;
      const Node& node = *std::ranges::find(nodes, place.node, &Node::name);
      row.node = node.name;
      row.cluster = node.cluster;
      row.why = to_string(choices[i].why);
      row.gpus = place.gpus;
      row.gpu_percent = group.group.demand.gpu_percent;
      row.near = near_devices(nodes, {.node = place.node, .gpus = place.gpus}, group.group.demand);
      row.host = node.host;
      for (const PlacePart& part : place.more) {
        row.more.push_back({.node = part.node,
                            .host = std::ranges::find(nodes, part.node, &Node::name)->host,
                            .gpus = part.gpus,
                            .near = near_devices(nodes, part, group.group.demand),
                            .command = {}});
      }
    }
    plan.rows.push_back(std::move(row));
  }
  if (choices.size() < group.group.workers) {
    plan.warnings.push_back(group.group.name + " starts with " + std::to_string(choices.size()) +
                            " of " + std::to_string(group.group.workers) +
                            " workers: the others wait for nodes that join");
  }
}

// Decode workers that share their cores with prefill workers compute their prompts, unless the job
// file says otherwise, or a router of another make decides.
void note_shared_cores(const router::RouterConfig& router, const Placement& placement,
                       LaunchPlan& plan) {
  if (router.kind != router::RouterKind::kBuiltIn ||
      router.decode_prefills != router::DecodePrefills::kAuto) {
    return;
  }
  for (PlanRow& row : plan.rows) {
    const PlanGroup* const group = group_of(plan, row);
    row.prefills = group != nullptr && row.role == net::Role::kDecode &&
                   placement.shares_cores(row.place(), group->group.demand);
  }
}

// Threads of one step wait for each other, so one thread without a core holds up all.
void warn_of_threads(const PlanGroup& group, const Node& node, LaunchPlan& plan) {
  const uint32_t threads = group.group.demand.cores;
  const bool placed = std::ranges::any_of(plan.rows, [&](const PlanRow& row) {
    return row.node == node.name && row.role == group.role && row.model == group.model;
  });
  if (placed && threads > node.cores) {
    plan.warnings.push_back("a worker of " + group.group.name + " computes with " +
                            std::to_string(threads) + " threads, and node " + node.name + " has " +
                            cores_text(node) +
                            ": the threads wait for each other, so lower engine.threads");
  }
}

// How many workers each group that scales could have on these nodes, if the others keep their size.
void find_rooms(const Placement& placement, LaunchPlan& plan) {
  for (GroupTerms& terms : plan.terms.groups) {
    const auto group = std::ranges::find_if(
        plan.groups, [&](const PlanGroup& each) { return each.group.name == terms.group; });
    const auto placed =
        static_cast<uint64_t>(std::ranges::count_if(plan.rows, [&](const PlanRow& row) {
          return row.role == group->role && row.model == group->model && !row.node.empty();
        }));
    terms.room = placed + placement.room(group->group.demand, {.overcommit = false},
                                         terms.scaling.workers_max);
  }
}

// Takes the memory of a store on each node that has room for it, before the workers come. Returns
// these nodes.
std::vector<std::string> take_stores(const JobConfig& config, const std::vector<Node>& nodes,
                                     Placement& placement) {
  std::vector<std::string> names;
  for (const Node& node : nodes) {
    if (config.kv_store.on() && placement.take_on({node.name}, store_demand(config.kv_store))) {
      names.push_back(node.name);
    }
  }
  return names;
}

// The workers have their rows. Nodes without such workers give back what was taken.
void add_stores(const JobConfig& config, const std::vector<Node>& nodes,
                const std::vector<std::string>& taken, Placement& placement, LaunchPlan& plan) {
  std::vector<PlanRow> stores;
  for (const Node& node : nodes) {
    const bool used = std::ranges::any_of(plan.rows, [&](const PlanRow& row) {
      return net::is_worker(row.role) && row.runs_on(node.name) &&
             uses_store(config, *config.model_called(row.model), row.role);
    });
    const bool is_taken = std::ranges::find(taken, node.name) != taken.end();
    if (is_taken && used) {
      stores.push_back({.name = "store-" + std::to_string(stores.size()),
                        .role = net::Role::kStore,
                        .node = node.name,
                        .cluster = node.cluster,
                        .why = "keeps KV for the workers of this node",
                        .host = node.host});
    } else if (is_taken) {
      placement.release(Place{.node = node.name, .gpus = {}}, store_demand(config.kv_store));
    } else if (used && config.kv_store.on()) {
      plan.warnings.push_back("node " + node.name +
                              " gets no store: its memory is less than kv_store.memory");
    }
  }
  const auto first_worker =
      std::ranges::find_if(plan.rows, [](const PlanRow& row) { return net::is_worker(row.role); });
  plan.rows.insert(first_worker, stores.begin(), stores.end());
}

Status place_groups(const JobConfig& config, const std::vector<Node>& nodes, LaunchPlan& plan) {
  std::vector<Group> groups;
  for (const PlanGroup& each : plan.groups) {
    groups.push_back(each.group);
  }
  Placement placement(nodes);
  const std::vector<std::string> stores = take_stores(config, nodes, placement);
  const auto places = place_together(placement, groups);
  if (!places) {
    return Error{places.error().code, "the job does not fit: " + places.error().message};
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    add_rows(plan.groups[g], (*places)[g], nodes, plan);
  }
  add_stores(config, nodes, stores, placement, plan);
  note_shared_cores(config.router, placement, plan);
  for (const NodeShare& share : placement.shares()) {
    const Node& node = share.node();
    for (const PlanGroup& group : plan.groups) {
      warn_of_threads(group, node, plan);
    }
    std::ranges::copy(crowding({share}), std::back_inserter(plan.warnings));
  }
  find_rooms(placement, plan);
  return ok();
}

// The launcher's machine, if it is one of the nodes.
const Node& node_of_routers(const std::vector<Node>& nodes) {
  const auto here = std::ranges::find_if(
      nodes, [](const Node& node) { return node.overcommits || node.routers_only; });
  return here == nodes.end() ? nodes.front() : *here;
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

void append_nodes(JsonWriter& json, const std::vector<Node>& nodes) {
  json.key("nodes").begin_array();
  for (const Node& node : nodes) {
    json.begin_object();
    json.key("name").string(node.name);
    json.key("cores").integer(node.cores);
    json.key("cores_bound").string(node.cores_bound);
    json.key("memory_bytes").integer(node.memory_bytes);
    json.key("memory_bound").string(node.memory_bound);
    json.end_object();
  }
  json.end_array();
}

std::string address_of(const PlanRow& row) {
  return row.host.empty()
             ? "-"
             : address_text(row.host, row.port == 0 ? "any" : std::to_string(row.port));
}

}  // namespace

Place PlanRow::place() const {
  Place place{.node = node, .gpus = gpus};
  for (const PlanPart& part : more) {
    place.more.push_back({.node = part.node, .gpus = part.gpus});
  }
  return place;
}

bool PlanRow::runs_on(const std::string& of_node) const {
  return node == of_node || std::ranges::find(more, of_node, &PlanPart::node) != more.end();
}

const PlanGroup* group_of(const LaunchPlan& plan, const PlanRow& row) {
  const auto found = std::ranges::find_if(plan.groups, [&](const PlanGroup& group) {
    return group.role == row.role && group.model == row.model;
  });
  return found == plan.groups.end() ? nullptr : &*found;
}

Demand store_demand(const store::StoreConfig& config) {
  return {.memory_bytes = config.memory_bytes, .role = to_string(net::Role::kStore)};
}

std::string group_name(const ModelConfig& model, const char* role) {
  return (model.name.empty() ? "" : model.name + "-") + role;
}

Result<LaunchPlan> make_plan(const JobConfig& config, const std::vector<Node>& nodes,
                             const std::vector<ModelSize>& sizes, NodesOfPlan which) {
  PDJOB_TRY(const net::HttpAddress front, net::parse_http_address(config.router.listen));
  if (nodes.empty()) {
    return Error{ErrorCode::kUnavailable, "the job does not fit: there is no node"};
  }
  LaunchPlan plan{
      .job = config.name, .groups = make_groups(config, sizes, nodes), .terms = terms_of(config)};
  if (which == NodesOfPlan::kOthersMayCome) {
    for (PlanGroup& each : plan.groups) {
      each.group.workers_min = 0;
    }
  }
  const Node& head = node_of_routers(nodes);
  for (uint32_t i = 0; i < config.router.replicas; ++i) {
    plan.rows.push_back({.name = "router-" + std::to_string(i),
                         .role = net::Role::kRouter,
                         .node = head.name,
                         .cluster = head.cluster,
                         .why = "routers run here",
                         .host = front.host,
                         .port = front.port});
  }
  if (config.batch_api.on()) {
    plan.rows.push_back({.name = "batch",
                         .role = net::Role::kBatch,
                         .node = head.name,
                         .cluster = head.cluster,
                         .why = "runs beside the routers",
                         .host = "127.0.0.1"});
  }
  PDJOB_TRY_STATUS(place_groups(config, nodes, plan));
  std::ranges::copy_if(nodes, std::back_inserter(plan.nodes), [&](const Node& node) {
    return std::ranges::any_of(plan.rows,
                               [&](const PlanRow& row) { return row.runs_on(node.name); });
  });
  for (const ModelConfig& model : config.models) {
    plan.models.push_back(judge_invariance(model));
  }
  PDJOB_TRY_STATUS(check_gpus(config, nodes, plan));
  PDJOB_TRY_STATUS(plan_foreign_engines(config, sizes, plan));
  if (config.mode == Mode::kBatch) {
    plan.batch = config.batch;
  }
  std::ranges::copy(warnings_of_clients(plan.terms), std::back_inserter(plan.warnings));
  if (which == NodesOfPlan::kAll) {
    std::ranges::copy(warnings_of_size(plan.terms), std::back_inserter(plan.warnings));
  }
  if (config.router.kv_events.port > 0) {
    plan.warnings.emplace_back(
        "router.kv_events.port is for engines that a router is given by address; the workers of a "
        "job tell what they keep without it");
  }
  return plan;
}

namespace {

// One more column, with its title first.
void insert_column(std::vector<std::vector<std::string>>& table, size_t at,
                   const std::vector<std::string>& column) {
  for (size_t i = 0; i < table.size(); ++i) {
    table[i].insert(table[i].begin() + static_cast<std::ptrdiff_t>(at),
                    column[i].empty() ? "-" : column[i]);
  }
}

template <class Text>
std::vector<std::string> column_of(const std::string& title, const std::vector<PlanRow>& rows,
                                   const Text& text) {
  std::vector<std::string> column = {title};
  for (const PlanRow& row : rows) {
    column.push_back(text(row));
  }
  return column;
}

std::string batch_text(const batch::BatchConfig& batch) {
  std::string text = "batch: the rows of";
  for (const std::string& input : batch.inputs) {
    text += " " + input;
  }
  return text + ", results in " + batch.out + "\n" + batch::plan_text(batch.stages);
}

void append_batch(JsonWriter& json, const batch::BatchConfig& batch) {
  json.key("batch").begin_object();
  json.key("in").begin_array();
  for (const std::string& input : batch.inputs) {
    json.string(input);
  }
  json.end_array();
  json.key("out").string(batch.out);
  append_plan(json, batch.stages);
  json.end_object();
}

std::string shared_cores_text(const std::vector<PlanRow>& rows) {
  std::string names;
  for (const PlanRow& row : rows) {
    names += row.prefills ? (names.empty() ? "" : ", ") + row.name : "";
  }
  return names.empty() ? ""
                       : "prompts are computed by " + names +
                             ": prefill and decode share the same cores there "
                             "(router.decode_prefills: auto)\n";
}

void append_parts(JsonWriter& json, const std::vector<PlanPart>& parts) {
  if (parts.empty()) {
    return;
  }
  json.key("more_nodes").begin_array();
  for (const PlanPart& part : parts) {
    json.begin_object();
    json.key("node").string(part.node);
    json.key("host").string(part.host);
    json.key("gpu").string(gpus_text(part.gpus));
    append_near(json, part.near);
    json.key("command").string(part.command);
    json.end_object();
  }
  json.end_array();
}

std::string nodes_text(const PlanRow& row) {
  std::string text = row.node.empty() ? "-" : row.node;
  for (const PlanPart& part : row.more) {
    text += "," + part.node;
  }
  return text;
}

std::string near_text(const PlanRow& row) {
  const std::string near = row.near.text();
  std::string text =
      near.empty() ? "" : row.name + " on GPU " + gpus_text(row.gpus) + ": " + near + "\n";
  for (const PlanPart& part : row.more) {
    if (const std::string beside = part.near.text(); !beside.empty()) {
      text += row.name + " on GPU " + gpus_text(part.gpus) + " of node " + part.node + ": " +
              beside + "\n";
    }
  }
  return text;
}

std::string process_table(const LaunchPlan& plan) {
  std::vector<std::vector<std::string>> table = {{"NAME", "ROLE", "NODE", "CORES", "ADDRESS"}};
  for (const PlanRow& row : plan.rows) {
    table.push_back({row.name, to_string(row.role), nodes_text(row),
                     row.cores == 0 ? "-" : std::to_string(row.cores), address_of(row)});
  }
  const auto any = [&](const auto& differs) { return std::ranges::any_of(plan.rows, differs); };
  // Nothing was chosen on a single node.
  if (any([&](const PlanRow& row) { return row.node != plan.rows.front().node; })) {
    insert_column(table, 5, column_of("WHY", plan.rows, [](const PlanRow& row) {
                    return row.node.empty() ? "waits for a node" : row.why;
                  }));
  }
  if (any([](const PlanRow& row) { return !row.gpus.empty(); })) {
    insert_column(table, 4, column_of("GPU", plan.rows, all_gpus_text));
  }
  if (any([&](const PlanRow& row) { return row.cluster != plan.rows.front().cluster; })) {
    insert_column(table, 2,
                  column_of("CLUSTER", plan.rows, [](const PlanRow& row) { return row.cluster; }));
  }
  if (plan.several_models()) {
    insert_column(table, 1,
                  column_of("MODEL", plan.rows, [](const PlanRow& row) { return row.model; }));
  }
  return format_table(table);
}

}  // namespace

std::string LaunchPlan::to_text() const {
  std::string text = title_of(*this) + process_table(*this);
  for (const PlanRow& row : rows) {
    text += near_text(row);
    text += row.command.empty() ? "" : row.name + " runs: " + row.command + "\n";
    for (const PlanPart& part : row.more) {
      text += row.name + " runs on node " + part.node + ": " + part.command + "\n";
    }
  }
  text += gpu_parts_text(*this) + shared_cores_text(rows);
  for (const ModelPlan& model : models) {
    text += (several_models() ? model.name + " is invariant: " : "invariant: ") +
            (model.invariant ? "yes" : "no") + " (" + model.invariant_because + ")\n";
  }
  text += terms_text(terms);
  text += batch ? batch_text(*batch) : "";
  text += bounds_text(nodes);
  for (const std::string& warning : warnings) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

std::string LaunchPlan::to_json(const std::string& specs) const {
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
  append_nodes(json, nodes);
  json.key("processes").begin_array();
  for (const PlanRow& row : rows) {
    json.begin_object();
    json.key("name").string(row.name);
    json.key("role").string(to_string(row.role));
    if (several_models() && !row.model.empty()) {
      json.key("model").string(row.model);
    }
    json.key("node").string(row.node);
    json.key("cluster").string(row.cluster);
    json.key("why").string(row.why);
    json.key("cores").integer(row.cores);
    if (row.role == net::Role::kDecode) {
      json.key("prefills").boolean(row.prefills);
    }
    if (!row.gpus.empty()) {
      json.key("gpu").string(gpus_text(row.gpus));
      if (row.gpu_percent < kWholeGpu) {
        json.key("gpu_part").raw(portion_text(row.gpu_percent));
      }
      append_near(json, row.near);
    }
    json.key("host").string(row.host);
    json.key("port").integer(row.port);
    if (!row.command.empty()) {
      json.key("command").string(row.command);
    }
    append_parts(json, row.more);
    json.end_object();
  }
  json.end_array();
  append_terms(json, terms);
  if (batch) {
    append_batch(json, *batch);
  }
  if (!specs.empty()) {
    json.key("specs").raw(specs);
  }
  json.key("warnings").begin_array();
  for (const std::string& warning : warnings) {
    json.string(warning);
  }
  json.end_array();
  json.end_object();
  return text + "\n";
}

}  // namespace pdjob::launcher
