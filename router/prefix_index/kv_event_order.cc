#include "router/prefix_index/kv_event_order.h"

namespace pdjob::router {

void KvEventOrder::connected(std::vector<KvOrderEffect>& effects) {
  disconnected(effects);
  if (replays_) {
    ask(0, effects);
  }
}

void KvEventOrder::disconnected(std::vector<KvOrderEffect>& effects) {
  begun_ = false;
  replaying_ = false;
  held_back_.clear();
  effects.emplace_back(KvBegun{.complete = false});
}

void KvEventOrder::batch(uint64_t number, std::string payload,
                         std::vector<KvOrderEffect>& effects) {
  if (replaying_) {
    if (held_back_.size() < kHeldBackMax) {
      held_back_.emplace_back(number, std::move(payload));
    }
    return;
  }
  const bool is_gap = begun_ && number > next_;
  const bool is_anew = begun_ && number < next_;
  gaps_ += is_gap ? 1 : 0;
  if (replays_ && (is_gap || (is_anew && number > 0))) {
    begun_ = is_gap;
    held_back_.emplace_back(number, std::move(payload));
    ask(is_gap ? next_ : 0, effects);
    return;
  }
  if (!begun_ || is_gap || is_anew) {
    begin_at(number, effects);
  }
  effects.emplace_back(KvBatch{std::move(payload)});
  next_ = number + 1;
}

void KvEventOrder::replayed(uint64_t number, std::string payload,
                            std::vector<KvOrderEffect>& effects) {
  if (!replaying_ || broken_ || (begun_ && number < next_)) {
    return;
  }
  // The engine's socket drops batches that a slow reader did not take in time.
  broken_ = progressed_ && number > next_;
  if (broken_) {
    return;
  }
  if (!begun_ || number > next_) {
    begin_at(number, effects);  // The engine remembers no earlier ones.
  }
  progressed_ = true;
  effects.emplace_back(KvBatch{std::move(payload)});
  next_ = number + 1;
}

void KvEventOrder::replay_ended(std::vector<KvOrderEffect>& effects) {
  if (!replaying_) {
    return;
  }
  if (broken_) {
    ask(next_, effects);
    return;
  }
  if (!begun_) {
    begin_at(0, effects);  // The engine has published no batch yet.
  }
  end_replay(effects);
}

void KvEventOrder::replay_failed(std::vector<KvOrderEffect>& effects) {
  if (replaying_) {
    progressed_ = false;
    end_replay(effects);
  }
}

void KvEventOrder::begin_at(uint64_t number, std::vector<KvOrderEffect>& effects) {
  begun_ = true;
  next_ = number;
  effects.emplace_back(KvBegun{.complete = number == 0});
}

void KvEventOrder::ask(uint64_t from, std::vector<KvOrderEffect>& effects) {
  replaying_ = true;
  progressed_ = false;
  broken_ = false;
  effects.emplace_back(AskKvReplay{from});
}

// If a replay filled nothing of a gap, another replay would fail, too.
void KvEventOrder::end_replay(std::vector<KvOrderEffect>& effects) {
  replaying_ = false;
  auto held_back = std::exchange(held_back_, {});
  std::erase_if(held_back, [&](const auto& held) { return begun_ && held.first < next_; });
  if (!progressed_ && begun_ && !held_back.empty() && held_back.front().first > next_) {
    begin_at(held_back.front().first, effects);
  }
  for (auto& [number, payload] : held_back) {
    batch(number, std::move(payload), effects);
  }
}

}  // namespace pdjob::router
