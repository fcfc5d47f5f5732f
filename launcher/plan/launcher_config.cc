#include "launcher/plan/launcher_config.h"

#include <utility>

#include "net/http/http_client.h"
#include "router/config/router_config.h"

namespace pdjob::launcher {

namespace {

// Others can reach an address beyond loopback, so it needs a key, and TLS that hides the key.
void check_admin(ConfigReader& in, const LauncherConfig& config) {
  if (!net::parse_http_address(config.admin)) {
    return in.fail("admin", "must be HOST:PORT, got " + config.admin);
  }
  const bool guarded = !config.admin_key_file.empty() && config.admin_tls.on();
  if (config.admin_is_local()) {
    for (const auto& [key, given] : {std::pair("admin_key_file", !config.admin_key_file.empty()),
                                     std::pair("admin_tls", config.admin_tls.on())}) {
      if (given) {
        in.fail(key, "is for an address beyond loopback, and admin is " + config.admin);
      }
    }
  } else if (!guarded) {
    in.fail("admin", "others can reach " + config.admin +
                         ": name admin_key_file and admin_tls, or use 127.0.0.1:PORT");
  }
}

}  // namespace

bool LauncherConfig::admin_is_local() const {
  const auto address = net::parse_http_address(admin);
  return address && (address->host == "127.0.0.1" || address->host == "localhost");
}

void read_state_dir(ConfigReader& in, std::string& state_dir) {
  in.path(
      "state_dir", state_dir,
      {.doc = "Holds one folder per job. Default: pdjob in $XDG_STATE_HOME or in ~/.local/state."});
}

void read(ConfigReader& in, LauncherConfig& config) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  in.field("admin", config.admin,
           {.doc = "Where the dashboard, status, /metrics and /plan are served. Port 0: any free "
                   "one. Beyond loopback it needs admin_key_file and admin_tls."});
  in.path("admin_key_file", config.admin_key_file,
          {.doc = "Holds the key that an address beyond loopback asks for, in one line; readable "
                  "for its owner only."});
  router::read_tls(in, "admin_tls", "HTTPS of an address beyond loopback, as router.tls.",
                   config.admin_tls);
  in.field("control_host", config.control_host,
           {.doc = "The address of this machine at which the job's processes reach the launcher. "
                   "They prove themselves with keys. Default: that on which the first cluster of "
                   "agents listens, without one 127.0.0.1."});
  in.field("start_timeout", config.start_timeout,
           {.doc = "The job must be ready, and a restarted process must have registered, within "
                   "it. Time in "
                   "which a process waited for a core does not count."},
           {seconds(1), hours(24)});
  in.field(
      "stop_timeout", config.stop_timeout,
      {.doc =
           "Requests may finish for this long after SIGTERM or SIGINT; then everything is killed. "
           "A "
           "prefill worker that was started by hand, or ended alone, has kvtransfer.lease on top."},
      {seconds(0), hours(24)});
  in.field("drain_timeout", config.drain_timeout,
           {.doc = "The same for a worker that leaves while the job goes on: it was scaled away, "
                   "changes its role, or is replaced because it is slow. Then its streams go on at "
                   "other workers where they can; other requests fail."},
           {seconds(0), hours(24)});
  in.field("heartbeat_timeout", config.heartbeat_timeout,
           {.doc = "A process that was silent this long gets no new requests. One whose heartbeats "
                   "came regularly so far is suspected sooner: after 2.5 times its longest gap of "
                   "the last minutes, at least 1s."},
           {seconds(1), hours(1)});
  in.field(
      "hang_timeout", config.hang_timeout,
      {.doc = "A process that was silent this long is killed and replaced. One that is found "
              "asleep twice while it should send heartbeats is replaced at once. Time in which "
              "it waited for a core does not count."},
      {seconds(2), hours(1)});
  in.field(
      "progress_timeout", config.progress_timeout,
      {.doc = "A worker that has work and makes no progress for this long is hung: it writes "
              "its stacks to its log, and is killed and replaced. Time in which it waited for a "
              "core does not count. Must be longer than one "
              "step of `batch_tokens` takes. After a few steps the embedded engine knows how "
              "long a step may take, and is found hung after eight times that, at least "
              "1.5s. An engine of another make gets three times its longest pause of the "
              "last minutes, if that is longer than progress_timeout."},
      {seconds(1), hours(24)});
  in.field("orphan_timeout", config.orphan_timeout,
           {.doc = "How long processes outlive a launcher that is lost. Another launcher of the "
                   "same file may adopt them meanwhile, and clients notice nothing. 0: they end as "
                   "soon as it is lost. Nodes of kind ray are not adopted."},
           {seconds(0), hours(24 * 7)});
  in.field("keep", config.keep,
           {.doc = "How long workers and stores of a ready job stay warm after it was told to end "
                   "(Ctrl-C, SIGTERM, the end of a batch). The next job of the same name and "
                   "file goes on with them at once; with another file it ends them and starts "
                   "anew. `pdjob stop` ends them."},
           {seconds(0), hours(24 * 7)});
  in.section(
      "restart", {.doc = "When a process that died is started again."}, [&](ConfigReader& section) {
        RestartConfig& restart = config.restart;
        section.field("backoff_min", restart.backoff_min,
                      {.doc = "The first wait; it doubles with each death in a row."},
                      {milliseconds(10), hours(1)});
        section.field("backoff_max", restart.backoff_max, {.doc = "The longest wait."},
                      {milliseconds(10), hours(1)});
        section.field("healthy_after", restart.healthy_after,
                      {.doc = "A process that lived this long starts counting anew."},
                      {seconds(1), hours(24)});
        section.field(
            "attempts", restart.attempts,
            {.doc = "A process that died this often without ever being ready fails a job that "
                    "starts, unless another one of its role serves its model. It is tried again "
                    "all the same."},
            {1, 1000});
      });
  in.section("stragglers", {.doc = "When a worker that is slower than its peers is replaced."},
             [&](ConfigReader& section) { read(section, config.stragglers); });
  in.field(
      "replace_failing", config.replace_failing,
      {.doc = "When hand-overs between two workers go on failing, while other pairs do the same "
              "requests well, the older worker is drained and replaced, or the one that fails "
              "with more partners. Between two replacements of a group pass at least twice "
              "`stragglers.after`. false: the router only avoids the pair."});
  read_state_dir(in, config.state_dir);
  in.path(
      "log_dir", config.log_dir,
      {.doc =
           "Holds one log file per process. Two running jobs cannot share it. pdjob removes only "
           "files that it made there. Default: logs in the job's folder in state_dir."});
  check_admin(in, config);
  if (config.hang_timeout < config.heartbeat_timeout) {
    in.fail("hang_timeout", "must not be below heartbeat_timeout");
  }
  if (config.restart.backoff_max < config.restart.backoff_min) {
    in.fail("restart", "backoff_max must not be below backoff_min");
  }
}

}  // namespace pdjob::launcher
