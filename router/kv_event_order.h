// KvEventOrder: the batches of one engine in their order, each once. Numbers begin with 0 where an
// engine begins; a gap is filled from what it still knows of the past, if it tells that, and what
// cannot be filled is said.
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

// What was told before holds no longer. `complete`: what is told from now on is all.
struct KvBegun {
  bool complete = false;
};
struct KvBatch {
  std::string payload;
};
// Of all batches from this number on. Its answers, and their end, are to be told here.
struct AskKvReplay {
  uint64_t from = 0;
};
using KvOrderEffect = std::variant<KvBegun, KvBatch, AskKvReplay>;

class KvEventOrder {
 public:
  // Batches that wait for a replay; beyond, they are a gap.
  static constexpr size_t kHeldBackMax = 1024;

  // `replays`: the engine tells of the past.
  explicit KvEventOrder(bool replays) : replays_(replays) {}

  void connected(std::vector<KvOrderEffect>& effects);
  void disconnected(std::vector<KvOrderEffect>& effects);
  void batch(uint64_t number, std::string payload, std::vector<KvOrderEffect>& effects);
  void replayed(uint64_t number, std::string payload, std::vector<KvOrderEffect>& effects);
  void replay_ended(std::vector<KvOrderEffect>& effects);
  // There is no answer.
  void replay_failed(std::vector<KvOrderEffect>& effects);

  bool replaying() const { return replaying_; }
  uint64_t gaps() const { return gaps_; }

 private:
  void begin_at(uint64_t number, std::vector<KvOrderEffect>& effects);
  void ask(uint64_t from, std::vector<KvOrderEffect>& effects);
  void end_replay(std::vector<KvOrderEffect>& effects);

  const bool replays_;
  bool begun_ = false;  // next_ says something.
  uint64_t next_ = 0;
  bool replaying_ = false;
  bool progressed_ = false;  // The replay told something new.
  bool broken_ = false;      // It left something out, and is to be asked for again.
  std::vector<std::pair<uint64_t, std::string>> held_back_;
  uint64_t gaps_ = 0;
};

}  // namespace pdjob::router
