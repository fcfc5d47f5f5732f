// KvEventOrder delivers the batches of one engine in order, each once. The numbers begin with 0
// when an engine starts. The order fills a gap by a replay of the engine's past batches, if the
// engine supports that, and reports a gap that a replay cannot fill.
//
//   connected --> [replaying] --its end--> in order --a gap--> [replaying] ...
//                                          in order --a lower number--> the engine began anew
//   disconnected: nothing is known
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pdjob::router {

// Earlier events are no longer valid. `complete`: later events describe the whole cache.
struct KvBegun {
  bool complete = false;
};
struct KvBatch {
  std::string payload;
};
// Asks for a replay of all batches from this number on. The caller passes the answers and their end
// to replayed() and replay_ended().
struct AskKvReplay {
  uint64_t from = 0;
};
using KvOrderEffect = std::variant<KvBegun, KvBatch, AskKvReplay>;

class KvEventOrder {
 public:
  // Batches held back during a replay; more of them become a gap.
  static constexpr size_t kHeldBackMax = 1024;

  // `replays`: the engine can replay past batches.
  explicit KvEventOrder(bool replays) : replays_(replays) {}

  void connected(std::vector<KvOrderEffect>& effects);
  void disconnected(std::vector<KvOrderEffect>& effects);
  void batch(uint64_t number, std::string payload, std::vector<KvOrderEffect>& effects);
  void replayed(uint64_t number, std::string payload, std::vector<KvOrderEffect>& effects);
  void replay_ended(std::vector<KvOrderEffect>& effects);
  // The replay did not answer.
  void replay_failed(std::vector<KvOrderEffect>& effects);

  bool replaying() const { return replaying_; }
  uint64_t gaps() const { return gaps_; }

 private:
  void begin_at(uint64_t number, std::vector<KvOrderEffect>& effects);
  void ask(uint64_t from, std::vector<KvOrderEffect>& effects);
  void end_replay(std::vector<KvOrderEffect>& effects);

  const bool replays_;
  bool begun_ = false;  // next_ is valid.
  uint64_t next_ = 0;
  bool replaying_ = false;
  bool progressed_ = false;  // The replay delivered a new batch.
  bool broken_ = false;      // The replay left a batch out; ask again.
  std::vector<std::pair<uint64_t, std::string>> held_back_;
  uint64_t gaps_ = 0;
};

}  // namespace pdjob::router
