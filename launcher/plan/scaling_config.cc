#include "launcher/plan/scaling_config.h"

#include <string>

#include "launcher/plan/model_config.h"

namespace pdjob::launcher {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr double kFactorMin = 1.5;

}  // namespace

void read(ConfigReader& in, GroupScaling& config) {
  in.section(
      "scaling",
      {.doc = "The job changes the number of these workers by itself, between `min` and `max`. "
              "`workers` is the number at the start."},
      [&](ConfigReader& section) {
        section.field("min", config.workers_min,
                      {.doc = "Never fewer workers, except with `scaling.zero_after`."},
                      {1, kWorkersPerRoleMax});
        section.field("max", config.workers_max,
                      {.doc = "Never more workers. 0: the number changes by `pdjob scale` only."},
                      {0, kWorkersPerRoleMax});
        section.field("ttft", config.ttft,
                      {.doc = "More workers come where the mean time from a request's arrival at a "
                              "worker to its first token would exceed this. For prefill. 0s: not "
                              "watched."},
                      {Duration::zero(), hours(1)});
        section.field("itl", config.itl,
                      {.doc = "More workers come where the mean time between two tokens of a "
                              "request would exceed this. For decode. 0s: not watched."},
                      {Duration::zero(), hours(1)});
        section.field("kv_use", config.kv_use,
                      {.doc = "More workers come where a larger share of KV rows would be in use."},
                      {0.05, 1.0});
        section.field("down_after", config.down_after,
                      {.doc = "A worker leaves when fewer would have been enough for so long."},
                      {seconds(1), hours(24)});
      });
}

void check(ConfigReader& in, const std::string& section, uint32_t workers,
           const GroupScaling& config) {
  const std::string key = section + ".scaling";
  if (!config.on()) {
    return;
  }
  if (config.workers_min > workers || workers > config.workers_max) {
    in.fail(key, "`workers` must be from `min` to `max`, " + std::to_string(config.workers_min) +
                     " to " + std::to_string(config.workers_max) + ", got " +
                     std::to_string(workers));
  }
}

void read(ConfigReader& in, StragglerConfig& config) {
  in.field("factor", config.factor,
           {.doc = "A worker that takes so many times longer than most of its group for the same "
                   "work is drained and replaced. 0: never. Workers of a model and role are "
                   "compared if their nodes are alike, and if three or more of them have work."},
           {0.0, 1000.0});
  if (config.factor > 0 && config.factor < kFactorMin) {
    in.fail("factor", "must be 0, or at least 1.5: equal workers differ by less");
  }
  in.field("after", config.after, {.doc = "It must have been so slow for so long."},
           {seconds(2), hours(24)});
}

void read(ConfigReader& in, JobScalingConfig& config) {
  in.field("workers_max", config.workers_max,
           {.doc = "Most workers of all groups together. 0: no limit."},
           {0, 2 * kWorkersPerRoleMax});
  in.field("gpus_max", config.gpus_max, {.doc = "Most GPUs of all workers together. 0: no limit."},
           {0, 1U << 16});
  in.field("prefill_per_decode_min", config.prefill_per_decode_min,
           {.doc = "The job never makes the ratio of a model's prefill to decode workers smaller "
                   "than this. 0: no limit."},
           {0.0, 1e6});
  in.field("prefill_per_decode_max", config.prefill_per_decode_max,
           {.doc = "The same, not larger. 0: no limit."}, {0.0, 1e6});
  in.field("zero_after", config.zero_after,
           {.doc = "Without requests for so long, all workers end; the next request starts them "
                   "again and waits at the router. Every group must have `scaling.max`, and the "
                   "router must be pdjob's own. 0s: never."},
           {Duration::zero(), hours(24)});
  if (config.prefill_per_decode_max > 0 &&
      config.prefill_per_decode_max < config.prefill_per_decode_min) {
    in.fail("prefill_per_decode_max", "must not be below prefill_per_decode_min");
  }
}

}  // namespace pdjob::launcher
