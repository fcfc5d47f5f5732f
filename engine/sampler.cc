#include "engine/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "common/random.h"
#include "engine/engine.h"
#include "engine/grammar/grammar.h"

namespace pdjob::engine {
namespace {

// As in vLLM. Below this, dividing by the temperature would lose all precision.
constexpr float kGreedyTemperature = 1e-5F;

struct Candidate {
  Token token = 0;
  float logit = 0.0F;
  float weight = 0.0F;  // Unnormalised probability; the most likely token has 1.
};

// More likely first. Ties go in order of token, so that the order is the same everywhere.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Uniform in [0, 1); depends only on (seed, position, attempt).
double keyed_unit(uint64_t seed, uint64_t position, uint64_t attempt) {
  return static_cast<double>(mix(mix(mix(seed) + position) + attempt) >> 11) * 0x1.0p-53;
}

// The most likely token; the lowest id wins a tie. Empty if any logit is NaN or +infinity, or all
// are -infinity.
std::optional<Token> argmax(std::span<const float> logits) {
  // Eight lanes of equal width, so that the compiler can vectorise the pass over all logits.
  constexpr size_t kLanes = 8;
  float best[kLanes];
  int32_t unsound[kLanes] = {};
  std::fill(best, best + kLanes, -INFINITY);
  size_t at = 0;
  for (; at + kLanes <= logits.size(); at += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[at + lane];
      unsound[lane] |= logit <= FLT_MAX ? 0 : 1;  // 1 for NaN, too.
      best[lane] = logit > best[lane] ? logit : best[lane];
    }
  }
  for (; at < logits.size(); ++at) {
    unsound[0] |= logits[at] <= FLT_MAX ? 0 : 1;
    best[0] = std::max(best[0], logits[at]);
  }
  const float most = *std::max_element(best, best + kLanes);
  const bool sound = std::all_of(unsound, unsound + kLanes, [](int32_t lane) { return lane == 0; });
  if (!sound || most == -INFINITY) {
    return std::nullopt;
  }
  return static_cast<Token>(std::find(logits.begin(), logits.end(), most) - logits.begin());
}

// The k most likely tokens, in order of token. `k` >= 1.
void take_top(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  // A heap with the least likely of the best k on top. Most tokens fail the first comparison, and
  // no sort is needed.
  out.clear();
  for (size_t token = 0; token < logits.size(); ++token) {
    const Candidate candidate{static_cast<Token>(token), logits[token]};
    if (out.size() < k) {
      out.push_back(candidate);
      std::push_heap(out.begin(), out.end(), more_likely);
    } else if (more_likely(candidate, out.front())) {
      std::pop_heap(out.begin(), out.end(), more_likely);
      out.back() = candidate;
      std::push_heap(out.begin(), out.end(), more_likely);
    }
  }
}

void sort_by_token(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

double total_weight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
  }
  return total;
}

class TokenSampler final : public Sampler {
 public:
  // Before `min_tokens` tokens, a token of `enders` is chosen only if no other can be.
  TokenSampler(uint32_t vocabulary, const SamplingParams& params, std::optional<Grammar> grammar,
               std::vector<Token> enders, uint64_t min_tokens)
      : params_(params),
        vocabulary_(vocabulary),
        grammar_(std::move(grammar)),
        enders_(std::move(enders)),
        may_end_at_(min_tokens) {}

  void note_prompt(std::span<const Token> prompt);
  Result<GeneratedToken> sample(std::span<const float> logits) override;
  void accept(Token token) override;
  bool finished() override { return grammar_ && grammar_->finished(); }

 private:
  static constexpr int32_t kUnseen = -1;

  bool greedy() const { return params_.temperature < kGreedyTemperature; }
  bool has_penalties() const {
    return params_.repetition_penalty != 1.0F || params_.presence_penalty != 0.0F ||
           params_.frequency_penalty != 0.0F;
  }
  bool has_adjustments() const {
    return has_penalties() || !params_.logit_bias.empty() || !params_.allowed_tokens.empty();
  }
  // Creates the table of counts with the first token. It is as large as the vocabulary, so waiting
  // requests must not hold one.
  void count_from_now_on();
  void adjust();
  void keep_allowed();
  void penalize();
  Result<Token> choose(std::span<const float> logits);
  Result<Token> choose_going_on(std::span<const float> logits);
  Result<Token> choose_once(std::span<const float> logits, uint64_t attempt);
  Token draw(std::span<const float> logits, Token most_likely, uint64_t attempt);
  void keep_top_p();
  // The logits of the newest choice, with all that its grammar excludes at -infinity.
  std::span<const float> drawn_from();

