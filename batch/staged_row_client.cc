#include "batch/staged_row_client.h"

#include <utility>

#include "batch/input/row_reader.h"

namespace pdjob::batch {
namespace {

void refuse_row(RowResult& result, std::string cause, std::string message) {
  result.outcome = Outcome::kRefused;
  result.cause = std::move(cause);
  result.message = std::move(message);
}

}  // namespace

StagedRowClient::StagedRowClient(net::EventLoop& loop, std::unique_ptr<RowClient> model,
                                 const StagesConfig& stages, const StagePlace& place,
                                 const std::function<void(const std::string&)>& tell)
    : loop_(loop), before_(stages.before.size()), model_(std::move(model)) {
  for (const StageConfig& stage : stages.before) {
    stages_.push_back(std::make_unique<Stage>(loop, StageSide::kBefore, stage, place, tell));
  }
  for (const StageConfig& stage : stages.after) {
    stages_.push_back(std::make_unique<Stage>(loop, StageSide::kAfter, stage, place, tell));
  }
}

StagedRowClient::~StagedRowClient() { loop_.cancel(finish_timer_); }

void StagedRowClient::start(Attempt attempt, const Then& then) {
  const AttemptId id = attempt.id;
  running_[id] = {.attempt = std::move(attempt), .then = then};
  advance(id);
}

void StagedRowClient::cancel(AttemptId attempt) {
  if (auto found = running_.extract(attempt)) {
    const Running& running = found.mapped();
    if (running.at_model) {
      model_->cancel(attempt);
    } else if (running.row != StageRow{}) {
      stages_[running.passed]->cancel(running.row);
    }
  }
}

void StagedRowClient::count_workers(std::function<void(size_t)> then) {
  model_->count_workers(std::move(then));
}

// ---- The way of an attempt

void StagedRowClient::advance(AttemptId id) {
  Running& running = running_.at(id);
  if (running.passed == before_ && !running.answered) {
    ask_model(running);
  } else if (running.passed < stages_.size()) {
    ask_stage(id, running, *stages_[running.passed]);
  } else {
    end(id);
  }
}

void StagedRowClient::ask_stage(AttemptId id, Running& running, Stage& stage) {
  const Attempt& attempt = running.attempt;
  std::string line = stage_line(stage.side(),
                                {.custom_id = attempt.custom_id,
                                 .url = attempt.target,
                                 .body = attempt.body,
                                 .response = running.result.body},
                                running.notes);
  running.row = stage.ask(attempt.custom_id, std::move(line),
                          [this, id](const Stage::End& end) { stage_ended(id, end); });
}

void StagedRowClient::ask_model(Running& running) {
  running.at_model = true;
  const bool body_is_wanted = before_ < stages_.size();
  Attempt attempt = body_is_wanted ? running.attempt : std::move(running.attempt);
  model_->start(std::move(attempt), [this](AttemptId attempt_id, RowResult result) {
    model_ended(attempt_id, std::move(result));
  });
}

void StagedRowClient::model_ended(AttemptId id, RowResult result) {
  Running& running = running_.at(id);
  running.at_model = false;
  running.answered = result.outcome == Outcome::kAnswered;
  running.result = std::move(result);
  if (running.answered) {
    advance(id);
  } else {
    end(id);
  }
}

void StagedRowClient::stage_ended(AttemptId id, const Stage::End& end) {
  Running& running = running_.at(id);
  const Stage& stage = *stages_[running.passed];
  running.row = {};
  if (!end.hopeless.empty()) {
    refuse_row(running.result, "failed_in_" + stage.name(), end.hopeless);
    running.result.status = 0;
    running.result.hopeless = end.hopeless;
    this->end(id);
    return;
  }
  if (!take_reply(running, stage, end.reply)) {
    this->end(id);
    return;
  }
  running.passed += 1;
  advance(id);
}

bool StagedRowClient::take_reply(Running& running, const Stage& stage, const StageReply& reply) {
  if (reply.kind != StageReply::Kind::kChanged) {
    const bool dropped = reply.kind == StageReply::Kind::kDropped;
    refuse_row(running.result, (dropped ? "dropped_by_" : "failed_in_") + stage.name(),
               reply.reason);
    return false;
  }
  if (!reply.notes.empty()) {
    running.notes.emplace_back(stage.name(), reply.notes);
  }
  if (!reply.response.empty()) {
    running.result.body = reply.response;
  }
  if (!reply.url.empty() || !reply.body.empty()) {
    Attempt& attempt = running.attempt;
    RowError error;
    auto request = checked_request({.custom_id = attempt.custom_id,
                                    .target = reply.url.empty() ? attempt.target : reply.url,
                                    .body = reply.body.empty() ? attempt.body : reply.body},
                                   error);
    if (!request) {
      refuse_row(running.result, "failed_in_" + stage.name(), error.message);
      return false;
    }
    attempt.target = std::move(request->target);
    attempt.body = std::move(request->body);
  }
  return true;
}

void StagedRowClient::end(AttemptId id) {
  Running running = std::move(running_.extract(id).mapped());
  running.result.stages = notes_object(running.notes);
  running.then(id, std::move(running.result));
}

// ---- The end

void StagedRowClient::finish(std::function<void()> then) {
  while (!running_.empty()) {
    cancel(running_.begin()->first);
  }
  model_.reset();
  finished_ = std::move(then);
  unfinished_ = stages_.size();
  const auto done = [this] {
    if (finished_) {
      loop_.post(std::exchange(finished_, nullptr));
    }
  };
  for (const auto& stage : stages_) {
    stage->finish([this, done] {
      if (--unfinished_ == 0) {
        done();
      }
    });
  }
  finish_timer_ = loop_.call_at(loop_.now() + kFinishTimeout, done);
}

std::vector<StageProgress> StagedRowClient::progress() const {
  std::vector<StageProgress> all;
  for (const auto& stage : stages_) {
    const Stage::Counts counts = stage->counts();
    all.push_back({.name = stage->name(),
                   .waiting = counts.waiting,
                   .under_way = counts.under_way,
                   .restarts = counts.restarts});
  }
  return all;
}

}  // namespace pdjob::batch
