#include "engine/grammar/compiled_bytes.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <compiled_grammar_impl.h>
#include <grammar_impl.h>

#include "common/limits.h"
#include "engine/grammar/bytes.h"

namespace pdjob::engine {
namespace {

using Mask = xgrammar::AdaptiveTokenMask;
using RuleFsm = xgrammar::CompactFSMWithStartEndWithSize;

Error no_grammar() { return {ErrorCode::kCorrupt, "the compiled grammar cannot be read"}; }

// Writes (first, length) of each run: most numbers of a mask are the previous one plus 1.
void write_runs(BytesWriter& out, const std::vector<int32_t>& numbers) {
  std::vector<uint32_t> runs;
  for (size_t at = 0; at < numbers.size();) {
    size_t end = at + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    runs.push_back(static_cast<uint32_t>(numbers[at]));
    runs.push_back(static_cast<uint32_t>(end - at));
    at = end;
  }
  out.text({reinterpret_cast<const char*>(runs.data()), runs.size() * sizeof runs[0]});
}

void write_rule(BytesWriter& out, const RuleFsm& rule) {
  const std::vector<int32_t>& ends = rule.GetFsm().GetEnds();
  out.number(static_cast<uint32_t>(rule.GetFsm().GetStart()));
  out.number(static_cast<uint32_t>(rule.GetEdgeNum()));
  out.number(static_cast<uint32_t>(rule.GetNodeNum()));
  write_runs(out, ends);
}

void write_mask(BytesWriter& out, const xgrammar::ParserState& state, const Mask& mask) {
  for (const int32_t part :
       {state.rule_id, state.sequence_id, state.element_id, state.sub_element_id}) {
    out.number(static_cast<uint32_t>(part));
  }
  out.number(static_cast<uint32_t>(mask.store_type));
  write_runs(out, mask.accepted_indices);
  write_runs(out, mask.rejected_indices);
  write_runs(out, mask.uncertain_indices);
  if (mask.store_type == Mask::StoreType::kAcceptedBitset) {
    const int bits = mask.accepted_bitset.Size();
    std::vector<uint32_t> words(xgrammar::DynamicBitset::GetBufferSize(bits));
    xgrammar::DynamicBitset(bits, words.data()) |= mask.accepted_bitset;
    out.raw(words.data(), words.size() * sizeof words[0]);
  }
}

class CompiledReader {
 public:
  CompiledReader(std::string_view bytes, const xgrammar::TokenizerInfo& tokens)
      : in_(bytes), tokens_(tokens) {}

  Result<xgrammar::CompiledGrammar> run() {
    auto compiled = std::make_shared<xgrammar::CompiledGrammar::Impl>();
    compiled->tokenizer_info = tokens_;
    PDJOB_TRY(compiled->grammar, grammar());
    PDJOB_TRY(const uint32_t masks, in_.number());
    for (uint32_t i = 0; i < masks; ++i) {
      xgrammar::ParserState state;
      for (int32_t* part :
           {&state.rule_id, &state.sequence_id, &state.element_id, &state.sub_element_id}) {
        PDJOB_TRY_STATUS(in_.raw(part, sizeof *part));
      }
      PDJOB_TRY(compiled->adaptive_token_mask_cache[state], mask());
    }
    if (in_.left() > 0) {
      return no_grammar();
    }
    return xgrammar::CompiledGrammar(std::move(compiled));
  }

 private:
  // Reads runs of numbers, each below `end`.
  Result<std::vector<int32_t>> runs(int64_t end) {
    PDJOB_TRY(const std::string_view text, in_.text());
    BytesReader in(text);
    std::vector<int32_t> out;
    while (in.left() > 0) {
      PDJOB_TRY(const uint32_t first, in.number());
      PDJOB_TRY(const uint32_t length, in.number());
      if (first + int64_t{length} > end || !take(length * sizeof out[0])) {
        return no_grammar();
      }
      for (uint32_t i = 0; i < length; ++i) {
        out.push_back(static_cast<int32_t>(first + i));
      }
    }
    return out;
  }