  const SamplingParams params_;
  const uint32_t vocabulary_;
  std::optional<Grammar> grammar_;
  const std::vector<Token> enders_;  // Distinct.
  std::optional<Error> failed_;      // Set once the grammar refused an accepted token.
  uint64_t position_ = 0;            // Position of the next token.
  uint64_t may_end_at_;              // The first position where a token of enders_ is allowed.
  std::vector<Token> seen_;          // Distinct tokens of prompt and output.
  // By token: kUnseen, or its count in the output. Empty without penalties.
  std::vector<int32_t> seen_count_;
  // Buffers, reused from token to token.
  std::vector<float> adjusted_;
  std::span<const float> chosen_from_;  // Those of the newest choice: the caller's, or adjusted_.
  std::vector<float> held_back_;        // The logits of some tokens.
  std::vector<Candidate> candidates_;
  std::vector<Candidate> nucleus_;
};

void TokenSampler::note_prompt(std::span<const Token> prompt) {
  position_ = prompt.size();
  may_end_at_ += prompt.size();
  if (!has_penalties()) {
    return;
  }
  std::ranges::copy_if(prompt, std::back_inserter(seen_), [this](Token token) {
    return token >= 0 && static_cast<uint32_t>(token) < vocabulary_;
  });
  std::ranges::sort(seen_);
  seen_.erase(std::ranges::unique(seen_).begin(), seen_.end());
  seen_.shrink_to_fit();
}

void TokenSampler::count_from_now_on() {
  if (seen_count_.empty()) {
    seen_count_.assign(vocabulary_, kUnseen);
    for (const Token token : seen_) {
      seen_count_[token] = 0;
    }
  }
}

void TokenSampler::accept(Token token) {
  ++position_;
  if (grammar_ && !failed_) {
    if (const Status accepted = grammar_->accept(token); !accepted.has_value()) {
      failed_ = accepted.error();
    }
  }
  if (!has_penalties() || token < 0 || static_cast<uint32_t>(token) >= vocabulary_) {
    return;
  }
  count_from_now_on();
  int32_t& count = seen_count_[token];
  if (count == kUnseen) {
    count = 0;
    seen_.push_back(token);
  }
  ++count;
}

Result<GeneratedToken> TokenSampler::sample(std::span<const float> logits) {
  PDJOB_CHECK(logits.size() == vocabulary_, logits.size());
  if (failed_) {
    return *failed_;
  }
  std::span<const float> view = logits;
  if (has_adjustments()) {
    adjusted_.assign(logits.begin(), logits.end());
    adjust();
    view = adjusted_;
  }
  GeneratedToken out;
  PDJOB_TRY(out.token, position_ < may_end_at_ ? choose_going_on(view) : choose(view));
  if (params_.logprobs >= 0) {
    const bool drawn = params_.logprobs_at_temperature;
    PDJOB_TRY(out, with_logprobs(out.token, drawn ? drawn_from() : logits,
                                 static_cast<uint32_t>(params_.logprobs),
                                 drawn && !greedy() ? params_.temperature : 1.0F));
  }
  accept(out.token);
  if (failed_) {
    return *failed_;
  }
  return out;
}

void TokenSampler::adjust() {
  if (!params_.allowed_tokens.empty()) {
    keep_allowed();
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    adjusted_[token] += bias;
  }
  if (has_penalties()) {
    penalize();
  }
}

void TokenSampler::keep_allowed() {
  held_back_.clear();
  for (const Token token : params_.allowed_tokens) {
    held_back_.push_back(adjusted_[token]);
  }
  std::ranges::fill(adjusted_, -INFINITY);
  for (size_t i = 0; i < held_back_.size(); ++i) {
    adjusted_[params_.allowed_tokens[i]] = held_back_[i];
  }
}

void TokenSampler::penalize() {
  count_from_now_on();
  for (const Token token : seen_) {
    float& logit = adjusted_[token];
    const auto count = static_cast<float>(seen_count_[token]);
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    logit -= params_.frequency_penalty * count;
    logit -= count > 0 ? params_.presence_penalty : 0.0F;
  }
}

