#include "tests/simulation/shape.h"

#include <algorithm>
#include <string>

#include "common/crypto/sha256.h"
#include "common/random.h"
#include "tests/simulation/sim_clients.h"

namespace pdjob::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void draw_tenants(const Scenario& scenario, bool faultless, Random& random, Shape& shape) {
  const uint32_t tenants = scenario.tenants.draw(random);
  for (uint32_t i = 1; i <= tenants; ++i) {
    shape.router.tenants.push_back({.name = "tenant-" + std::to_string(i),
                                    .key_sha256 = sha256_of(key_of_tenant(i)),
                                    .weight = static_cast<uint32_t>(1 + random.below(3))});
    if (!faultless && random.chance(0.3)) {
      shape.router.tenants.back().requests_max = static_cast<uint32_t>(1 + random.below(8));
    }
  }
  shape.workload.tenants = tenants;
  shape.workload.repeats = scenario.repeats;
  if (random.chance(scenario.cache)) {
    shape.router.cache.bytes_max = 1 + random.below(uint64_t{1} << 16);
  }
  shape.asynchronous = random.chance(scenario.asynchronous);
  if (shape.asynchronous) {
    shape.routers = 1;  // Each has a file of its own.
    shape.router.async.file = "async.sqlite";
    shape.router.async.in_flight_max = static_cast<uint32_t>(1 + random.below(8));
    shape.workload.asynchronous = 0.5;
  }
}

}  // namespace

