#include "router/async_config.h"

namespace pdjob::router {

void read(ConfigReader& in, AsyncConfig& config) {
  using std::chrono::hours;
  using std::chrono::seconds;
  in.section("async", {"Requests whose answers are fetched later (docs/router.md)."},
             [&](ConfigReader& section) {
               section.field(
                   "file", config.file,
                   {"Where they and their answers are kept: an SQLite file, made where there is "
                    "none. Empty: there are none."});
               section.field("ttl", config.ttl, {"An answer is kept for this long."},
                             {.min = seconds(1), .max = hours(24 * 30)});
               section.field(
                   "queue_max", config.queue_max,
                   {"Requests without an answer; more are refused with Retry-After.", "requests"},
                   {.min = 1, .max = 1'000'000});
               section.field("in_flight_max", config.in_flight_max,
                             {"Of these, how many workers have at once.", "requests"},
                             {.min = 1, .max = 4096});
               section.field("results_max", config.results_max,
                             {"Answers that are kept; the oldest go first.", "answers"},
                             {.min = 1, .max = 1'000'000});
             });
}

}  // namespace pdjob::router
