// BlockExchange: what a worker takes from the store of KV on its node, and gives to it.
//
// Takes: before a prompt is computed, the store is asked for the blocks of its beginning (load()).
// The first one is asked for alone, so a prompt that the store does not know costs one short
// answer. What it lacks, a store elsewhere may have. Gives: at the end of a turn, the store is told
// of the blocks that are new, and fetches those that it lacks. Nobody waits for that, and no
// sequence is held for it: if its rows change meanwhile, the fetch fails (OfferTerms::changed).
//
// A store that fails, or answers late, is left alone for a while, and longer if it may still write
// rows. It costs time, never a request.
// Runs on the engine thread, beside the rows' owner. Loop-bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "common/time.h"
#include "engine/engine.h"
#include "kvtransfer/kv_transfers.h"
#include "worker/blocks/block_totals.h"
#include "worker/blocks/sequence_blocks.h"

namespace pdjob::worker {

class BlockExchange {
 public:
  struct Options {
    std::string meaning;  // block_names.h
    std::function<Instant()> now;
    uint64_t seed = 0;  // Random: two workers' transfers have no name in common.
  };
  // Tokens and their owner; they live as long as a load.
  struct Beginning {
    std::shared_ptr<const std::vector<Token>> tokens;
    std::string tenant;
    // A store that may have what that of this node lacks.
    std::optional<kvtransfer::EndpointAddress> elsewhere = std::nullopt;
  };
  // The first `rows` rows of the sequence are those of the beginning. If `region_safe` is false, a
  // peer may still write the sequence, until Released.
  struct Loaded {
    SequenceId sequence;
    uint32_t rows = 0;
    bool region_safe = true;
  };
  struct Released {
    SequenceId sequence;
  };
  using News = std::variant<Loaded, Released>;

  BlockExchange(engine::Engine& engine, Options options);

  // Before all others.
  void attach(kvtransfer::KvTransfers& transfers);
  // The store of this node, as the latest request names it; empty: there is none. Another one knows
  // nothing yet.
  void use(const std::optional<kvtransfer::EndpointAddress>& store);

  // The rows of all sequences.
  SequenceBlocks& sequences() { return sequences_; }
  // All but the first `rows` rows are about to go, or to change.
  void about_to_trim(SequenceId sequence, uint32_t rows);

  // Loads what the store has of the beginning's rows from row `there` on, but not its last token.
  // Loaded answers it once, maybe at once. Requires: rows [0, there) are those of the beginning,
  // and the sequence has no others.
  void load(SequenceId sequence, const Beginning& beginning, uint32_t there,
            std::vector<News>& news);
  // Loaded comes as soon as nobody writes the sequence any more.
  void cancel(SequenceId sequence);
  // True: the event was about blocks.
  bool take(const kvtransfer::EndpointEvent& event, std::vector<News>& news);
  // The end of a turn.
  void tell_of_new_blocks();

  const BlockTotals& totals() const { return totals_; }

 private:
  struct Load {
    Beginning beginning;
    std::vector<BlockName> names;
    uint32_t there = 0;      // Rows before.
    uint32_t first = 0;      // The first block that is asked for.
    uint32_t asked_to = 0;   // Blocks [first, asked_to) were asked for.
    uint32_t under_way = 0;  // Of them.
    uint32_t unsafe = 0;     // Failed, and a peer may still write.
    std::vector<bool> came;  // By block.
    // The first block that the store elsewhere is asked for; none: not yet.
    std::optional<uint32_t> elsewhere_from = std::nullopt;
    bool stopped = false;  // No more are asked for.
    bool told = false;     // Loaded was sent.
  };
  struct Asked {
    SequenceId sequence;
    uint32_t block = 0;
  };
  // A block of a sequence that the store was told of.
  struct Told {
    SequenceId sequence;
    uint32_t block = 0;
    BlockName name;
  };
  struct Given {
    SequenceId sequence;
    uint32_t rows_end = 0;
    std::shared_ptr<std::atomic<bool>> changed;
  };

  TransferId next_transfer();
  kvtransfer::Region block_region(SequenceId sequence, uint32_t block) const;
  kvtransfer::BlockNews news_of(kvtransfer::BlockNews::Kind kind) const;
  void ask(SequenceId sequence, Load& load, uint32_t count);
  void block_ended(SequenceId sequence, std::vector<News>& news);
  void finish(SequenceId sequence, Load& load, std::vector<News>& news);
  void leave_alone(const Load& load, const Error& why);
  bool may_ask(const Load& load) const;
  bool may_ask_elsewhere(const Load& load) const;
  // Nothing is asked of the store, or told to it.
  bool rests() const;
  void give(TransferId id);

  engine::Engine& engine_;
  const Options options_;
  SequenceBlocks sequences_;
  kvtransfer::KvTransfers* transfers_ = nullptr;
  std::vector<uint32_t> row_bytes_;
  std::optional<kvtransfer::EndpointAddress> store_;  // The latest one.
  bool is_there_ = false;
  Instant rests_until_{};
  Instant elsewhere_rests_until_{};
  uint64_t transfers_made_ = 0;
  std::map<SequenceId, Load> loads_;
  std::unordered_map<TransferId, Asked> asked_;
  std::vector<uint32_t> told_blocks_;  // By sequence: its first blocks, of which the store knows.
  std::unordered_map<TransferId, Told> told_;
  std::deque<TransferId> told_order_;
  std::unordered_map<TransferId, Given> given_;
  BlockTotals totals_;
};

}  // namespace pdjob::worker
