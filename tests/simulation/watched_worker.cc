#include "tests/simulation/watched_worker.h"

#include <utility>
#include <vector>

#include "tests/support/worker_words.h"

namespace pdjob::simulation {

// Checks each step of a core, and traces it.
class WatchedWorker::WatchedCore final : public worker::WorkerCore {
 public:
  WatchedCore(const Watcher& watcher, std::string name, std::shared_ptr<Watch> watch,
              std::unique_ptr<WorkerCore> core)
      : watcher_(watcher),
        name_(std::move(name)),
        watch_(std::move(watch)),
        core_(std::move(core)) {}

  void step(const worker::Event& event, Instant now,
            std::vector<worker::Effect>& effects) override {
    const bool idle = std::holds_alternative<worker::EngineFree>(event);
    if (!idle) {
      watcher_.trace(name_, "< " + worker::word(event));
    }
    watch_->core->before(event);
    core_->step(event, now, effects);
    watcher_.invariants.expect(watch_->worker->kv_stats().fingerprints_refused == 0,
                               "only workers whose KV means the same are paired, but not", name_);
    for (const worker::Effect& effect : effects) {
      watcher_.trace(name_, "  > " + worker::word(effect));
      watch_->core->after(effect);
    }
    watch_->core->check(core_->load());
    if (watcher_.invariants.broken()) {
      effects.clear();  // The run ends; the shells need not live through it.
    }
  }
  Instant next_wakeup() const override { return core_->next_wakeup(); }
  worker::CoreLoad load() const override { return core_->load(); }

 private:
  const Watcher& watcher_;
  const std::string name_;
  const std::shared_ptr<Watch> watch_;
  const std::unique_ptr<WorkerCore> core_;
};

WatchedWorker::WatchedWorker(const SimScene& scene, const Watcher& watcher,
                             SimWorkerOptions options, std::unique_ptr<FaultyEngine> engine,
                             uint64_t seed, std::function<void()> end)
    : WatchedWorker(scene, watcher, std::move(options), std::move(engine), seed, std::move(end),
                    std::make_shared<Watch>()) {}

WatchedWorker::WatchedWorker(const SimScene& scene, const Watcher& watcher,
                             SimWorkerOptions options, std::unique_ptr<FaultyEngine> engine,
                             uint64_t seed, std::function<void()> end,
                             const std::shared_ptr<Watch>& watch)
    : SimWorker(scene, watched(std::move(options), watcher, watch), std::move(engine), seed,
                std::move(end)),
      watch_(watch) {
  watch_->worker = this;
}

SimWorkerOptions WatchedWorker::watched(SimWorkerOptions options, const Watcher& watcher,
                                        const std::shared_ptr<Watch>& watch) {
  options.make_core = [&watcher, watch, name = options.spec.engine_id,
                       make = std::move(options.make_core)](const worker::EngineSize& size) {
    watch->core = std::make_unique<CoreWatch>(
        watcher.invariants, name,
        CoreWatch::Bounds{.engine = size, .requests_queued = watcher.requests_queued});
    auto core = make(size);
    if (watcher.sabotage) {
      core = watcher.sabotage(std::move(core));
    }
    return std::make_unique<WatchedCore>(watcher, name, watch, std::move(core));
  };
  return options;
}

std::string WatchedWorker::busy_with() const {
  return SimWorker::busy_with() + (watch_->core->idle() ? "" : " 1 core");
}

}  // namespace pdjob::simulation
