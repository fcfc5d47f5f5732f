#include "tests/simulation/scenario.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/config/config_reader.h"
#include "common/parse_number.h"

namespace pdjob::simulation {
namespace {

void read(ConfigReader& in, const char* key, Range& range, const char* doc) {
  std::string text = std::to_string(range.low) + ".." + std::to_string(range.high);
  in.field(key, text, {doc});
  const size_t dots = text.find("..");
  const auto low = parse_number<uint32_t>(text.substr(0, dots));
  const auto high = dots == std::string::npos ? low : parse_number<uint32_t>(text.substr(dots + 2));
  if (!low || !high || *low > *high) {
    in.fail(key, "must be a number or a range such as 1..8, got " + text);
    return;
  }
  range = {*low, *high};
}

void share(ConfigReader& in, const char* key, double& value, const char* doc) {
  in.field(key, value, {doc}, {0, 1});
}

void read(ConfigReader& in, Scenario& to) {
  in.section("job", {"What is started."}, [&](ConfigReader& job) {
    read(job, "nodes", to.nodes, "Nodes for workers.");
    read(job, "routers", to.routers, "Routers.");
    read(job, "models", to.models, "Models.");
    read(job, "prefill", to.prefill, "Prefill workers of a model.");
    read(job, "decode", to.decode, "Decode workers of a model.");
    read(job, "both", to.both, "Workers of a model with both roles.");
    read(job, "sequences", to.sequences, "Sequences of an engine.");
    read(job, "rows", to.rows, "KV rows of a sequence.");
    read(job, "batch_tokens", to.batch_tokens, "Tokens of a step.");
    read(job, "chunk_tokens", to.chunk_tokens, "Tokens of a prefill chunk.");
    share(job, "shared_kv", to.shared_kv, "Jobs whose KV is in shared memory; others use TCP.");
    share(job, "two_hop", to.two_hop, "Jobs whose workers tell no KV address in advance.");
    share(job, "limits", to.limits, "Jobs that limit a worker's requests in flight.");
    share(job, "short_queues", to.short_queues, "Jobs, with faults, whose queues are short.");
    share(job, "hedged", to.hedged, "Jobs that send a slow prefill to a second worker, too.");
    share(job, "any_policy", to.any_policy, "Jobs with any policies; others use round robin.");
    share(job, "ends_heard_soon", to.ends_heard_soon,
          "Jobs whose launcher hears of an end within 0.1 ms; others within 20 ms.");
    read(job, "tenants", to.tenants, "Tenants; 0: everybody may ask.");
    share(job, "asynchronous", to.asynchronous, "Jobs that take asynchronous requests.");
    share(job, "cache", to.cache, "Jobs with a response cache.");
    share(job, "by_hand", to.by_hand, "Jobs without a launcher.");
    share(job, "agents", to.agents, "Jobs whose nodes have agents.");
    share(job, "lasts", to.lasts, "Jobs whose processes outlive their launcher.");
    share(job, "scales", to.scales, "Jobs whose groups change their size by themselves.");
    share(job, "spares", to.spares, "Jobs whose groups have a spare each.");
    share(job, "stragglers", to.stragglers, "Jobs whose slow workers are replaced.");
    share(job, "slow_steps", to.slow_steps, "Jobs whose engines take 20 ms for a step.");
  });
  in.section("load", {"What clients send."}, [&](ConfigReader& load) {
    read(load, "requests", to.requests, "Requests.");
    load.field("for", to.load, {"They arrive within this time."});
    share(load, "bursts", to.bursts, "Runs in which all arrive within 20 ms.");
    read(load, "prompt_tokens", to.prompt_tokens, "Tokens of a prompt.");
    read(load, "output_tokens", to.output_tokens, "Limit of generated tokens.");
    read(load, "choices", to.choices, "Choices of a request.");
    share(load, "leaving", to.leaving, "Clients that leave early.");
    share(load, "killer", to.killer, "Runs in which a request crashes its workers.");
    share(load, "repeats", to.repeats, "Requests that are equal to an earlier one.");
    share(load, "background", to.background, "Requests that take what others leave.");
  });
  in.section("faults", {"What fails."}, [&](ConfigReader& faults) {
    share(faults, "faultless", to.faultless, "Runs without faults.");
    read(faults, "count", to.faults, "Faults of a run.");
    faults.section("weights", {"How often each kind is chosen."}, [&](ConfigReader& weights) {
      FaultWeights& w = to.weights;
      weights.field("kill", w.kill, {"A process dies."});
      weights.field("freeze", w.freeze, {"A process is stopped for a while, as by SIGSTOP."});
      weights.field("starve", w.starve, {"A process gets no core for a while."});
      weights.field("slow", w.slow, {"A worker computes slowly for a while."});
      weights.field("hang", w.hang, {"A worker's next step never ends."});
      weights.field("step_fails", w.step_fails, {"A worker's next step fails."});
      weights.field("kv_link_breaks", w.kv_link_breaks, {"A KV link is reset."});
      weights.field("connection_breaks", w.connection_breaks, {"An HTTP connection is reset."});
      weights.field("goes_dead", w.goes_dead, {"A connection passes nothing any more."});
      weights.field("partition", w.partition, {"Two hosts do not reach each other for a while."});
      weights.field("node_lost", w.node_lost, {"A node is lost, and joins again later."});
      weights.field("agent_link_breaks", w.agent_link_breaks,
                    {"A connection between an agent and the launcher is reset."});
      weights.field("trainer", w.trainer,
                    {"A trainer pauses the fleet, ends the pause, or changes the weights."});
      weights.field("reorganise", w.reorganise, {"A process is added, retired or changes role."});
      weights.field("limps", w.limps, {"A worker computes slowly as long as it lives."});
      weights.field("poison", w.poison,
                    {"A decode worker has a wrong KV address of a prefill worker."});
      weights.field("node_limps", w.node_limps,
                    {"All workers on a node compute slowly, also those that start there later."});
      weights.field("launcher_dies", w.launcher_dies,
                    {"The launcher dies, and another one comes."});
    });
    share(faults, "messages_lost", to.messages_lost, "Messages of the control plane.");
    share(faults, "messages_twice", to.messages_twice, "Those that come twice.");
    share(faults, "agent_messages_lost", to.agent_messages_lost, "Messages of agents.");
    share(faults, "push_fails", to.push_fails, "KV transfers that fail.");
    share(faults, "row_damaged", to.row_damaged, "KV transfers with a damaged row.");
    share(faults, "step_fails", to.step_fails, "Engine steps that fail.");
    share(faults, "reserve_fails", to.reserve_fails, "Reservations of KV rows that fail.");
    share(faults, "spawn_fails", to.spawn_fails, "Processes that cannot be started.");
  });
}

}  // namespace

Result<Scenario> read_scenario(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error{ErrorCode::kInvalidArgument, "cannot read " + path};
  }
  ConfigReader in = ConfigReader::parse(
      path, {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  Scenario scenario{.name = std::filesystem::path(path).stem().string()};
  read(in, scenario);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return scenario;
}

}  // namespace pdjob::simulation