// Chooses among the tokens that do not end the generation. If none of them can follow, chooses
// among all.
Result<Token> TokenSampler::choose_going_on(std::span<const float> logits) {
  if (logits.data() != adjusted_.data()) {
    adjusted_.assign(logits.begin(), logits.end());
  }
  held_back_.clear();
  for (const Token token : enders_) {
    held_back_.push_back(std::exchange(adjusted_[token], -INFINITY));
  }
  Result<Token> token = choose(adjusted_);
  if (token) {
    return token;
  }
  for (size_t i = 0; i < enders_.size(); ++i) {
    adjusted_[enders_[i]] = held_back_[i];
  }
  return choose(adjusted_);
}

// Chooses a token first as if there were no grammar. If the grammar refuses it, masks the
// vocabulary and chooses again, with a separate draw. This is its effect on the distribution.
// - Greedy: the result is the most likely allowed token.
// - A draw without top-k, top-p or min-p: exactly the masked distribution, since p(t) + p(refused)
//   * p(t) / p(allowed) = p(t) / p(allowed).
// - With top-k, top-p or min-p: the first draw applies them to the unmasked vocabulary, as if the
//   grammar were checked last.
Result<Token> TokenSampler::choose(std::span<const float> logits) {
  PDJOB_TRY(const Token token, choose_once(logits, 0));
  if (!grammar_ || grammar_->allows(token)) {
    return token;
  }
  if (logits.data() != adjusted_.data()) {
    adjusted_.assign(logits.begin(), logits.end());
  }
  grammar_->mask(adjusted_);
  const bool none = std::all_of(adjusted_.begin(), adjusted_.end(),
                                [](float logit) { return logit == -INFINITY; });
  if (none) {
    return Error{ErrorCode::kInvalidArgument, "the grammar allows no token here"};
  }
  return choose_once(adjusted_, 1);
}

Result<Token> TokenSampler::choose_once(std::span<const float> logits, uint64_t attempt) {
  chosen_from_ = logits;
  const auto most_likely = argmax(logits);
  if (!most_likely) {
    return Error{ErrorCode::kCorrupt, "the model's logits are not numbers"};
  }
  return greedy() ? *most_likely : draw(logits, *most_likely, attempt);
}

Token TokenSampler::draw(std::span<const float> logits, Token most_likely, uint64_t attempt) {
  const float most = logits[most_likely];
  if (params_.top_k > 0 && static_cast<uint32_t>(params_.top_k) < vocabulary_) {
    take_top(logits, static_cast<size_t>(params_.top_k), candidates_);
    sort_by_token(candidates_);
  } else {
    candidates_.clear();
    for (size_t token = 0; token < logits.size(); ++token) {
      candidates_.push_back({static_cast<Token>(token), logits[token]});
    }
  }
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((candidate.logit - most) / params_.temperature);
  }
  if (params_.top_p < 1.0F) {
    keep_top_p();
  }
  if (params_.min_p > 0.0F) {
    std::erase_if(candidates_,
                  [this](const Candidate& each) { return each.weight < params_.min_p; });
  }
  double left = keyed_unit(params_.seed, position_, attempt) * total_weight(candidates_);
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0) {
      return candidate.token;
    }
  }
  return most_likely;  // Reached only through rounding.
}

// Keeps the smallest set of most likely candidates that has probability top_p, at least one.
void TokenSampler::keep_top_p() {
  const double total = total_weight(candidates_);
  // Candidates below this weight add up to less than 1 - top_p, so all of them can go. Few are left
  // to sort.
  const double negligible = (1.0 - params_.top_p) * total / static_cast<double>(candidates_.size());
  nucleus_.clear();
  std::copy_if(candidates_.begin(), candidates_.end(), std::back_inserter(nucleus_),
               [&](const Candidate& each) { return each.weight >= negligible; });
  std::sort(nucleus_.begin(), nucleus_.end(), more_likely);
  double mass = 0;
  size_t kept = 0;
  while (kept < nucleus_.size() && (kept == 0 || mass < params_.top_p * total)) {
    mass += nucleus_[kept++].weight;
  }
  nucleus_.resize(kept);
  std::swap(candidates_, nucleus_);
  sort_by_token(candidates_);
}

// A first draw that the grammar allows has not masked the vocabulary.
std::span<const float> TokenSampler::drawn_from() {
  if (!grammar_) {
    return chosen_from_;
  }
  if (chosen_from_.data() != adjusted_.data()) {
    adjusted_.assign(chosen_from_.begin(), chosen_from_.end());
  }
  grammar_->mask(adjusted_);
  return adjusted_;
}

