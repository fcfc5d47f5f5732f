// Tests of recorded loads on virtual time: the time of steps, the reading of a trace, and its play.
#include "launcher/played/trace_world.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "common/log.h"
#include "launcher/played/load_file.h"
#include "launcher/simulator/modelled_engine.h"
#include "tests/simulation/invariants.h"

namespace pdjob::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The shells' log would hide what a test says.
const bool kQuiet = (log::start("simulation", log::Level::kNothing), true);

const StepTime kStep{.fixed = milliseconds(10),
                     .per_prompt_token = milliseconds(3),
                     .per_sequence = milliseconds(4),
                     .per_prompt_read = microseconds(2),
                     .per_context_read = microseconds(5)};

TEST(StepTime, CountsTokensAndTheRowsThatTheyRead) {
  // Rows 100, 101 and 102 read 101, 102 and 103 rows.
  EXPECT_EQ(kStep.of(100, 3), 3 * milliseconds(3) + 306 * microseconds(2));
  EXPECT_EQ(kStep.of(100, 1), milliseconds(4) + 101 * microseconds(5));
}

TEST(StepTime, IsTheTimeOfASimulatedEngine) {
  ModelledEngine engine({.size = {.sequences = 2, .rows_per_sequence = 64, .batch_tokens = 32},
                         .model = "m",
                         .step_time = kStep});
  const std::vector<Token> prompt(10, 'a');
  const std::vector<Token> one(1, 'b');
  const auto step = [&](std::vector<engine::StepItem> items) {
    EXPECT_TRUE(engine.step(items).has_value());
    return engine.take_time();
  };
  EXPECT_EQ(step({{SequenceId{0}, prompt, true}}), milliseconds(10) + kStep.of(0, 10));
  EXPECT_EQ(step({{SequenceId{0}, one, true}, {SequenceId{1}, prompt, false}}),
            milliseconds(10) + kStep.of(10, 1) + kStep.of(0, 10));
  EXPECT_EQ(step({{SequenceId{0}, one, true}, {SequenceId{1}, prompt, true}}),
            milliseconds(10) + kStep.of(11, 1) + kStep.of(10, 10));
}

RequestTrace small_trace() {
  auto read = read_load_file(std::string(PDJOB_TRACES) + "/small.jsonl", {});
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->format, "Mooncake");
  return read->requests;
}

TEST(RequestTrace, IsReadAndSpreadWithinItsSteps) {
  RequestTrace trace = small_trace();
  ASSERT_EQ(trace.size(), 40U);
  EXPECT_EQ(arrival_step(trace), seconds(3));
  EXPECT_EQ(trace[5].at, seconds(3));
  const RequestTrace before = trace;
  spread_arrivals(trace, seconds(3), 1);
  std::set<Duration> times;
  for (size_t i = 0; i < trace.size(); ++i) {
    EXPECT_GE(trace[i].at, before[i].at);
    EXPECT_LT(trace[i].at, before[i].at + seconds(3));
    times.insert(trace[i].at);
  }
  EXPECT_EQ(times.size(), trace.size());
}

TEST(RequestTrace, GivesEqualBlocksEqualTokens) {
  const TraceScale scale{.prompt_divisor = 16};
  const TraceRequest one =
      scaled({.prompt_tokens = 1000, .output_tokens = 5, .blocks = {7, 8}}, scale);
  const TraceRequest two =
      scaled({.prompt_tokens = 1024, .output_tokens = 5, .blocks = {7, 9}}, scale);
  const std::vector<Token> a = prompt_of(one, scale);
  const std::vector<Token> b = prompt_of(two, scale);
  ASSERT_EQ(a.size(), 63U);  // 1000 / 16, rounded.
  ASSERT_EQ(b.size(), 64U);
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin());
  // The shared block has 512 / 16 tokens; the next tokens may be equal by chance.
  EXPECT_GE(differ.first - a.begin(), 32);
  EXPECT_LT(differ.first - a.begin(), 40);
}

TraceRun run_of(uint32_t prefill, uint32_t decode, uint32_t both) {
  TraceRun run{.trace = small_trace(), .scale = {.prompt_divisor = 16, .output_divisor = 16}};
  spread_arrivals(run.trace, seconds(3), 1);
  run.job.prefill = prefill;
  run.job.decode = decode;
  run.job.both = both;
  run.job.engine = {.sequences = 8, .rows_per_sequence = 2048, .batch_tokens = 512};
  run.job.step_time = kStep;
  return run;
}

TEST(TraceWorld, IsDecidedByItsSeedAlone) {
  const TraceResult first = play(run_of(2, 1, 0));
  const TraceResult again = play(run_of(2, 1, 0));
  EXPECT_GT(first.rows_reused, 0U);
  ASSERT_EQ(first.outcomes.size(), again.outcomes.size());
  for (size_t i = 0; i < first.outcomes.size(); ++i) {
    EXPECT_TRUE(first.outcomes[i].served) << i;
    EXPECT_EQ(first.outcomes[i].ttft, again.outcomes[i].ttft) << i;
    EXPECT_EQ(first.outcomes[i].itl, again.outcomes[i].itl) << i;
  }
}

// Checks each step of a core.
class CheckedCore final : public worker::WorkerCore {
 public:
  CheckedCore(Invariants& invariants, const std::string& name, const worker::EngineSize& size,
              std::unique_ptr<WorkerCore> core)
      : watch_(invariants, name, {.engine = size, .requests_queued = 256}),
        core_(std::move(core)) {}
  void step(const worker::Event& event, Instant now,
            std::vector<worker::Effect>& effects) override {
    watch_.before(event);
    core_->step(event, now, effects);
    for (const worker::Effect& effect : effects) {
      watch_.after(effect);
    }
    watch_.check(core_->load());
  }
  Instant next_wakeup() const override { return core_->next_wakeup(); }
  worker::CoreLoad load() const override { return core_->load(); }

