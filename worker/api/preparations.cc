#include "worker/api/preparations.h"

#include <utility>

namespace pdjob::worker {
namespace {

class GenerationsPreparation final : public Preparation {
 public:
  GenerationsPreparation(const GenerationMaker& maker, openai::ApiRequest request, uint64_t seed,
                         std::shared_ptr<const engine::CompiledGrammar> grammar, PreparedThen then)
      : maker_(maker),
        grammar_(std::move(grammar)),
        prompts_(GenerationMaker::prompts(request)),
        seed_(request.seeded ? request.sampling.seed : seed),
        then_(std::move(then)) {
    prepared_.request = std::move(request);
    prepared_.generations.reserve(prompts_);
  }

  bool step() override {
    openai::ApiRequest& request = prepared_.request;
    const size_t index = prepared_.generations.size();
    auto made = maker_.make(request, index, seed_ + index * request.choices, grammar_);
    if (!made) {
      outcome_ = made.error();
      return true;
    }
    const auto& generation = prepared_.generations.emplace_back(*std::move(made));
    if (request.echo) {
      prepared_.echoes.push_back(maker_.text_of(generation.prompt, request.scores_prompt()));
    }
    prompt_tokens_ += generation.prompt.size();
    outcome_ = GenerationMaker::logprobs_fit(request, prompt_tokens_);
    return !outcome_ || prepared_.generations.size() == prompts_;
  }

  void done() override {
    if (outcome_) {
      then_(std::move(prepared_));
    } else {
      then_(outcome_.error());
    }
  }

 private:
  const GenerationMaker& maker_;
  const std::shared_ptr<const engine::CompiledGrammar> grammar_;
  const size_t prompts_;
  const uint64_t seed_;  // The first choice's; later choices add to it.
  const PreparedThen then_;
  PreparedRequest prepared_;
  size_t prompt_tokens_ = 0;
  Result<Done, openai::ApiError> outcome_ = ok();
};

// A preparation with one step.
template <class Value>
class WholePreparation final : public Preparation {
 public:
  using Outcome = Result<Value, openai::ApiError>;
  using Work = std::function<Outcome()>;
  using Then = std::function<void(Outcome)>;

  WholePreparation(Work work, Then then) : work_(std::move(work)), then_(std::move(then)) {}

  bool step() override {
    outcome_ = std::exchange(work_, nullptr)();
    return true;
  }
  void done() override { then_(*std::move(outcome_)); }

 private:
  Work work_;
  const Then then_;
  std::optional<Outcome> outcome_;
};
using BodyPreparation = WholePreparation<std::string>;

}  // namespace

std::unique_ptr<Preparation> prepare_request(openai::ApiKind kind, std::string body,
                                             ParsedThen then) {
  return std::make_unique<WholePreparation<openai::ApiRequest>>(
      [kind, body = std::move(body)] { return openai::parse_api_request(kind, body); },
      std::move(then));
}

std::unique_ptr<Preparation> prepare_generations(
    const GenerationMaker& maker, openai::ApiRequest request, uint64_t seed,
    std::shared_ptr<const engine::CompiledGrammar> grammar, PreparedThen then) {
  return std::make_unique<GenerationsPreparation>(maker, std::move(request), seed,
                                                  std::move(grammar), std::move(then));
}

std::unique_ptr<Preparation> prepare_tokens(const GenerationMaker& maker,
                                            openai::TokenizeRequest request, uint32_t context_max,
                                            BodyThen then) {
  return std::make_unique<BodyPreparation>(
      [&maker, context_max,
       request = std::move(request)]() -> Result<std::string, openai::ApiError> {
        PDJOB_TRY(const std::vector<Token> ids,
                  request.messages.empty()
                      ? maker.tokenize(request.prompt, request.add_special_tokens)
                      : maker.tokenize({request.messages, request.tools, request.chat_template}));
        std::vector<std::string> texts;
        if (request.return_token_strs) {
          texts.reserve(ids.size());
          for (const Token id : ids) {
            texts.push_back(maker.text_of({id}, /*render_special=*/true));
          }
        }
        return openai::tokenize_body(ids, context_max, texts);
      },
      std::move(then));
}

std::unique_ptr<Preparation> prepare_text(const GenerationMaker& maker,
                                          openai::DetokenizeRequest request, BodyThen then) {
  return std::make_unique<BodyPreparation>(
      [&maker, request = std::move(request)]() -> Result<std::string, openai::ApiError> {
        PDJOB_TRY(const std::string text,
                  maker.detokenize(request.tokens, !request.skip_special_tokens));
        return openai::detokenize_body(text);
      },
      std::move(then));
}

}  // namespace pdjob::worker
