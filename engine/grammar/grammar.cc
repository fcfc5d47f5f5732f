#include "engine/grammar/grammar.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <dlpack/dlpack.h>
#include <xgrammar/matcher.h>

#include "common/limits.h"
#include "common/os/real_clock.h"
#include "engine/grammar/compiled_grammar_state.h"

namespace pdjob::engine {
namespace {

constexpr size_t kBits = 32;

Error refused(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

}  // namespace

struct Grammar::State {
  explicit State(std::shared_ptr<const CompiledGrammar> from)
      : compiled(std::move(from)), matcher(compiled->state().compiled) {
    const auto size = static_cast<size_t>(compiled->state().tokens->info.GetVocabSize());
    bits.resize((size + kBits - 1) / kBits);
  }

  bool is_end(Token token) const {
    const std::vector<Token>& ends = compiled->state().tokens->ends;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  }
  bool in_vocabulary(Token token) const {
    return token >= 0 && token < compiled->state().tokens->info.GetVocabSize();
  }
  bool bit(Token token) const {
    const auto at = static_cast<size_t>(token);
    return ((static_cast<uint32_t>(bits[at / kBits]) >> (at % kBits)) & 1U) != 0;
  }
  // Runs a call of the library, counts its time, and catches its exceptions. An exception fails the
  // choice.
  template <class Work>
  bool run(const Work& work) {
    const Duration begun = thread_cpu_time();
    bool result = false;
    try {
      result = work();
    } catch (const std::exception&) {
      broken = true;
    }
    spent += thread_cpu_time() - begun;
    return result;
  }
  // Writes into `bits` which tokens may follow.
  void fill() {
    if (filled) {
      return;
    }
    filled = true;
    int64_t shape = static_cast<int64_t>(bits.size());
    DLTensor tensor{.data = bits.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    const bool some_not = run([&] { return matcher.FillNextTokenBitmask(&tensor); });
    if (!some_not) {
      std::fill(bits.begin(), bits.end(), broken ? 0 : -1);
    }
  }

  std::shared_ptr<const CompiledGrammar> compiled;
  xgrammar::GrammarMatcher matcher;
  std::vector<int32_t> bits;
  bool filled = false;
  bool ended = false;
  bool broken = false;
  uint64_t tokens = 0;
  Duration spent{};
};

Grammar::Grammar(std::shared_ptr<const CompiledGrammar> compiled)
    : state_(std::make_unique<State>(std::move(compiled))) {}
Grammar::Grammar(Grammar&&) noexcept = default;
Grammar& Grammar::operator=(Grammar&&) noexcept = default;
Grammar::~Grammar() = default;

bool Grammar::allows(Token token) {
  State& state = *state_;
  if (state.is_end(token)) {
    return state.ended || state.run([&] { return state.matcher.IsCompleted(); });
  }
  if (state.ended || !state.in_vocabulary(token)) {
    return false;
  }
  if (state.filled) {
    return state.bit(token);
  }
  // Cheaper than checking all tokens.
  return state.run([&] {
    const bool accepted = state.matcher.AcceptToken(token);
    if (accepted) {
      state.matcher.Rollback(1);
    }
    return accepted;
  });
}

void Grammar::mask(std::span<float> logits) {
  State& state = *state_;
  if (state.ended) {
    for (size_t token = 0; token < logits.size(); ++token) {
      logits[token] = state.is_end(static_cast<Token>(token)) ? logits[token] : -INFINITY;
    }
    return;
  }
  state.fill();
  for (size_t begin = 0; begin < logits.size(); begin += kBits) {
    const uint32_t word =
        begin / kBits < state.bits.size() ? static_cast<uint32_t>(state.bits[begin / kBits]) : 0;
    if (word == UINT32_MAX) {
      continue;
    }
    const size_t end = std::min(begin + kBits, logits.size());
    for (size_t token = begin; token < end; ++token) {
      logits[token] = ((word >> (token - begin)) & 1U) != 0 ? logits[token] : -INFINITY;
    }
  }
}

Status Grammar::accept(Token token) {
  State& state = *state_;
  if (state.is_end(token)) {
    if (!allows(token)) {
      return refused("the grammar does not allow an end here");
    }
    state.ended = true;
    return ok();
  }
  if (state.ended || !state.in_vocabulary(token) ||
      !state.run([&] { return state.matcher.AcceptToken(token); })) {
    return refused("the grammar does not allow token " + std::to_string(token) + " here");
  }
  state.filled = false;
  ++state.tokens;
  if (state.spent > limits::kGrammarTimeMax + limits::kGrammarTimePerToken * state.tokens) {
    return refused("the grammar is too ambiguous for this text");
  }
  return ok();
}

bool Grammar::finished() {
  State& state = *state_;
  if (state.ended || !state.run([&] { return state.matcher.IsCompleted(); })) {
    return state.ended;
  }
  state.fill();
  for (Token token = 0; token < state.compiled->state().tokens->info.GetVocabSize(); ++token) {
    if (state.bit(token) && !state.is_end(token)) {
      return false;
    }
  }
  return true;
}

}  // namespace pdjob::engine
