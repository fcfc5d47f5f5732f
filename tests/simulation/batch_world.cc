#include "tests/simulation/batch_world.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "batch/core/ledger.h"
#include "batch/half_done_rows.h"
#include "batch/store/disk.h"
#include "batch/store/ledger_file.h"
#include "batch/store/records.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_disk.h"

namespace pdjob::simulation {
namespace {

using namespace batch;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;

constexpr const char* kFolder = "batch";
constexpr const char* kLedger = "batch/ledger.sqlite";

class SimAppendFile final : public AppendFile {
 public:
  SimAppendFile(SimDisk& disk, std::string name) : disk_(disk), name_(std::move(name)) {}
  Status append(std::string_view bytes) override {
    disk_.append(name_, bytes);
    return ok();
  }
  Status sync() override {
    disk_.sync(name_);
    return ok();
  }

 private:
  SimDisk& disk_;
  const std::string name_;
};

class SimBatchDisk final : public Disk {
 public:
  explicit SimBatchDisk(SimDisk& disk) : disk_(disk) {}
  Result<std::unique_ptr<AppendFile>> open(const std::string& name, uint64_t size) override {
    const size_t there = disk_.content(name).size();
    if (there < size && !disk_.crashed()) {
      return Error{ErrorCode::kCorrupt, name + " has " + std::to_string(there) +
                                            " bytes, but the ledger knows " + std::to_string(size)};
    }
    disk_.cut(name, size);
    return std::unique_ptr<AppendFile>(std::make_unique<SimAppendFile>(disk_, name));
  }
  Status copy(const std::string& from, uint64_t offset, uint64_t size, AppendFile& out) override {
    const std::string content = disk_.content(from);
    if (content.size() < offset + size && !disk_.crashed()) {
      return Error{ErrorCode::kCorrupt, from + " is too short"};
    }
    return out.append(content.substr(std::min(offset, content.size()), size));
  }
  Status rename(const std::string& from, const std::string& to) override {
    disk_.rename(from, to);
    return ok();
  }

 private:
  SimDisk& disk_;
};

// What the server makes of a row is always the same.
std::string answer_of(RowId row) { return "answer " + std::to_string(row.value); }

class BatchWorld {
 public:
  explicit BatchWorld(const SimCall& call)
      : random_(call.seed), disk_(call.seed), files_(disk_), trace_(call.print) {
    rows_ = 1 + random_.below(random_.chance(0.1) ? 400 : 40);
    part_bytes_ = random_.chance(0.5) ? 60 : 100'000;
    failure_rate_ = random_.unit() * 0.5;
  }

  SimRun run() {
    const uint64_t crashes_max = random_.below(6);
    while (!complete_ && violation_.empty()) {
      if (crashes_ < crashes_max) {
        disk_.crash_after(1 + random_.below(random_.chance(0.5) ? 60 : 600));
      }
      live();
      if (complete_ && !disk_.crashed()) {
        break;
      }
      complete_ = false;
      ++crashes_;
      end_process();
    }
    if (violation_.empty()) {
      check_results();
    }
    end_process();
    return {.violation = violation_,
            .trace_hash = trace_.hash(),
            .trace_lines = trace_.lines(),
            .counts = {{"rows", rows_},
                       {"attempts", attempts_},
                       {"went on", went_on_},
                       {"crashes", crashes_},
                       {"power cuts", power_cuts_},
                       {"failed", failed_}}};
  }

 private:
  struct Process {
    std::unique_ptr<LedgerFile> ledger;
    std::unique_ptr<Records> records;
    std::unique_ptr<Ledger> core;
    RowId last_read;
    std::map<AttemptId, RowId> asked;
    std::multimap<Instant, std::pair<AttemptId, Outcome>> ends;
    std::set<RowId> ended;  // As its ledger says.
    std::vector<Record> notes;
    std::map<RowId, Blame> blames;
    HalfDoneRows half_done;
    LedgerFile::HalfDone told;
    std::map<AttemptId, std::vector<Token>> generated;  // Of attempts under way.
    std::multimap<Instant, AttemptId> tellings;
    Instant flush_at = kNever;
  };

  void violate(const std::string& what) {
    if (violation_.empty() && !disk_.crashed()) {
      violation_ = what;
    }
  }
  // An error of the disk itself cannot be: it is either healthy, or the process is dead.
  bool good(const Status& status, const char* what) {
    if (!status) {
      violate(std::string(what) + ": " + status.error().message);
    }
    return status.has_value() && !disk_.crashed();
  }

