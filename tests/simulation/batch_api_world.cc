#include "tests/simulation/batch_api_world.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "batch/api/batch_lifecycle.h"
#include "batch/catalog/books.h"
#include "batch/catalog/catalog_file.h"
#include "launcher/simulator/sim_loop.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_disk.h"

namespace pdjob::simulation {
namespace {

using namespace batch;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kCatalog = "api/catalog.sqlite";
constexpr LifecycleConfig kConfig{.running_max = 2,
                                  .alive_max = 4,
                                  .tries_max = 5,
                                  .retry_min = seconds(1),
                                  .retry_max = seconds(8),
                                  .turn = seconds(5)};
constexpr int64_t kEpoch = 1'000'000'000;  // Seconds since 1970, at the instant 0.
constexpr Duration kFaults = seconds(60);
constexpr Duration kEnd = seconds(600);
// A tenant whose batch could go on gets its turn, at the latest. The rows of others end first.
constexpr Duration kPatience = seconds(15);

// The folder of one batch, as it is on disk.
struct Folder {
  int64_t answered = 0;
  int64_t failed = 0;
  bool expired = false;
};
// The facts of one batch: those that clients know, and those that decide its end.
struct Facts {
  int64_t total = 0;
  bool bad = false;   // Its input is wrong.
  bool lost = false;  // Its input cannot be read.
  uint32_t failures = 0;
  int64_t window = 0;         // Seconds.
  bool clock_moved = false;   // Since it was made.
  uint64_t incarnation = 0;   // Of the process that made it; 0: the clock moved before it did.
  Instant added_at{};         // To this process.
  bool window_ended = false;  // When it ended; true if nobody can say.
  bool told = false;          // The client has its id.
  bool cancel_sent = false;
  bool cancel_told = false;
  bool seen = false;
  BatchRecord last;  // As the client saw it.
};
// Lines of a result file.
struct ResultFile {
  std::string batch;
  int64_t lines = 0;
};

int rank_of(BatchState state) {
  switch (state) {
    case BatchState::kValidating:
      return 0;
    case BatchState::kInProgress:
      return 1;
    case BatchState::kFinalizing:
    case BatchState::kCancelling:
      return 2;
    default:
      return 3;
  }
}

class BatchApiWorld {
 public:
  explicit BatchApiWorld(const SimCall& call)
      : random_(call.seed), disk_(call.seed), trace_(call.print) {
    failure_rate_ = random_.chance(0.5) ? 0 : random_.unit() * 0.3;
    begun_ = loop_.now();
  }

