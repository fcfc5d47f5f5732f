#include "worker/blocks/sequence_blocks.h"

#include <algorithm>
#include <utility>

#include "worker/blocks/block_names.h"

namespace pdjob::worker {
namespace {

// Adds the names of whole blocks that `names` lacks.
void add_names(const BlockName& before, std::span<const Token> tokens,
               std::vector<BlockName>& names) {
  while ((names.size() + 1) * kBlockTokens <= tokens.size()) {
    names.push_back(block_behind(names.empty() ? before : names.back(),
                                 tokens.subspan(names.size() * kBlockTokens, kBlockTokens)));
  }
}

}  // namespace

SequenceBlocks::SequenceBlocks(uint32_t sequences, std::string meaning)
    : meaning_(std::move(meaning)), books_(sequences) {}

void SequenceBlocks::append(SequenceId sequence, std::span<const Token> tokens,
                            const std::string* tenant) {
  Book& book = of(sequence);
  if (book.tokens.empty()) {
    book.shared = tenant != nullptr;
    book.owner = book.shared ? owner_of(*tenant) : kvtransfer::BlockOwner{};
    book.before = book.shared ? beginning(meaning_, *tenant) : BlockName{};
  }
  if (tenant == nullptr) {
    book.shared = false;
  }
  book.tokens.insert(book.tokens.end(), tokens.begin(), tokens.end());
}

void SequenceBlocks::copy(SequenceId from, SequenceId to) { of(to) = of(from); }

void SequenceBlocks::trim(SequenceId sequence, uint32_t rows) {
  Book& book = of(sequence);
  book.tokens.resize(std::min<size_t>(book.tokens.size(), rows));
  book.names.resize(std::min<size_t>(book.names.size(), rows / kBlockTokens));
}

std::span<const BlockName> SequenceBlocks::names(SequenceId sequence) {
  Book& book = of(sequence);
  if (!book.shared) {
    return {};
  }
  add_names(book.before, book.tokens, book.names);
  return book.names;
}

std::vector<BlockName> SequenceBlocks::names_of(std::span<const Token> tokens,
                                                const std::string& tenant) const {
  std::vector<BlockName> names;
  add_names(beginning(meaning_, tenant), tokens, names);
  return names;
}

bool SequenceBlocks::holds(SequenceId sequence, uint32_t index, const BlockName& name) {
  const auto all = names(sequence);
  return index < all.size() && all[index] == name;
}

}  // namespace pdjob::worker
