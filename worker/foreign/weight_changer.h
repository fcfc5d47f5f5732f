// WeightChanger: the shell of WeightCalls, for a worker of a rollout job whose engine is of another
// make. It reads checkpoints on a helper thread, and makes the calls of a change. Loop-bound.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/recipes/engine_recipe.h"
#include "net/control/message.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"
#include "worker/foreign/checkpoint.h"
#include "worker/foreign/weight_calls.h"

namespace pdjob::worker {

class WeightChanger {
 public:
  using Then = std::function<void(const Result<net::HttpReply>&)>;
  struct Parts {
    engine::RecipeWeights recipe;
    std::string weights_dir;
    std::string model;  // Of the job file: a folder, or a name that the engine knows.
    std::function<void(const WeightCall&, Then)> post;  // To the engine.
    std::function<void(const net::WeightsPrepared&)> answer;
  };
  using Done = std::function<void(const Status&)>;

  // The loop must outlive it.
  WeightChanger(net::Loop& loop, Parts parts);
  ~WeightChanger();
  WeightChanger(const WeightChanger&) = delete;
  WeightChanger& operator=(const WeightChanger&) = delete;

  // Before the engine serves: gives it the job's present weights.
  void begin(const net::WeightSource& weights, Done done);
  // Reads a checkpoint, and answers. As WeightLoader::prepare() treats orders.
  void prepare(const net::PrepareWeights& order);
  // Gives the engine the weights that this order prepared; 0: those that it has. The engine runs no
  // request of a client.
  void change(uint64_t order, const std::string& version, Done done);

  bool changes() const { return calls_.has_value(); }
  // Of the engine's weights. Empty: unknown.
  const std::string& digest() const { return now_.digest; }

 private:
  struct Prepared {
    net::WeightsPrepared answer;
    Checkpoint checkpoint;
  };
  static Result<Checkpoint> read_for_order(const std::string& weights_dir, const std::string& path,
                                           const std::string& config);
  // Runs `read` on the helper's thread, then `take` with what it returned.
  void read_then(std::function<Result<Checkpoint>()> read,
                 std::function<void(Result<Checkpoint>)> take);
  void was_read(uint64_t order, Result<Checkpoint> checkpoint);
  void give(const Checkpoint& checkpoint, const std::string& version, Done done);
  void post_next();
  void end_change(const Status& status);

  net::Loop& loop_;
  const Parts parts_;
  Checkpoint now_;      // What the engine has. Without a folder: the model of the job file.
  Checkpoint next_;     // What it is given. Without a folder: it keeps its weights.
  uint64_t order_ = 0;  // The last one.
  std::optional<Prepared> ready_;  // Of that order.
  std::optional<WeightCalls> calls_;
  Done done_;
  net::TimerId again_;
  std::shared_ptr<WeightChanger*> self_;
  std::unique_ptr<net::Helper> helper_;
};

}  // namespace pdjob::worker
