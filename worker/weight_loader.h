// WeightLoader: opens a second engine with other weights beside the one that serves, on a thread of
// its own. The engine that serves is not touched, so a bad file changes nothing. Loop-bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/engine.h"
#include "net/control/message.h"
#include "net/loop/loop.h"

namespace pdjob::worker {

// Returns the GGUF file that `path` names, without symbolic links. A relative path begins at
// `weights_dir`. A folder stands for the one GGUF file in it. kInvalidArgument: the file is not
// below `weights_dir`, or is not of that form; says what to do.
Result<std::string> find_weights(const std::string& weights_dir, const std::string& path);

// kInvalidArgument: an engine with weights of `next` cannot take the place of one with those of
// `now`; names the first fact that differs.
Status same_model(const engine::ModelFacts& now, const engine::ModelFacts& next);

class WeightLoader {
 public:
  // Calls `answer` when an order's weights are ready, or cannot be. The loop must outlive it.
  WeightLoader(net::Loop& loop, std::string weights_dir,
               std::function<void(const net::WeightsPrepared&)> answer);
  ~WeightLoader();
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  // `serving`: gives the configuration, and the facts that must match. An order with a lower number
  // than the last one is ignored. A repeated one is answered again.
  void prepare(const net::PrepareWeights& order, const engine::Engine& serving);
  // Hands over the engine of that order; null: it is not ready.
  std::unique_ptr<engine::Engine> take(uint64_t order);

 private:
  struct Loaded {
    net::WeightsPrepared answer;
    std::unique_ptr<engine::Engine> engine;
  };
  static Loaded load(const std::string& weights_dir, const net::PrepareWeights& order,
                     engine::EngineConfig config, const engine::ModelFacts& facts);
  void loaded(Loaded done);

  net::Loop& loop_;
  const std::string weights_dir_;
  const std::function<void(const net::WeightsPrepared&)> answer_;
  uint64_t order_ = 0;           // The last one.
  std::optional<Loaded> ready_;  // Of that order.
  std::shared_ptr<WeightLoader*> self_;
  // The last order's number, for the helper: it begins no other one. UINT64_MAX: all are over.
  std::shared_ptr<std::atomic<uint64_t>> newest_;
  std::unique_ptr<net::Helper> helper_;
};

}  // namespace pdjob::worker
