#include "router/config/audit_config.h"

namespace pdjob::router {

void read(ConfigReader& in, AuditConfig& config) {
  in.section(
      "audit",
      {"Answers that are computed a second time, without a hand-over, and compared "
       "(docs/how-to/audit-kv.md)."},
      [&](ConfigReader& section) {
        section.field("share", config.share,
                      {"The share of greedy requests, where KV was handed over, that is audited, "
                       "as far as workers have nothing else to do. 0: none."},
                      {.min = 0, .max = 1});
        section.field("tie", config.tie,
                      {"A difference of logprobs. Where the answers part, the engine's two "
                       "likeliest tokens are compared: if they are closer than this, it is a tie, "
                       "and nobody is accused."},
                      {.min = 0, .max = 20});
        section.field("mismatches", config.mismatches,
                      {"After so many within ten minutes, the pair of workers is avoided."},
                      {.min = 1, .max = 100});
      });
}

}  // namespace pdjob::router