  // A process goes on killed, with or without a power cut.
  void end_process() {
    disk_.kill([&] { process_ = {}; });
    if (random_.chance(0.5)) {
      ++power_cuts_;
      disk_.cut_power();
    }
    trace_.line(now_, "batch", "ends");
  }

  bool open() {
    auto ledger = LedgerFile::open(kLedger);
    if (!ledger) {
      return good(ledger.error(), "opening the ledger");
    }
    process_.ledger = std::move(*ledger);
    auto scanned = process_.ledger->scanned();
    if (!scanned) {
      return good(scanned.error(), "reading the ledger");
    }
    if (!*scanned && !good(scan(), "scanning")) {
      return false;
    }
    if (!look_back()) {
      return false;
    }
    auto records = Records::open(files_, *process_.ledger, kFolder, part_bytes_);
    if (!records) {
      return good(records.error(), "opening the parts");
    }
    process_.records = std::move(*records);
    LedgerConfig config{
        .attempts_max = 4, .patience = std::chrono::hours(24), .straggler_min = milliseconds(300)};
    config.window = {.first = 1 + random_.below(16), .max = 64};
    config.rows_ahead = 4 + random_.below(100);
    config.noting_max = 1 + random_.below(20);
    process_.core = std::make_unique<Ledger>(config, random_.next());
    return !disk_.crashed();
  }

  // A row may have been noted just before the end of the process that wanted it. Now that the
  // ledger is open, it stays noted.
  bool look_back() {
    const auto rows = process_.ledger->pending(RowId{0}, rows_ + 1);
    if (!rows) {
      return good(rows.error(), "reading the pending rows");
    }
    std::set<RowId> pending;
    for (const InputRow& row : *rows) {
      pending.insert(row.id);
      if (noted_.contains(row.id)) {
        violate("row " + std::to_string(row.id.value) + " was noted, and is pending");
      }
    }
    for (const auto& [id, kind] : wanted_) {
      if (!pending.contains(id)) {
        process_.ended.insert(id);
      }
    }
    if (disk_.crashed()) {
      return false;
    }
    noted_.insert(process_.ended.begin(), process_.ended.end());
    return true;
  }

  Status scan() {
    PDJOB_TRY_STATUS(process_.ledger->begin_scan());
    for (uint64_t id = 1; id <= rows_; ++id) {
      PDJOB_TRY_STATUS(
          process_.ledger->add_row({.id = RowId{id},
                                    .line = id,
                                    .weight = static_cast<uint32_t>(random_.below(100)),
                                    .beginning = random_.below(6)}));
    }
    return process_.ledger->end_scan();
  }

  // One life of the process, until it is complete or dead.
  void live() {
    if (!open()) {
      return;
    }
    submit(TimePassed{});
    while (!complete_ && !disk_.crashed() && violation_.empty()) {
      const Instant end = process_.ends.empty() ? kNever : process_.ends.begin()->first;
      const Instant telling = process_.tellings.empty() ? kNever : process_.tellings.begin()->first;
      const Instant next =
          std::min({process_.core->next_wakeup(), end, telling, process_.flush_at});
      if (next == kNever) {
        violate("it waits for nothing, and is not complete");
        return;
      }
      now_ = std::max(now_, next);
      if (process_.flush_at <= now_) {
        flush();
      } else if (telling <= now_) {
        tell(process_.tellings.extract(process_.tellings.begin()).mapped());
      } else if (end <= now_) {
        const auto [attempt, outcome] = process_.ends.begin()->second;
        process_.ends.erase(process_.ends.begin());
        process_.half_done.ended(attempt, HalfDoneRows::End::kOther);
        process_.generated.erase(attempt);
        submit(AttemptEnded{attempt, outcome});
      } else {
        submit(TimePassed{});
      }
    }
  }

  void submit(const LedgerEvent& event) {
    std::vector<LedgerEvent> events = {event};
    for (size_t i = 0; i < events.size(); ++i) {
      std::vector<LedgerEffect> effects;
      process_.core->step(events[i], now_, effects);
      for (const LedgerEffect& effect : effects) {
        std::visit([&](const auto& one) { carry_out(one, events); }, effect);
      }
    }
  }