  // The rules are views of one automaton; the library parses it.
  Result<xgrammar::Grammar> grammar() {
    PDJOB_TRY(const std::string_view json, in_.text());
    auto read = xgrammar::Grammar::DeserializeJSON(std::string(json));
    auto* grammar = std::get_if<xgrammar::Grammar>(&read);
    if (grammar == nullptr || grammar->IsNull()) {
      return no_grammar();
    }
    const xgrammar::CompactFSM& whole = (*grammar)->complete_fsm;
    if (whole.IsNull() || (*grammar)->optimized) {
      return no_grammar();
    }
    for (int rule = 0; rule < (*grammar)->NumRules(); ++rule) {
      PDJOB_TRY(const uint32_t start, in_.number());
      PDJOB_TRY(const uint32_t edges, in_.number());
      PDJOB_TRY(const uint32_t nodes, in_.number());
      PDJOB_TRY(std::vector<int32_t> ends, runs(whole.NumStates()));
      if (start >= static_cast<uint32_t>(whole.NumStates())) {
        return no_grammar();
      }
      (*grammar)->per_rule_fsms.emplace_back(
          RuleFsm(xgrammar::CompactFSMWithStartEnd(whole, static_cast<int>(start), std::move(ends)),
                  static_cast<int>(edges), static_cast<int>(nodes)));
    }
    (*grammar)->optimized = true;
    return *grammar;
  }

  Result<Mask> mask() {
    Mask out;
    PDJOB_TRY(const uint32_t type, in_.number());
    if (type > static_cast<uint32_t>(Mask::StoreType::kAcceptedBitset)) {
      return no_grammar();
    }
    out.store_type = static_cast<Mask::StoreType>(type);
    const auto end = static_cast<int64_t>(tokens_.GetSortedDecodedVocab().size());
    PDJOB_TRY(out.accepted_indices, runs(end));
    PDJOB_TRY(out.rejected_indices, runs(end));
    PDJOB_TRY(out.uncertain_indices, runs(end));
    if (out.store_type == Mask::StoreType::kAcceptedBitset) {
      const int bits = tokens_.GetVocabSize();
      std::vector<uint32_t> words(xgrammar::DynamicBitset::GetBufferSize(bits));
      if (!take(words.size() * sizeof words[0])) {
        return no_grammar();
      }
      PDJOB_TRY_STATUS(in_.raw(words.data(), words.size() * sizeof words[0]));
      out.accepted_bitset = xgrammar::DynamicBitset(bits);
      out.accepted_bitset |= xgrammar::DynamicBitset(bits, words.data());
    }
    return out;
  }

  // Bounds the memory of the result: a few bytes can encode runs of many numbers.
  bool take(size_t bytes) {
    taken_ += bytes;
    return taken_ <= limits::kCompiledGrammarBytesMax;
  }

  BytesReader in_;
  const xgrammar::TokenizerInfo& tokens_;
  size_t taken_ = 0;
};

}  // namespace

Result<std::string> write_compiled(const xgrammar::CompiledGrammar& compiled) {
  const Error too_large{ErrorCode::kInvalidArgument,
                        "the structure is too large once it is compiled"};
  if (compiled.MemorySizeBytes() > limits::kCompiledGrammarBytesMax) {
    return too_large;
  }
  const xgrammar::Grammar whole = compiled.GetGrammar();
  auto bare = std::make_shared<xgrammar::Grammar::Impl>(*whole.ImplPtr());
  bare->per_rule_fsms.clear();
  bare->optimized = false;  // An optimized grammar needs them.
  BytesWriter out;
  out.text(xgrammar::Grammar(std::move(bare)).SerializeJSON());
  for (const auto& rule : whole->per_rule_fsms) {
    write_rule(out, rule.value());
  }
  const auto& masks = compiled->adaptive_token_mask_cache;
  out.number(static_cast<uint32_t>(masks.size()));
  for (const auto& [state, mask] : masks) {
    write_mask(out, state, mask);
  }
  std::string bytes = out.take();
  if (bytes.size() > limits::kCompiledGrammarBytesMax) {
    return too_large;
  }
  return bytes;
}

Result<xgrammar::CompiledGrammar> read_compiled(std::string_view bytes,
                                                const xgrammar::TokenizerInfo& tokens) {
  try {
    return CompiledReader(bytes, tokens).run();
  } catch (const std::exception&) {
    return no_grammar();  // Thrown by the library.
  }
}

}  // namespace pdjob::engine
