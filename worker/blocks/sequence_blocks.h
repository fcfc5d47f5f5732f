// SequenceBlocks: which tokens the rows of each sequence of an engine belong to, and the names of
// their whole blocks. It hears of each change of the rows, in order. Rows of a prompt that shares
// nothing (cache_salt) have no names. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/generation.h"
#include "common/id.h"
#include "kvtransfer/link/link_message.h"

namespace pdjob::worker {

class SequenceBlocks {
 public:
  // `meaning` as in block_names.h.
  SequenceBlocks(uint32_t sequences, std::string meaning);

  // The rows behind the sequence's last one were computed. `tenant` is read if there were none.
  // Null: its rows are not shared.
  void append(SequenceId sequence, std::span<const Token> tokens, const std::string* tenant);
  // An empty sequence got the rows of `from`.
  void copy(SequenceId from, SequenceId to);
  // All but the first `rows` rows are gone.
  void trim(SequenceId sequence, uint32_t rows);

  // The names of its first whole blocks, in order.
  std::span<const BlockName> names(SequenceId sequence);
  // Whose they are.
  kvtransfer::BlockOwner owner(SequenceId sequence) const {
    return books_.at(sequence.value).owner;
  }
  // The names of any tokens.
  std::vector<BlockName> names_of(std::span<const Token> tokens, const std::string& tenant) const;
  bool holds(SequenceId sequence, uint32_t index, const BlockName& name);

 private:
  struct Book {
    bool shared = false;
    kvtransfer::BlockOwner owner;
    BlockName before;  // Its first block.
    std::vector<Token> tokens;
    std::vector<BlockName> names;
  };
  Book& of(SequenceId sequence) { return books_.at(sequence.value); }

  const std::string meaning_;
  std::vector<Book> books_;
};

}  // namespace pdjob::worker
