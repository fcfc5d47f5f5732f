#include "launcher/tune/measure_command.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <utility>

#include <unistd.h>

#include "common/config/config_text.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/random.h"
#include "launcher/look/plain_text.h"
#include "launcher/tune/model_output.h"
#include "net/loop/event_loop.h"
#include "net/loop/signals.h"

namespace pdjob::launcher {
namespace {

// On a terminal one line that changes; elsewhere a line for each measurement.
class ProbeScreen {
 public:
  void show(const std::string& name, double share) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "measuring: %3.0f %%  %s", 100 * share, name.c_str());
    std::fprintf(stderr, "%s%s%s", is_terminal_ ? "\r\x1b[K" : "", line.data(),
                 is_terminal_ ? "" : "\n");
    open_ = is_terminal_;
  }
  void end() {
    std::fputs(open_ ? "\r\x1b[K" : "", stderr);
    open_ = false;
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  bool open_ = false;
};

std::string chunk_note(uint32_t chunk_tokens) {
  return chunk_tokens == 0
             ? "each prompt counts as one step: the engine's chunk was not named"
             : "prompts were computed in chunks of " + std::to_string(chunk_tokens) + " tokens";
}

Result<EngineModel> model_of(ProbedEngine engine, const MeasureFlags& flags,
                             const ProbedServers& servers, int64_t now) {
  auto steps = fit_steps(engine.steps);
  if (!steps) {
    return Error{ErrorCode::kTimeout, "too little was measured in " +
                                          std::to_string(flags.seconds) +
                                          " s: give more time by --seconds"};
  }
  EngineModel model = launcher::model_of(*steps);
  model.name = flags.name.empty() ? engine.model : flags.name;
  model.engine = engine.engine;
  model.date = date_text(now);
  model.device = flags.device;
  model.notes = std::move(engine.notes);
  model.notes.push_back(chunk_note(flags.chunk_tokens));
  if (!engine.transfers.empty()) {
    PDJOB_TRY(const TransferFit transfers, fit_transfers(engine.transfers));
    model.kv_per_transfer = transfers.per_transfer;
    model.kv_per_token = transfers.per_token;
    model.kv = transfers.error;
    model.probes.insert(model.probes.end(), transfers.probes.begin(), transfers.probes.end());
  } else {
    model.unmeasured.insert(model.unmeasured.end(), {"kv.per_transfer_us", "kv.per_token_us"});
    if (!servers.decode) {
      model.notes.emplace_back(
          "one server was measured: if it is a router, the time of KV transfers is in that of "
          "prompts");
    }
  }
  return model;
}

// Ctrl-C ends it at once; nothing is written then.
Result<EngineModel> measured(const MeasureFlags& flags, const Places& places) {
  PDJOB_TRY(const ProbedServers servers, servers_of(flags.servers, places));
  net::block_signals();
  net::EventLoop loop;
  ProbeScreen screen;
  EngineProbes probes(
      loop, servers,
      {.budget = std::chrono::seconds(flags.seconds),
       .model = flags.model,
       .chunk_tokens = flags.chunk_tokens,
       .seed = entropy()},
      [&screen](const std::string& name, double share) { screen.show(name, share); });
  const net::StopSignals signals(loop, std::array{SIGINT, SIGTERM, SIGHUP},
                                 [&probes](int /*signal*/) { probes.stop(); });
  auto engine = probes.run();
  screen.end();
  if (!engine) {
    return engine.error();
  }
  return model_of(*std::move(engine), flags, servers, loop.unix_seconds());
}

int refused(const Error& error) {
  constexpr size_t kShownMax = 2000;
  std::fprintf(stderr, "pdjob tune: %s\n", printable(error.message, kShownMax).c_str());
  return error.code == ErrorCode::kCancelled         ? kExitInterrupted
         : error.code == ErrorCode::kInvalidArgument ? kExitUsage
                                                     : kExitFailed;
}

}  // namespace

int measure_engine(const MeasureFlags& flags, const Places& places) {
  log::start("tune", log::Level::kNothing);
  auto output = ModelOutput::open(flags.out);
  if (!output) {
    return refused(output.error());
  }
  const auto model = measured(flags, places);
  if (!model) {
    return refused(model.error());
  }
  if (const Status written = output->write(*model); !written) {
    return refused(written.error());
  }
  std::fputs(plain_text(model_summary(*model)).c_str(), stdout);
  std::printf("written: %s\n", flags.out.c_str());
  return kExitOk;
}

}  // namespace pdjob::launcher
