// StagedRowClient: an attempt of a row goes through the stages before the model, then to another
// RowClient, then its answer goes through the stages after the model. The ledger sees one attempt.
// Loop-bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "batch/progress.h"
#include "batch/row_client.h"
#include "batch/stages/stage.h"
#include "net/loop/event_loop.h"

namespace pdjob::batch {

class StagedRowClient final : public RowClient {
 public:
  // Processes may take so long to end by themselves.
  static constexpr Duration kFinishTimeout = std::chrono::seconds(3);

  // `tell`: as for Stage. Requires: check_stages() succeeds.
  StagedRowClient(net::EventLoop& loop, std::unique_ptr<RowClient> model,
                  const StagesConfig& stages, const StagePlace& place,
                  const std::function<void(const std::string&)>& tell);
  ~StagedRowClient() override;
  StagedRowClient(const StagedRowClient&) = delete;
  StagedRowClient& operator=(const StagedRowClient&) = delete;

  void start(Attempt attempt, const Then& then) override;
  void cancel(AttemptId attempt) override;
  void on_told(OnTold told) override { model_->on_told(std::move(told)); }
  void count_workers(std::function<void(size_t)> then) override;

  // Cancels all attempts, and lets the processes end. Calls `then` once, in a later turn. Attempts
  // and count_workers() call back no more. Requires: no such call is under way, and nothing is
  // asked afterwards.
  void finish(std::function<void()> then);
  std::vector<StageProgress> progress() const;

 private:
  struct Running {
    Attempt attempt;
    Then then;
    size_t passed = 0;  // Stages.
    StageRow row;       // In the next one, if it was asked.
    bool at_model = false;
    bool answered = false;  // By the model: `result` has the reply.
    RowResult result;
    StageNotes notes;
  };

  void advance(AttemptId id);
  void ask_stage(AttemptId id, Running& running, Stage& stage);
  void ask_model(Running& running);
  void stage_ended(AttemptId id, const Stage::End& end);
  // Returns false if the reply ends the attempt.
  bool take_reply(Running& running, const Stage& stage, const StageReply& reply);
  void model_ended(AttemptId id, RowResult result);
  void end(AttemptId id);

  net::EventLoop& loop_;
  std::vector<std::unique_ptr<Stage>> stages_;  // In order.
  size_t before_ = 0;                           // So many of them are before the model.
  size_t unfinished_ = 0;
  std::function<void()> finished_;
  net::TimerId finish_timer_;
  std::map<AttemptId, Running> running_;
  std::unique_ptr<RowClient> model_;  // Ends first: its calls report to us.
};

}  // namespace pdjob::batch