  void carry_out(const ReadRows& effect, std::vector<LedgerEvent>& events) {
    const auto rows = process_.ledger->pending(process_.last_read, effect.count);
    RowsRead event{.last = !rows || rows->size() < effect.count};
    if (rows && !rows->empty()) {
      const auto told = process_.ledger->half_done(rows->front().id, rows->back().id);
      if (good(told ? ok() : Status(told.error()), "reading tokens")) {
        for (const auto& [row, notes] : *told) {
          process_.half_done.restore(row, notes);
        }
      }
    }
    for (size_t i = 0; rows && i < rows->size(); ++i) {
      process_.last_read = (*rows)[i].id;
      const InputRow& row = (*rows)[i];
      event.rows.push_back({row.id, row.weight, row.blame, row.beginning});
      const Blame known = blamed_[row.id];
      if (row.blame.broken < known.broken || row.blame.lost < known.lost) {
        violate("what row " + std::to_string(row.id.value) + " was blamed for is forgotten");
      }
    }
    events.emplace_back(std::move(event));
  }

  void carry_out(const StartAttempt& effect, std::vector<LedgerEvent>& /*events*/) {
    trace_.line(now_, "batch", "asks " + std::to_string(effect.row.value));
    ++attempts_;
    if (process_.ended.contains(effect.row)) {
      violate("row " + std::to_string(effect.row.value) + " has ended, and is asked again");
    }
    process_.asked.emplace(effect.attempt, effect.row);
    Outcome outcome = Outcome::kAnswered;
    if (random_.chance(failure_rate_)) {
      constexpr Outcome kFailures[] = {Outcome::kRefused, Outcome::kBroken, Outcome::kLost,
                                       Outcome::kBusy, Outcome::kUnreachable};
      outcome = kFailures[random_.below(std::size(kFailures))];
    }
    const Duration takes = milliseconds(random_.chance(0.05) ? 5000 : 1 + random_.below(200));
    process_.ends.emplace(now_ + takes, std::pair(effect.attempt, outcome));
    for (uint64_t left = random_.below(4); left > 0; --left) {
      process_.tellings.emplace(now_ + Duration(static_cast<int64_t>(
                                           random_.below(static_cast<uint64_t>(takes.count())))),
                                effect.attempt);
    }
    go_on(effect);
  }

  // An attempt goes on with the beginning of the tokens that some attempt of its row had.
  void go_on(const StartAttempt& effect) {
    const std::string resume = process_.half_done.begin(effect.row, effect.attempt).goes_on.tokens;
    std::vector<Token>& tokens = process_.generated[effect.attempt];
    std::istringstream list(resume.substr(std::min<size_t>(resume.size(), 2)));  // "[[1,2]]"
    for (Token token = 0; list >> token; list.get()) {
      tokens.push_back(token);
    }
    const auto& known = generations_[effect.row];
    const bool begins_one = std::ranges::any_of(known, [&](const std::vector<Token>& generation) {
      return generation.size() >= tokens.size() &&
             std::equal(tokens.begin(), tokens.end(), generation.begin());
    });
    if (!tokens.empty() && !begins_one) {
      violate("row " + std::to_string(effect.row.value) + " goes on with tokens of two attempts");
    }
    if (tokens.size() < told_[effect.row]) {
      violate("tokens of row " + std::to_string(effect.row.value) +
              " were kept, and are forgotten");
    }
    went_on_ += tokens.empty() ? 0 : 1;
  }

  // Each attempt generates other tokens. It tells them even if it was not asked to.
  void tell(AttemptId attempt) {
    const auto found = process_.generated.find(attempt);
    if (found == process_.generated.end()) {
      return;  // It has ended.
    }
    std::vector<Token>& tokens = found->second;
    std::string note = "0@" + std::to_string(tokens.size());
    for (uint64_t left = 1 + random_.below(5); left > 0; --left) {
      tokens.push_back(++last_token_);
      note += "." + std::to_string(last_token_);
    }
    generations_[process_.asked.at(attempt)].push_back(tokens);
    if (const RowId row = process_.half_done.take(attempt, note + ";m=ab"); row != RowId{}) {
      process_.told.emplace_back(row, note + ";m=ab");
      process_.flush_at = std::min(process_.flush_at, now_ + milliseconds(random_.below(50)));
    }
  }

  // Its reply may be on its way already, and then arrives.
  void carry_out(const CancelAttempt& effect, std::vector<LedgerEvent>& /*events*/) {
    process_.half_done.ended(effect.attempt, HalfDoneRows::End::kOther);
    if (random_.chance(0.5)) {
      std::erase_if(process_.ends,
                    [&](const auto& end) { return end.second.first == effect.attempt; });
      process_.generated.erase(effect.attempt);
    }
  }
  void carry_out(const DropReply& /*effect*/, std::vector<LedgerEvent>& /*events*/) {}

