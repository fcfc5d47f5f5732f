#include "router/config/async_config.h"

#include "router/config/callback_url.h"

namespace pdjob::router {
namespace {

void read_callbacks(ConfigReader& in, CallbackConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using std::chrono::minutes;
  using std::chrono::seconds;
  in.field("allowed", config.allowed,
           {"Who may be called, as host, host:port, or a block of addresses such as 10.0.0.0/8; "
            "each has in_flight_max of its own. A name leads to public addresses, and to others "
            "only if a block has them. Empty: nobody is."});
  in.path("ca_file", config.ca_file,
          {"Certificates of the authorities that https receivers are checked against. Empty: the "
           "system's."});
  in.path("secret_file", config.secret_file,
          {"A file on the router's machine with the secret that signs calls: whsec_ and 24 to 64 "
           "bytes in base64. Empty: they are not signed."});
  in.field("attempts", config.attempts, {"A call is made so often until a 2xx takes it."},
           {.min = 1, .max = 100});
  in.field("timeout", config.timeout, {"Of one attempt, to the end of its reply."},
           {.min = milliseconds(100), .max = minutes(5)});
  in.field("wait_max", config.wait_max,
           {"Between two attempts; the first wait is up to 1s, and the next ones double."},
           {.min = seconds(1), .max = hours(24)});
  in.field("in_flight_max", config.in_flight_max,
           {"Calls to each of `allowed` at once; more wait.", "calls"}, {.min = 1, .max = 16});
  if (config.allowed.size() > kCallbackReceiversMax) {
    in.fail("allowed", "must be at most " + std::to_string(kCallbackReceiversMax) + ", got " +
                           std::to_string(config.allowed.size()));
  }
  for (const std::string& text : config.allowed) {
    if (const auto receiver = parse_callback_receiver(text); !receiver) {
      in.fail("allowed", receiver.error().message);
    }
  }
}

}  // namespace

void read(ConfigReader& in, AsyncConfig& config) {
  using std::chrono::hours;
  using std::chrono::seconds;
  in.section(
      "async", {"Requests whose answers are fetched later (docs/how-to/asynchronous-requests.md)."},
      [&](ConfigReader& section) {
        section.path("file", config.file,
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
                      {"Answers that are kept of each tenant; the oldest go first.", "answers"},
                      {.min = 1, .max = 1'000'000});
        section.section("callbacks",
                        {"Clients that are called when their answers are there "
                         "(docs/how-to/asynchronous-requests.md)."},
                        [&](ConfigReader& below) { read_callbacks(below, config.callbacks); });
        if (config.file.empty() && !config.callbacks.allowed.empty()) {
          section.fail("callbacks.allowed", "is for requests that are kept: file is missing");
        }
      });
}

}  // namespace pdjob::router