  SimRun run() {
    start_process();
    const uint64_t batches = 1 + random_.below(14);
    for (uint64_t i = 0; i < batches; ++i) {
      loop_.after(some(50'000), [this] { create(); });
    }
    const uint64_t steps = random_.chance(0.3) ? 1 + random_.below(3) : 0;
    for (uint64_t i = 0; i < steps; ++i) {
      loop_.after(some(60'000), [this] { move_clock(); });
    }
    const uint64_t ends = random_.below(6);
    for (uint64_t i = 0; i < ends; ++i) {
      loop_.after(some(60'000), [this] { plan_end(); });
    }
    while (!checks_.broken() && loop_.run_next(begun_ + kEnd)) {
      if (disk_.crashed()) {
        restart();
      }
    }
    check_end();
    disk_.kill([&] { process_.reset(); });
    return {.violation = checks_.violation(),
            .trace_hash = trace_.hash(),
            .trace_lines = trace_.lines(),
            .counts = {{"batches", facts_.size()},
                       {"crashes", crashes_},
                       {"drains", drains_},
                       {"job failures", job_failures_},
                       {"yields", yields_},
                       {"unloads", unloads_},
                       {"clock steps", clock_steps_},
                       {"cancelled", count(BatchState::kCancelled)},
                       {"expired", count(BatchState::kExpired)},
                       {"failed", count(BatchState::kFailed)},
                       {"completed", count(BatchState::kCompleted)}}};
  }

 private:
  enum class Phase { kPreparing, kPrepared, kRunning, kYielding, kStopping, kFinishing };
  struct Job {
    Phase phase = Phase::kPreparing;
    uint64_t token = 0;  // Of what it is doing.
    bool progressed = false;
  };
  struct Process {
    std::unique_ptr<CatalogFile> catalog;
    BatchLifecycle core{kConfig};
    std::deque<LifecycleEvent> waiting;
    bool stepping = false;
    std::map<std::string, BatchRecord> records;  // In memory.
    std::map<std::string, FileRecord> files;
    std::map<std::string, Job> jobs;
    std::map<std::string, std::function<void()>> on_stored;
    int64_t last_number = 0;
    uint64_t changes = 0;
    uint64_t stored = 0;
    std::deque<std::pair<uint64_t, std::function<void()>>> until_stored;
    Instant disk_free{};
    bool disk_full = false;
    std::set<std::string> full_tenants;
    bool draining = false;
    std::map<std::string, Instant> hungry_since;  // By tenant.
  };

  Duration some(uint64_t most_ms) {
    return milliseconds(1 + static_cast<int64_t>(random_.below(most_ms)));
  }
  int64_t unix_seconds() const {
    return kEpoch + clock_error_ +
           std::chrono::duration_cast<seconds>(loop_.now().time_since_epoch()).count();
  }
  bool faulty() const { return loop_.now() < begun_ + kFaults; }
  bool fails() { return faulty() && random_.chance(failure_rate_); }
  uint64_t count(BatchState state) const {
    return static_cast<uint64_t>(std::ranges::count_if(
        facts_, [state](const auto& each) { return each.second.last.state == state; }));
  }

  // ---- The process

  // Does nothing if this process has ended by then.
  void later(Duration delay, std::function<void()> work) {
    loop_.after(delay, [this, process = incarnation_, work = std::move(work)] {
      if (process == incarnation_ && process_ != nullptr && !disk_.crashed()) {
        work();
      }
    });
  }
  // In order, as the helper thread does it. `then` runs on the loop.
  void on_disk(std::function<void()> work, std::function<void()> then) {
    process_->disk_free = std::max(process_->disk_free, loop_.now()) + some(20);
    later(process_->disk_free - loop_.now(),
          [this, work = std::move(work), then = std::move(then)] {
            work();
            later(milliseconds(1), then);
          });
  }

  void start_process() {
    ++incarnation_;
    process_ = std::make_unique<Process>();
    auto catalog = CatalogFile::open(kCatalog);
    checks_.expect(catalog.has_value(), "the catalog cannot be opened");
    if (!catalog) {
      return;
    }
    process_->catalog = std::move(*catalog);
    const auto all = process_->catalog->load();
    checks_.expect(all.has_value(), "the catalog cannot be read");
    if (all) {
      begin_with(*all);
    }
    trace_.line(loop_.now(), "batch", "starts");
  }

  void begin_with(const CatalogChange& all) {
    const KeptIds kept = kept_ids(all);
    std::erase_if(folders_, [&](const auto& each) { return !kept.batches.contains(each.first); });
    std::erase_if(results_, [&](const auto& each) { return !kept.files.contains(each.first); });
    for (const FileRecord& file : all.files) {
      process_->files[file.id] = file;
      process_->last_number = std::max(process_->last_number, file.number);
    }
    for (const BatchRecord& batch : all.batches) {
      process_->records[batch.id] = batch;
      process_->last_number = std::max(process_->last_number, batch.number);
    }
    for (const auto& [id, facts] : facts_) {
      checks_.expect(!facts.told || process_->records.contains(id), "a batch is forgotten:", id);
    }
    tick();
    for (const BatchRecord& batch : all.batches) {
      if (!batch.ended()) {
        checks_.expect(folders_.contains(batch.id), "a batch has lost its folder:", batch.id);
        add(batch);
      }
    }
  }

  void add(const BatchRecord& batch) {
    Facts& facts = facts_.at(batch.id);
    facts.incarnation =
        facts.added_at == Instant{} && !facts.clock_moved ? incarnation_ : facts.incarnation;
    facts.added_at = loop_.now();
    submit(BatchAdded{batch});
  }

  void see_world() {
    submit(WorldSeen{.unix_seconds = unix_seconds(),
                     .disk_full = process_->disk_full,
                     .full_tenants = process_->full_tenants});
  }

  // It may go by years. Records that are made before and after it cannot be compared.
  void move_clock() {
    ++clock_steps_;
    const int64_t far = random_.chance(0.5) ? 100 : 100'000'000;
    clock_error_ += static_cast<int64_t>(random_.below(static_cast<uint64_t>(2 * far))) - far;
    for (auto& [id, facts] : facts_) {
      facts.clock_moved = true;
    }
    trace_.line(loop_.now(), "clock", "moves");
  }

  void tick() {
    if (random_.chance(0.05)) {
      process_->disk_full = !process_->disk_full;
    }
    process_->disk_full = process_->disk_full && faulty();
    if (random_.chance(0.05)) {
      process_->full_tenants.insert("a");
    }
    if (!faulty() || random_.chance(0.2)) {
      process_->full_tenants.clear();
    }
    see_world();
    check_turns();
    later(seconds(1), [this] { tick(); });
  }

  void restart() {
    ++crashes_;
    disk_.kill([&] { process_.reset(); });
    if (random_.chance(0.5)) {
      disk_.cut_power();
    }
    trace_.line(loop_.now(), "batch", "ends");
    start_process();
  }

  void plan_end() {
    if (disk_.crashed()) {
      return;
    }
    if (random_.chance(0.4)) {
      disk_.crash_after(1 + random_.below(40));
    } else if (random_.chance(0.5)) {
      restart();
    } else if (!process_->draining) {
      ++drains_;
      process_->draining = true;
      submit(DrainAsked{});
      later(seconds(10), [this] { checks_.expect(false, "it is not drained within 10 s"); });
    }
  }

  void submit(LifecycleEvent event) {
    Process& process = *process_;
    process.waiting.push_back(std::move(event));
    if (process.stepping) {
      return;
    }
    process.stepping = true;
    for (; !process.waiting.empty(); process.waiting.pop_front()) {
      std::vector<LifecycleEffect> effects;
      process.core.step(process.waiting.front(), loop_.now(), effects);
      for (const LifecycleEffect& effect : effects) {
        std::visit([this](const auto& one) { carry_out(one); }, effect);
      }
    }
    process.stepping = false;
  }

  void change(CatalogChange change, std::function<void()> then) {
    for (const BatchRecord& batch : change.batches) {
      process_->records[batch.id] = batch;
      trace_.line(loop_.now(), "batch", batch.id + " is " + to_string(batch.state));
    }
    for (const FileRecord& file : change.files) {
      process_->files[file.id] = file;
    }
    ++process_->changes;
    on_disk(
        [this, change = std::move(change)] {
          const Status done = process_->catalog->commit(change);
          checks_.expect(done.has_value() || disk_.crashed(), "the catalog cannot be written");
        },
        [this, then = std::move(then)] {
          ++process_->stored;
          then();
          auto& waiting = process_->until_stored;
          for (; !waiting.empty() && waiting.front().first <= process_->stored;
               waiting.pop_front()) {
            waiting.front().second();
          }
        });
  }

  // ---- Jobs

  // A tenant that could run and has nothing that runs gets its turn, and so does one that has
  // nothing prepared.
  void check_turns() {
    std::map<std::string, size_t> running;
    std::map<std::string, size_t> loaded;
    for (const auto& [id, job] : process_->jobs) {
      const std::string& tenant = process_->records.at(id).tenant;
      running[tenant] += job.phase == Phase::kRunning ? 1 : 0;
      ++loaded[tenant];
    }
    std::set<std::string> hungry;
    for (const auto& [id, batch] : process_->records) {
      const Facts& facts = facts_.at(id);
      const bool may_run = !batch.ended() && batch.cancelling_at == 0 && !facts.lost &&
                           !process_->disk_full && !process_->full_tenants.contains(batch.tenant);
      const auto job = process_->jobs.find(id);
      const bool waits = job == process_->jobs.end()
                             ? facts.failures == 0 && loaded[batch.tenant] == 0
                             : job->second.phase == Phase::kPrepared;
      if (may_run && waits && !process_->draining && running[batch.tenant] == 0) {
        hungry.insert(batch.tenant);
      }
    }
    std::erase_if(process_->hungry_since,
                  [&](const auto& each) { return !hungry.contains(each.first); });
    for (const std::string& tenant : hungry) {
      const Instant since = process_->hungry_since.emplace(tenant, loop_.now()).first->second;
      checks_.expect(loop_.now() - since < kPatience, "a tenant gets no turn:", tenant);
    }
  }

  size_t jobs_in(Phase phase) const {
    return static_cast<size_t>(std::ranges::count_if(
        process_->jobs, [phase](const auto& each) { return each.second.phase == phase; }));
  }
  // Begins what may end, or fail; ignored if the job is dropped or does something else meanwhile.
  void work(const std::string& id, Phase phase, Duration delay, std::function<void()> done) {
    Job& job = process_->jobs[id];
    job.phase = phase;
    job.token = ++tokens_;
    later(delay, [this, id, phase, token = job.token, done = std::move(done)] {
      const auto found = process_->jobs.find(id);
      if (found == process_->jobs.end() || found->second.token != token) {
        return;
      }
      if (fails() || (phase == Phase::kPreparing && facts_.at(id).lost)) {
        fail(id);
      } else {
        done();
      }
    });
  }
  void fail(const std::string& id) {
    ++job_failures_;
    ++facts_.at(id).failures;
    submit(JobFailed{.id = id,
                     .why = "a fault",
                     .errors = "a fault",
                     .progressed = process_->jobs.at(id).progressed});
  }
  void expect_phase(const std::string& id, Phase phase) {
    const auto job = process_->jobs.find(id);
    checks_.expect(job != process_->jobs.end() && job->second.phase == phase,
                   "a job is asked for something at the wrong time:", id);
  }

  void carry_out(const PrepareJob& effect) {
    checks_.expect(!process_->jobs.contains(effect.id), "a job is prepared twice:", effect.id);
    checks_.expect(!process_->draining, "a job is prepared while it drains:", effect.id);
    checks_.expect(jobs_in(Phase::kPreparing) < kConfig.preparing_max, "too many are prepared");
    work(effect.id, Phase::kPreparing, some(500), [this, id = effect.id] {
      const Facts& facts = facts_.at(id);
      const Folder& folder = folders_.at(id);
      process_->jobs.at(id).phase = Phase::kPrepared;
      submit(JobPrepared{.id = id,
                         .errors = facts.bad ? "a line is wrong" : "",
                         .model = "m",
                         .total = facts.total,
                         .all_ended = folder.answered + folder.failed == facts.total});
    });
  }

  void carry_out(const RunJob& effect) {
    expect_phase(effect.id, Phase::kPrepared);
    const BatchRecord& batch = process_->records.at(effect.id);
    checks_.expect(!process_->draining, "a job runs while it drains:", effect.id);
    checks_.expect(!process_->disk_full && !process_->full_tenants.contains(batch.tenant),
                   "a job runs on a full disk:", effect.id);
    checks_.expect(batch.cancelling_at == 0, "a cancelled batch runs:", effect.id);
    const Facts& facts = facts_.at(effect.id);
    checks_.expect(loop_.now() <= facts.added_at + seconds(facts.window),
                   "an expired batch runs:", effect.id);
    checks_.expect(
        jobs_in(Phase::kRunning) + jobs_in(Phase::kYielding) + jobs_in(Phase::kStopping) <
            kConfig.running_max,
        "too many run");
    run_row(effect.id);
  }

  void run_row(const std::string& id) {
    work(id, Phase::kRunning, some(2000), [this, id] {
      const Facts& facts = facts_.at(id);
      checks_.expect(loop_.now() <= facts.added_at + seconds(facts.window + 2),
                     "a batch runs beyond its window:", id);
      Folder& folder = folders_.at(id);
      const int64_t total = facts_.at(id).total;
      if (folder.answered + folder.failed < total) {
        (random_.chance(0.2) ? folder.failed : folder.answered) += 1;
        process_->jobs.at(id).progressed = true;
      }
      if (folder.answered + folder.failed < total) {
        return run_row(id);
      }
      run_ended(id);
    });
  }

  void run_ended(const std::string& id) {
    const Folder& folder = folders_.at(id);
    process_->jobs.at(id).phase = Phase::kPrepared;
    submit(RunEnded{.id = id,
                    .all_ended = folder.answered + folder.failed == facts_.at(id).total,
                    .progressed = process_->jobs.at(id).progressed});
  }

  void carry_out(const YieldJob& effect) {
    ++yields_;
    expect_phase(effect.id, Phase::kRunning);
    work(effect.id, Phase::kYielding, some(2000), [this, id = effect.id] { run_ended(id); });
  }

  void carry_out(const UnloadJob& effect) {
    ++unloads_;
    expect_phase(effect.id, Phase::kPrepared);
    process_->jobs.erase(effect.id);
  }

  void carry_out(const StopJob& effect) {
    const auto job = process_->jobs.find(effect.id);
    checks_.expect(job != process_->jobs.end() && (job->second.phase == Phase::kRunning ||
                                                   job->second.phase == Phase::kYielding),
                   "a job that does not run is stopped:", effect.id);
    work(effect.id, Phase::kStopping, some(100), [this, id = effect.id] { run_ended(id); });
  }

  void carry_out(const NameResults& effect) {
    submit(ResultsNamed{.id = effect.id,
                        .output_file_id = "file-" + std::to_string(++tokens_),
                        .error_file_id = "file-" + std::to_string(++tokens_)});
  }

  void carry_out(const FinishJob& effect) {
    expect_phase(effect.id, Phase::kPrepared);
    work(effect.id, Phase::kFinishing, some(300),
         [this, id = effect.id, rest = effect.rest] { finish(id, rest); });
  }

  void finish(const std::string& id, Rest rest) {
    Folder& folder = folders_.at(id);
    const int64_t total = facts_.at(id).total;
    if (rest == Rest::kExpired && folder.answered + folder.failed < total) {
      folder.failed = total - folder.answered;
      folder.expired = true;
    }
    const BatchRecord& batch = process_->records.at(id);
    for (const auto& [file, lines] : {std::pair(batch.output_file_id, folder.answered),
                                      std::pair(batch.error_file_id, folder.failed)}) {
      checks_.expect(!file.empty(), "results have no name:", id);
      if (lines > 0) {
        results_[file] = {id, lines};
      }
    }
    // It is noted later, so a crash may come in between.
    later(some(50), [this, id, folder] {
      if (fails()) {
        return fail(id);  // The second file cannot be made.
      }
      submit(ResultsMade{.id = id,
                         .answered = folder.answered,
                         .failed = folder.failed,
                         .output_bytes = folder.answered,
                         .error_bytes = folder.failed,
                         .expired = folder.expired});
    });
  }

  void carry_out(const DropJob& effect) {
    checks_.expect(process_->jobs.erase(effect.id) == 1, "no job to drop:", effect.id);
  }

  // ---- Records

  void carry_out(const StoreRecord& effect) {
    const std::string& id = effect.batch.id;
    change(
        {.files = {}, .batches = {effect.batch}, .erased = {}},
        [this, id, number = effect.change, told = std::exchange(process_->on_stored[id], nullptr)] {
          if (told) {
            told();
          }
          submit(RecordStored{id, number});
        });
  }

  void carry_out(const EndBatch& effect) {
    const std::string& id = effect.batch.id;
    process_->jobs.erase(id);
    note_window(effect.batch);
    CatalogChange last{.files = effect.results, .batches = {effect.batch}, .erased = {}};
    for (FileRecord& file : last.files) {
      file.number = ++process_->last_number;
    }
    change(std::move(last), [] {});
    on_disk(
        [this, id, unnamed = effect.unnamed] {
          for (const std::string& file : unnamed) {
            results_.erase(file);
          }
          folders_.erase(id);
        },
        [] {});
  }

  // If the clock moved, only the process that made the batch can know its window.
  void note_window(const BatchRecord& batch) {
    Facts& facts = facts_.at(batch.id);
    facts.window_ended = !facts.clock_moved ? unix_seconds() >= batch.expires_at
                         : facts.incarnation == incarnation_
                             ? loop_.now() + seconds(1) >= facts.added_at + seconds(facts.window)
                             : true;
  }

  void carry_out(const Drained& /*effect*/) {
    checks_.expect(jobs_in(Phase::kRunning) + jobs_in(Phase::kStopping) == 0, "drained, and runs");
    later(milliseconds(1), [this] {
      restart();
      --crashes_;
    });
  }

  // ---- Clients

  void create() {
    if (process_->draining || disk_.crashed()) {
      return;
    }
    BatchRecord batch{.number = ++process_->last_number,
                      .id = "batch_" + std::to_string(++tokens_),
                      .tenant = std::string(1, "aaabc"[random_.below(5)])};
    batch.output_lifetime = 3600;
    batch.created_at = unix_seconds();
    Facts& facts = facts_[batch.id];
    facts.window = 5 + static_cast<int64_t>(random_.below(120));
    batch.expires_at = batch.created_at + facts.window;
    facts.bad = random_.chance(0.1);
    facts.lost = !facts.bad && random_.chance(0.1);
    facts.total = 1 + static_cast<int64_t>(random_.below(20));
    on_disk([this, id = batch.id] { folders_[id] = {}; },
            [this, batch] {
              change({.files = {}, .batches = {batch}, .erased = {}}, [this, batch] {
                see_world();
                add(batch);
                facts_.at(batch.id).told = true;
                loop_.after(some(500), [this, id = batch.id] { poll(id); });
                if (random_.chance(0.3)) {
                  loop_.after(some(20'000), [this, id = batch.id] { cancel(id); });
                }
              });
            });
  }

  void cancel(const std::string& id) {
    if (disk_.crashed() || !can_cancel(process_->records.at(id))) {
      return;
    }
    facts_.at(id).cancel_sent = true;
    process_->on_stored[id] = [this, id] { facts_.at(id).cancel_told = true; };
    submit(CancelAsked{id});
    checks_.expect(!process_->on_stored[id], "a cancel is not stored:", id);
  }

  void poll(const std::string& id) {
    if (!disk_.crashed()) {
      const auto show = [this, batch = process_->records.at(id)] { see(batch); };
      process_->changes == process_->stored
          ? show()
          : process_->until_stored.push_back({process_->changes, show});
    }
    if (rank_of(facts_.at(id).last.state) < 3 || faulty()) {
      loop_.after(some(2000), [this, id] { poll(id); });
    }
  }

  void see(const BatchRecord& batch) {
    Facts& facts = facts_.at(batch.id);
    const BatchRecord before = std::exchange(facts.last, batch);
    const bool was_seen = std::exchange(facts.seen, true);
    checks_.expect(!was_seen || rank_of(before.state) <= rank_of(batch.state),
                   "a batch goes back:", batch.id, to_string(before.state), to_string(batch.state));
    if (was_seen && before.ended()) {
      checks_.expect(stored_text(before) == stored_text(batch), "an end changes:", batch.id);
    }
    if (batch.ended()) {
      check_batch(batch, facts);
    }
  }

  void check_lines(const BatchRecord& batch, const std::string& file, int64_t lines) {
    const auto found = results_.find(file);
    const bool there = file.empty()
                           ? lines == 0
                           : found != results_.end() && found->second.lines == lines &&
                                 found->second.batch == batch.id && process_->files.contains(file);
    checks_.expect(there, "a result file is not as its batch says:", batch.id);
  }

  void check_batch(const BatchRecord& batch, const Facts& facts) {
    const bool failed = batch.state == BatchState::kFailed;
    const bool whole = batch.completed + batch.failed == facts.total;
    if (batch.errors == "a fault" && batch.state != BatchState::kExpired) {
      checks_.expect(!facts.cancel_told || batch.state == BatchState::kCancelled,
                     "a cancel is forgotten:", batch.id);
      checks_.expect(facts.failures >= kConfig.tries_max, "a batch is given up early:", batch.id);
      checks_.expect(batch.in_progress_at == 0 || batch.cancelling_at != 0 || facts.window_ended,
                     "a batch with answers is given up before its end:", batch.id);
      checks_.expect(batch.output_file_id.empty() && batch.error_file_id.empty(),
                     "results that nobody made have names:", batch.id);
      return;
    }
    checks_.expect(failed == facts.bad, "a batch failed wrongly:", batch.id);
    checks_.expect(!facts.cancel_told || failed || batch.state == BatchState::kCancelled,
                   "a cancel is forgotten:", batch.id);
    checks_.expect(batch.state != BatchState::kCancelled || facts.cancel_sent,
                   "nobody cancelled:", batch.id);
    checks_.expect(whole || failed || batch.state == BatchState::kCancelled,
                   "rows have no end:", batch.id);
    checks_.expect(batch.state != BatchState::kExpired ||
                       (batch.ended_at >= batch.expires_at && facts.window_ended),
                   "a batch expired early:", batch.id);
    if (!failed) {
      checks_.expect(batch.created_at <= batch.in_progress_at &&
                         batch.in_progress_at <= batch.finalizing_at &&
                         batch.finalizing_at <= batch.ended_at,
                     "times of a batch are out of order:", batch.id);
      check_lines(batch, batch.output_file_id, batch.completed);
      check_lines(batch, batch.error_file_id, batch.failed);
    }
  }

  void check_end() {
    if (checks_.broken()) {
      return;
    }
    for (const auto& [id, batch] : process_->records) {
      checks_.expect(batch.ended(), "a batch never ends:", id, to_string(batch.state));
      if (batch.ended()) {
        check_batch(batch, facts_.at(id));
      }
    }
    checks_.expect(folders_.empty(), "folders of ended batches are left:", folders_.size());
    for (const auto& [file, lines] : results_) {
      checks_.expect(process_->files.contains(file), "a result file is nobody's:", file);
    }
  }

  Random random_;
  SimDisk disk_;
  SimTrace trace_;
  SimLoop loop_;
  Invariants checks_;
  Instant begun_{};
  double failure_rate_ = 0;
  uint64_t incarnation_ = 0;
  std::unique_ptr<Process> process_;
  // On disk, besides the catalog. Changes of these are synced, and cannot be cut.
  std::map<std::string, Folder> folders_;      // By batch.
  std::map<std::string, ResultFile> results_;  // By file.
  std::map<std::string, Facts> facts_;         // By batch.
  uint64_t tokens_ = 0;
  uint64_t crashes_ = 0;
  uint64_t drains_ = 0;
  uint64_t job_failures_ = 0;
  uint64_t yields_ = 0;
  uint64_t unloads_ = 0;
  uint64_t clock_steps_ = 0;
  int64_t clock_error_ = 0;  // Of the wall clock; seconds.
};

}  // namespace

SimRun simulate_batch_api(const SimCall& call) { return BatchApiWorld(call).run(); }

}  // namespace pdjob::simulation
