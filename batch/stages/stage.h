// Stage: the shell of one StagePool core. It keeps the lines of the rows, and the processes that
// answer them. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "batch/config/stage_config.h"
#include "batch/stages/stage_line.h"
#include "batch/stages/stage_pool.h"
#include "batch/stages/stage_process.h"
#include "common/os/tied_posts.h"
#include "common/result.h"
#include "net/loop/core_runner.h"
#include "net/loop/event_loop.h"

namespace pdjob::batch {

struct StagePlace {
  std::string folder;  // Of the job file: processes start there.
  std::string logs;    // A folder for their logs.
};

class Stage final : StageProcess::Handler {
 public:
  struct End {
    StageReply reply;      // Of kFailed, if the stage itself failed at the row.
    std::string hopeless;  // Not empty: the whole stage is given up, and why.
  };
  using Then = std::function<void(End)>;
  struct Counts {
    size_t waiting = 0;
    size_t under_way = 0;
    uint64_t restarts = 0;
  };

  // `tell`: says to people that a process died. Requires: stage_command() succeeds.
  Stage(net::EventLoop& loop, StageSide side, const StageConfig& config, const StagePlace& place,
        std::function<void(const std::string&)> tell);
  ~Stage();  // Kills the processes.
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Calls `then` once, in a later turn; not after cancel().
  StageRow ask(std::string custom_id, std::string line, Then then);
  void cancel(StageRow row);
  // The processes read the end of their input. Calls `then` once, in a later turn, when all have
  // ended. Requires: no row is asked any more.
  void finish(std::function<void()> then);

  const std::string& name() const { return config_.name; }
  StageSide side() const { return side_; }
  Counts counts() const { return {pool_.waiting(), pool_.under_way(), pool_.deaths()}; }

 private:
  using Runner = net::CoreRunner<Stage, StagePool, StageEvent, StageEffect>;
  friend Runner;
  struct Row {
    std::string custom_id;
    std::string line;
    Then then;
  };

  void on_stage_line(StageRun run, std::string line) override;
  void on_stage_end(StageRun run, const std::string& how) override;

  void stepped(const StageEvent& /*event*/, const std::vector<StageEffect>& /*effects*/) {}
  void carried_out(const StageEvent& /*event*/) {}
  void carry_out(const StartStageProcess& effect);
  void carry_out(const EndStageProcess& effect);
  void carry_out(const SendStageRow& effect);
  void carry_out(const PassStageAnswer& effect);
  void carry_out(const FailStageRow& effect);
  void carry_out(const TellStageDeath& effect);
  void carry_out(const GiveUpStage& effect);
  void end_row(StageRow row, End end);
  void end_if_finished();
  std::string log_of(uint32_t worker) const;

  net::EventLoop& loop_;
  const StageSide side_;
  const StageConfig config_;
  const StagePlace place_;
  const std::function<void(const std::string&)> tell_;
  StagePool pool_;
  Runner runner_;
  uint64_t rows_made_ = 0;
  std::map<StageRow, Row> rows_;
  StageReply answer_;               // Of the line that is being taken.
  std::string hopeless_;            // Not empty: given up.
  Instant quiet_until_{};           // No death is told before.
  std::function<void()> finished_;  // Not empty: no process is started any more.
  std::map<StageRun, std::unique_ptr<StageProcess>> processes_;
  TiedPosts<net::EventLoop> posts_;
};

}  // namespace pdjob::batch