  void carry_out(const NoteBlame& effect, std::vector<LedgerEvent>& /*events*/) {
    if (effect.blame.broken > 3) {
      violate("row " + std::to_string(effect.row.value) + " is asked too often");
    }
    process_.blames[effect.row] = effect.blame;
    process_.flush_at = std::min(process_.flush_at, now_ + milliseconds(random_.below(50)));
  }

  void carry_out(const NoteRow& effect, std::vector<LedgerEvent>& /*events*/) {
    if (process_.asked.at(effect.attempt) != effect.row) {
      violate("the reply of another row is noted");
    }
    process_.half_done.forget(effect.row);
    std::erase_if(process_.told, [&](const auto& note) { return note.first == effect.row; });
    process_.notes.push_back({.id = effect.row,
                              .kind = effect.answered ? RecordKind::kOutput : RecordKind::kError,
                              .line = answer_of(effect.row) + (effect.answered ? "" : " failed"),
                              .stats = {.attempts = effect.attempts}});
    process_.flush_at = std::min(process_.flush_at, now_ + milliseconds(random_.below(50)));
  }

  void flush() {
    process_.flush_at = kNever;
    const std::vector<Record> notes = std::exchange(process_.notes, {});
    for (const Record& record : notes) {
      wanted_[record.id] = record.kind;
    }
    if (!good(process_.records->note(notes), "noting")) {
      return;
    }
    const auto blames = std::exchange(process_.blames, {});
    if (!good(process_.ledger->note_blames(blames), "noting blames")) {
      return;
    }
    for (const auto& [id, blame] : blames) {
      blamed_[id] = blame;
    }
    const auto told = std::exchange(process_.told, {});
    if (!good(process_.ledger->note_half_done(told), "noting tokens")) {
      return;
    }
    for (const auto& [row, note] : told) {
      told_[row] += static_cast<size_t>(std::ranges::count(note, '.'));
    }
    RowsNoted event;
    for (const Record& record : notes) {
      event.rows.push_back(record.id);
      if (!process_.ended.insert(record.id).second) {
        violate("row " + std::to_string(record.id.value) + " is noted twice");
      }
      noted_.insert(record.id);
    }
    trace_.line(now_, "batch", "notes " + std::to_string(notes.size()));
    submit(event);
  }

  void carry_out(const Finished& effect, std::vector<LedgerEvent>& /*events*/) {
    complete_ =
        effect.complete && good(process_.records->merge(LedgerFile::Order::kInput), "merging");
    if (!effect.complete) {
      violate("it gave up: " + effect.reason);
    }
  }

  void check_results() {
    std::string output;
    std::string errors;
    for (uint64_t number = 1; number <= rows_; ++number) {
      const RowId id{number};
      if (!process_.ended.contains(id)) {
        violate("row " + std::to_string(number) + " has no end");
        return;
      }
      const bool failed = wanted_.at(id) == RecordKind::kError;
      failed_ += failed ? 1 : 0;
      (failed ? errors : output) += answer_of(id) + (failed ? " failed\n" : "\n");
    }
    if (disk_.content(std::string(kFolder) + "/output.jsonl") != output) {
      violate("output.jsonl has not each answered row once, in order");
    }
    if (disk_.content(std::string(kFolder) + "/errors.jsonl") != errors) {
      violate("errors.jsonl has not each failed row once, in order");
    }
  }

  Random random_;
  SimDisk disk_;
  SimBatchDisk files_;
  SimTrace trace_;
  uint64_t rows_ = 0;
  uint64_t part_bytes_ = 0;
  double failure_rate_ = 0;
  Instant now_{std::chrono::hours(1)};
  Process process_;
  std::map<RowId, RecordKind> wanted_;  // What it last tried to note.
  std::set<RowId> noted_;               // Known to be on disk.
  std::map<RowId, Blame> blamed_;       // The same.
  std::map<RowId, size_t> told_;        // The same: how many tokens.
  std::map<RowId, std::vector<std::vector<Token>>> generations_;
  Token last_token_ = 0;
  uint64_t went_on_ = 0;
  bool complete_ = false;
  uint64_t attempts_ = 0;
  uint64_t crashes_ = 0;
  uint64_t power_cuts_ = 0;
  uint64_t failed_ = 0;
  std::string violation_;
};

}  // namespace

SimRun simulate_batch(const SimCall& call) { return BatchWorld(call).run(); }

}  // namespace pdjob::simulation
