#include "batch/stages/stage.h"

#include <utility>

#include "batch/stages/stage_command.h"

namespace pdjob::batch {
namespace {

constexpr Duration kTellInterval = std::chrono::seconds(1);

}  // namespace

Stage::Stage(net::EventLoop& loop, StageSide side, const StageConfig& config,
             const StagePlace& place, std::function<void(const std::string&)> tell)
    : loop_(loop),
      side_(side),
      config_(config),
      place_(place),
      tell_(std::move(tell)),
      pool_({.workers = config.workers,
             .pipeline = config.pipeline,
             .timeout = config.timeout,
             .start_timeout = config.start_timeout}),
      runner_(loop, pool_, *this),
      posts_(loop) {}

Stage::~Stage() = default;

StageRow Stage::ask(std::string custom_id, std::string line, Then then) {
  const StageRow row{++rows_made_};
  rows_.emplace(row, Row{std::move(custom_id), std::move(line), std::move(then)});
  if (hopeless_.empty()) {
    runner_.submit(StageRowCame{row});
  } else {
    end_row(row, {.hopeless = hopeless_});
  }
  return row;
}

void Stage::cancel(StageRow row) {
  if (rows_.erase(row) > 0) {
    runner_.submit(StageRowLeft{row});
  }
}

void Stage::finish(std::function<void()> then) {
  finished_ = std::move(then);
  for (const auto& [run, process] : processes_) {
    process->finish();
  }
  end_if_finished();
}

void Stage::end_if_finished() {
  if (finished_ && processes_.empty()) {
    posts_.post(finished_);
  }
}

// ---- Processes

void Stage::on_stage_line(StageRun run, std::string line) {
  if (finished_) {
    return;
  }
  if (const auto first = pool_.first_of(run)) {
    auto reply = read_stage_line(side_, std::move(line), rows_.at(*first).custom_id);
    if (!reply) {
      on_stage_end(run, reply.error().message);
      return;
    }
    answer_ = std::move(*reply);
  }
  runner_.submit(StageAnswered{run});
}

void Stage::on_stage_end(StageRun run, const std::string& how) {
  processes_.erase(run);
  if (finished_) {
    end_if_finished();
  } else {
    runner_.submit(StageDied{run, how});
  }
}

void Stage::carry_out(const StartStageProcess& effect) {
  auto command = stage_command(config_, place_.folder);
  auto process = !command
                     ? Result<std::unique_ptr<StageProcess>>(command.error())
                     : StageProcess::start(
                           loop_, effect.run,
                           {.command = std::move(*command),
                            .environment = {{"PDJOB_STAGE", config_.name},
                                            {"PDJOB_STAGE_WORKER", std::to_string(effect.worker)},
                                            {"PYTHONUNBUFFERED", "1"}},
                            .folder = place_.folder,
                            .log = log_of(effect.worker)},
                           *this);
  if (process) {
    processes_.emplace(effect.run, std::move(*process));
  } else {
    runner_.submit(StageDied{effect.run, "it does not start: " + process.error().message});
  }
}

void Stage::carry_out(const EndStageProcess& effect) { processes_.erase(effect.run); }

void Stage::carry_out(const SendStageRow& effect) {
  if (const auto process = processes_.find(effect.run); process != processes_.end()) {
    process->second->send(rows_.at(effect.row).line);
  }
}

// A program may end after each row.
void Stage::carry_out(const TellStageDeath& effect) {
  if (loop_.now() < quiet_until_) {
    return;
  }
  quiet_until_ = loop_.now() + kTellInterval;
  tell_("stage " + config_.name + ": process " + std::to_string(effect.worker) +
        " ended: " + effect.how + " (log: " + log_of(effect.worker) + ")");
}

std::string Stage::log_of(uint32_t worker) const {
  return place_.logs + "/" + config_.name + "-" + std::to_string(worker) + ".log";
}

// ---- Rows

void Stage::carry_out(const PassStageAnswer& effect) {
  end_row(effect.row, {.reply = std::exchange(answer_, {})});
}

void Stage::carry_out(const FailStageRow& effect) {
  end_row(effect.row, {.reply = {.kind = StageReply::Kind::kFailed,
                                 .reason = effect.reason + "; its logs are in " + place_.logs}});
}

void Stage::carry_out(const GiveUpStage& effect) {
  hopeless_ = "stage " + config_.name + " (" + command_text(config_) +
              ") does not work: " + effect.reason + ". Its logs are in " + place_.logs +
              ". Repair it, then give the same command again";
  for (const auto& [row, asked] : rows_) {
    end_row(row, {.hopeless = hopeless_});
  }
}

// In a later turn: ask() may be running. By then the row may have left, or have ended.
void Stage::end_row(StageRow row, End end) {
  posts_.post([this, row, end = std::move(end)] {
    if (auto found = rows_.extract(row)) {
      found.mapped().then(end);
    }
  });
}

}  // namespace pdjob::batch