Shape draw_shape(const Scenario& scenario, bool faultless, uint64_t seed) {
  Random random(mix(seed + 2));
  Shape shape;
  const uint32_t rows = scenario.rows.draw(random);
  const auto draw_engine = [&] {
    return worker::EngineSize{.sequences = scenario.sequences.draw(random),
                              .rows_per_sequence = rows,
                              .batch_tokens = scenario.batch_tokens.draw(random)};
  };
  shape.prefill_engine = draw_engine();
  shape.engine = draw_engine();
  // A request with several choices needs a sequence for each.
  shape.engine.sequences = std::max(shape.engine.sequences, scenario.choices.high);
  shape.nodes = scenario.nodes.draw(random);
  shape.routers = scenario.routers.draw(random);
  shape.prefill_workers = scenario.prefill.draw(random);
  shape.decode_workers = scenario.decode.draw(random);
  shape.both_workers = random.chance(0.3) ? scenario.both.draw(random) : scenario.both.low;
  shape.chunk_tokens = scenario.chunk_tokens.draw(random);
  shape.shared_kv = random.chance(scenario.shared_kv);
  shape.two_hop = random.chance(scenario.two_hop);
  if (shape.two_hop && random.chance(0.5)) {
    shape.router.protocol = router::Protocol::kNixlPush;  // Uses two hops at first.
  }
  const auto draw_policy = [&] {
    return random.chance(scenario.any_policy) ? static_cast<router::PolicyKind>(random.below(6))
                                              : router::PolicyKind::kRoundRobin;
  };
  shape.router.prefill_policy = draw_policy();
  shape.router.decode_policy = draw_policy();
  if (random.chance(scenario.limits)) {
    shape.router.prefill_in_flight = static_cast<uint32_t>(1 + random.below(3));
    shape.router.decode_in_flight = static_cast<uint32_t>(random.below(4));
  }
  shape.router.measured_load = random.chance(0.3);
  shape.router.hedge_quantile = random.chance(scenario.hedged) ? 0.5 : 0;
  shape.router.fallback =
      random.chance(0.5) ? router::Fallback::kDecodeAlone : router::Fallback::kRefuse;
  shape.router.queue_timeout = seconds(faultless ? 60 : 2);  // A burst may be long, too.
  shape.router.drain_timeout = seconds(5);
  const bool burst = random.chance(scenario.bursts);
  shape.workload = {.models = {},
                    .asks = scenario.requests.draw(random),
                    .duration = burst ? Duration(milliseconds(20)) : scenario.load,
                    .prompt_tokens_max = scenario.prompt_tokens.draw(random),
                    .max_tokens_max = scenario.output_tokens.draw(random),
                    .choices_max = scenario.choices.high,
                    .leaving = random.chance(0.5) ? scenario.leaving : 0.0,
                    .killer = Kills::kNobody,
                    .families = static_cast<uint32_t>(random.below(5)),
                    .background = scenario.background};
  if (!faultless) {
    const bool tight = random.chance(scenario.short_queues);
    shape.router.requests_max = tight ? static_cast<uint32_t>(2 + random.below(19)) : 4096;
    shape.requests_queued =
        random.chance(scenario.short_queues) ? static_cast<uint32_t>(1 + random.below(4)) : 256;
  } else {
    shape.router.requests_max = 1U << 20;
  }
  for (uint32_t i = 0, count = scenario.models.draw(random); i < count; ++i) {
    shape.workload.models.push_back(std::string(1, static_cast<char>('m' + i)));
  }
  shape.prefix_cache = random.chance(0.9);
  shape.router.models = shape.workload.models;
  if (random.chance(scenario.killer)) {
    shape.workload.killer = random.chance(0.5) ? Kills::kPrompt : Kills::kToken;
  }
  if (scenario.tenants.high > 0) {
    draw_tenants(scenario, faultless, random, shape);
  }
  if (scenario.by_hand > 0 && random.chance(scenario.by_hand)) {
    shape.by_hand = true;
    shape.two_hop = false;  // Workers describe themselves.
    shape.router.protocol = router::Protocol::kAuto;
  }
  shape.rollout = scenario.weights.trainer > 0;
  shape.decode_wants_gpus = random.chance(0.5);
  shape.decode_gpu_percent = shape.nodes % 2 == 0 ? 50 : launcher::kWholeGpu;
  shape.prefill_wants_labels = shape.nodes > 2 && random.chance(0.5);
  if (scenario.agents > 0 && random.chance(scenario.agents)) {
    shape.agents = true;
    shape.agent_lease = milliseconds(1000 + random.below(2000));
    shape.orphan_timeout =
        random.chance(0.4) ? milliseconds(500 + random.below(3000)) : milliseconds(0);
  }
  if (random.chance(0.2)) {
    shape.router.bypass_tokens = static_cast<uint32_t>(random.below(20));
    shape.router.decode_prefills = static_cast<router::DecodePrefills>(random.below(3));
  }
  if (random.chance(0.2)) {
    shape.router.bypass_busy_requests = static_cast<uint32_t>(random.below(4));
  }
  if (scenario.lasts > 0 && random.chance(scenario.lasts)) {
    shape.agents = shape.lasts = true;
    shape.agent_lease = milliseconds(1000 + random.below(2000));
    // With a short one, what the launcher left may have ended before another one comes.
    shape.orphan_timeout =
        faultless || random.chance(0.8) ? seconds(30) : milliseconds(500 + random.below(3000));
  }
  if (scenario.scales > 0 && random.chance(scenario.scales)) {
    shape.scales = true;
    // From no worker to one that serves, and a launcher may be missing at first.
    const bool always_launched = !faultless && scenario.weights.launcher_dies == 0;
    shape.router.queue_timeout = seconds(always_launched ? 15 : 60);
    const uint32_t most = std::max(shape.prefill_workers, shape.decode_workers);
    shape.scaling.workers_max = most + static_cast<uint32_t>(random.below(3));
    shape.scaling.down_after = milliseconds(500 + random.below(3000));
    shape.scaling.ttft = milliseconds(20 + random.below(500));
    shape.scaling.itl = milliseconds(5 + random.below(100));
    shape.zero_after =
        random.chance(0.4) ? milliseconds(1000 + random.below(3000)) : milliseconds(0);
  }
  if (scenario.slow_steps > 0 && random.chance(scenario.slow_steps)) {
    shape.step_time.fixed = milliseconds(20);
  }
  if (scenario.stragglers > 0 && random.chance(scenario.stragglers)) {
    shape.stragglers = {.factor = 3, .after = seconds(2)};
  }
  shape.poisons = scenario.weights.poison > 0;
  // Of one cluster, which has every second node. Dice of its own leave all else as it was.
  const bool wide = Random(seed + 1).chance(0.25);
  shape.ends_heard_soon = Random(seed + 3).chance(scenario.ends_heard_soon);
  shape.spares = Random(seed + 2).chance(scenario.spares) ? 1 : 0;
  shape.decode_parts = wide && shape.nodes > 2 && !shape.stragglers.on() ? 2 : 1;
  return shape;
}

uint32_t change_job_file(uint64_t target, launcher::JobConfig& job) {
  const uint32_t file = Random(target).chance(0.5) ? 1 : 0;
  for (launcher::ModelConfig& model : job.models) {
    model.model = "/" + std::to_string(file) + ".gguf";
    ++model.decode.requests_queued;
    ++model.prefill.requests_queued;
  }
  return file;
}

}  // namespace pdjob::simulation