 private:
  CoreWatch watch_;
  const std::unique_ptr<WorkerCore> core_;
};

TEST(TraceWorld, KeepsTheInvariantsOfWorkers) {
  for (const bool both : {false, true}) {
    Invariants invariants;
    TraceRun run = both ? run_of(0, 0, 3) : run_of(2, 1, 0);
    run.around = [&](const std::string& name, worker::CoreFactory make) {
      return [&invariants, name, make = std::move(make)](const worker::EngineSize& size) {
        return std::make_unique<CheckedCore>(invariants, name, size, make(size));
      };
    };
    EXPECT_EQ(play(run).outcomes.size(), 40U);
    EXPECT_EQ(invariants.violation(), "");
  }
}

// One request alone. Its prompt has 300 tokens, in chunks of 256 and 44.
TraceRun lone_run(uint32_t prefill, uint32_t decode, uint32_t both) {
  TraceRun run = run_of(prefill, decode, both);
  run.trace = {{.prompt_tokens = 300, .output_tokens = 11, .blocks = {1}}};
  run.scale = {};
  run.job.prefill_config.chunk_tokens = 256;
  run.job.decode_config.local_chunk_tokens = 64;  // Four times as many while nobody decodes.
  return run;
}
const Duration kLonePrompt = 2 * kStep.begin() + kStep.of(0, 256) + kStep.of(256, 44);
constexpr Duration kWires = milliseconds(5);  // At most, for HTTP between three processes.

TEST(TraceWorld, TakesTheTimeOfTheModel) {
  const TraceResult result = play(lone_run(0, 0, 1));
  ASSERT_TRUE(result.outcomes.at(0).served);
  EXPECT_GE(result.outcomes[0].ttft, kLonePrompt);
  EXPECT_LT(result.outcomes[0].ttft, kLonePrompt + kWires);
  Duration decoding{};
  for (uint32_t rows = 300; rows < 310; ++rows) {
    decoding += kStep.begin() + kStep.of(rows, 1);
  }
  EXPECT_GT(result.outcomes[0].itl, decoding / 10 - milliseconds(1));
  EXPECT_LT(result.outcomes[0].itl, decoding / 10 + milliseconds(1));
}

// The rows of the first chunk pass while the second one is computed.
TEST(TraceWorld, TakesTheTimeOfTheKvOfTheLastChunk) {
  TraceRun run = lone_run(1, 1, 0);
  run.job.kv_row_time = microseconds(500);
  const TraceResult result = play(run);
  ASSERT_TRUE(result.outcomes.at(0).served);
  EXPECT_GE(result.outcomes[0].ttft, kLonePrompt + 44 * microseconds(500));
  EXPECT_LT(result.outcomes[0].ttft, kLonePrompt + 44 * microseconds(500) + 2 * kWires);
}

TEST(TraceWorld, TakesTheFixedTimesOfATransferAndARequest) {
  TraceRun run = lone_run(1, 1, 0);
  run.job.kv_transfer_time = milliseconds(40);
  run.job.request_time = milliseconds(30);
  const TraceResult result = play(run);
  ASSERT_TRUE(result.outcomes.at(0).served);
  EXPECT_GE(result.outcomes[0].ttft, kLonePrompt + milliseconds(70));
  EXPECT_LT(result.outcomes[0].ttft, kLonePrompt + milliseconds(70) + 2 * kWires);
}

TEST(TraceWorld, TellsWhatItsWorkersDid) {
  TraceRun run = run_of(2, 1, 0);
  run.sample_every = milliseconds(500);
  const TraceResult result = play(run);
  ASSERT_EQ(result.workers.size(), 3U);
  uint64_t prompts = 0;
  for (const TraceRequest& request : run.trace) {
    prompts += scaled(request, run.scale).prompt_tokens;
  }
  EXPECT_EQ(result.workers[0].kv_transfers + result.workers[1].kv_transfers, 40U);
  EXPECT_EQ(result.workers[0].kv_rows_sent + result.workers[1].kv_rows_sent, prompts);
  EXPECT_EQ(result.workers[2].kv_rows_sent, 0U);
  ASSERT_FALSE(result.samples.empty());
  double busy = 0;
  for (const TraceSample& sample : result.samples) {
    busy += 0.5 * sample.roles[1].busy;
  }
  // A step that has begun counts as a whole.
  EXPECT_NEAR(busy, std::chrono::duration<double>(result.workers[2].busy).count(), 0.6);
}

TEST(TraceWorld, GoodputCountsWhatIsWithinBothLimits) {
  TraceResult result{.arrivals = seconds(2)};
  result.outcomes = {{.served = true, .ttft = seconds(1), .itl = milliseconds(50)},
                     {.served = true, .ttft = seconds(3), .itl = milliseconds(50)},
                     {.served = true, .ttft = seconds(1), .itl = milliseconds(150)},
                     {.served = false}};
  const Goodput goodput = goodput_of(result, {.ttft = seconds(2), .itl = milliseconds(100)});
  EXPECT_DOUBLE_EQ(goodput.offered, 2);
  EXPECT_DOUBLE_EQ(goodput.good, 0.5);
}

}  // namespace
}  // namespace pdjob::simulation