Status check_params(const SamplingParams& params, uint32_t vocabulary) {
  const auto invalid = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what};
  };
  // Written so that NaN fails.
  if (!(params.temperature >= 0 && params.temperature <= FLT_MAX)) {
    return invalid("temperature must be at least 0");
  }
  if (!(params.top_p >= 0 && params.top_p <= 1)) {
    return invalid("top_p must be 0 .. 1");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return invalid("min_p must be 0 .. 1");
  }
  if (params.top_k < -1) {
    return invalid("top_k must be at least 1, or 0 or -1 for all");
  }
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= FLT_MAX)) {
    return invalid("repetition_penalty must be above 0");
  }
  if (!std::isfinite(params.presence_penalty) || !std::isfinite(params.frequency_penalty)) {
    return invalid("presence_penalty and frequency_penalty must be numbers");
  }
  if (params.logprobs > static_cast<int32_t>(limits::kLogprobsMax)) {
    return invalid("at most " + std::to_string(limits::kLogprobsMax) + " logprobs");
  }
  if (params.logit_bias.size() > limits::kLogitBiasMax) {
    return invalid("at most " + std::to_string(limits::kLogitBiasMax) + " entries in logit_bias");
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocabulary || !std::isfinite(bias)) {
      return invalid("logit_bias: no such token, or not a number: " + std::to_string(token));
    }
  }
  for (const Token token : params.allowed_tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocabulary) {
      return invalid("allowed_token_ids: no such token: " + std::to_string(token));
    }
  }
  return ok();
}

// The valid tokens that end a generation.
std::vector<Token> enders_of(const Vocabulary& vocabulary, const StopParams& stop) {
  std::set<Token> enders(vocabulary.end_tokens().begin(), vocabulary.end_tokens().end());
  for (const Token token : stop.token_ids) {
    if (token >= 0 && static_cast<uint32_t>(token) < vocabulary.size()) {
      enders.insert(token);
    }
  }
  return {enders.begin(), enders.end()};
}

}  // namespace

Result<std::unique_ptr<Sampler>> open_sampler(const Engine& engine, const SamplingParams& params,
                                              std::span<const Token> prompt, const StopParams& stop,
                                              std::shared_ptr<const CompiledGrammar> grammar) {
  const uint32_t vocabulary = engine.facts().vocabulary;
  PDJOB_TRY_STATUS(check_params(params, vocabulary));
  std::optional<Grammar> followed;
  if (grammar != nullptr) {
    followed.emplace(std::move(grammar));
  }
  auto sampler = std::make_unique<TokenSampler>(vocabulary, params, std::move(followed),
                                                enders_of(engine.vocabulary(), stop),
                                                static_cast<uint64_t>(stop.min_tokens));
  sampler->note_prompt(prompt);
  return std::unique_ptr<Sampler>(std::move(sampler));
}

Result<GeneratedToken> with_logprobs(Token token, std::span<const float> logits,
                                     uint32_t alternatives, float temperature) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) {
    total += std::exp((logit - most) / temperature);
  }
  if (!std::isfinite(total)) {
    return Error{ErrorCode::kCorrupt, "the model's logits are not numbers"};
  }
  const double log_total = std::log(total);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit - most) / temperature - log_total);
  };
  GeneratedToken out{.token = token, .logprob = logprob(logits[static_cast<size_t>(token)])};
  if (alternatives > 0) {
    std::vector<Candidate> candidates;
    take_top(logits, alternatives, candidates);
    std::sort(candidates.begin(), candidates.end(), more_likely);
    for (const Candidate& candidate : candidates) {
      out.top.push_back({candidate.token, logprob(candidate.logit)});
    }
  }
  return out;
}

TokenPieces grammar_pieces(const Vocabulary& vocabulary) {
  TokenPieces out;
  for (Token token = 0; token < static_cast<Token>(vocabulary.size()); ++token) {
    const bool text = !vocabulary.is_control(token) && !vocabulary.is_end(token);
    out.pieces.push_back(text ? vocabulary.piece(token, /*render_special=*/false) : "");
  }
  out.ends.assign(vocabulary.end_tokens().begin(), vocabulary.end_tokens().end());
  return out;
}

}  // namespace pdjob::engine
