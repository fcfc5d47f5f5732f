#include "launcher/capacity/engine_probes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "openai/json/json_edit.h"
#include "openai/replies/model_list.h"

namespace pdjob::launcher {
namespace {

constexpr uint32_t kFirstOutput = 48;       // Tokens of a stream that is measured.
constexpr uint32_t kOutputMax = 768;        // If more are needed until all streams run.
constexpr double kStepsMin = 8;             // Fewer make no figure.
constexpr size_t kRefusedInARowMax = 4;     // Then the engine is broken, not small.
constexpr uint32_t kStreamTokens = 64;      // Of prompts that only have to decode.
constexpr uint32_t kContextReserve = 1024;  // For output, if the engine says its context.

constexpr auto kVersionNames = std::to_array<std::string_view>({"version"});
constexpr auto kListNames = std::to_array<std::string_view>({"data"});
constexpr auto kModelNames = std::to_array<std::string_view>({"owned_by"});

// "vllm 0.32.0" of the engine's own words; empty: it says nothing.
std::string engine_words(const std::string& models, const Result<net::HttpReply>& version) {
  std::string text;
  if (const auto list = openai::JsonObject::scan(models, kListNames)) {
    for (const std::string& model : openai::json_array_items(list->value("data"))) {
      const auto named = openai::JsonObject::scan(model, kModelNames);
      text =
          named && text.empty() ? openai::json_string(named->value("owned_by")).value_or("") : text;
    }
  }
  if (version && version->status == 200) {
    if (const auto object = openai::JsonObject::scan(version->body, kVersionNames)) {
      const std::string words = openai::json_string(object->value("version")).value_or("");
      text += (text.empty() || words.empty() ? "" : " ") + words;
    }
  }
  return text.substr(0, 100);
}

// The time in which all streams decoded, and how many steps that were.
struct Window {
  Instant begin{};
  Instant end{};
  double steps = 0;
  bool is_none() const { return end <= begin; }
};

// A chunk of a stream may have several tokens.
double tokens_per_chunk(const ProbeReply& reply) {
  const double tokens = reply.usage ? reply.usage->completion_tokens : 0;
  return std::max(1.0, tokens / static_cast<double>(reply.tokens.size()));
}

double chunks_between(const ProbeReply& reply, Instant begin, Instant end) {
  return static_cast<double>(std::ranges::count_if(
      reply.tokens, [&](Instant token) { return token > begin && token <= end; }));
}

Window window_of(const std::vector<ProbeReply>& replies) {
  Window window{.begin = replies.front().tokens.front(), .end = replies.front().tokens.back()};
  for (const ProbeReply& reply : replies) {
    window.begin = std::max(window.begin, reply.tokens.front());
    window.end = std::min(window.end, reply.tokens.back());
  }
  for (const ProbeReply& reply : replies) {
    window.steps += chunks_between(reply, window.begin, window.end) * tokens_per_chunk(reply) /
                    static_cast<double>(replies.size());
  }
  return window;
}

// The rows that a stream's token reads in the middle of the window.
double rows_in(const ProbeReply& reply, const Window& window) {
  const double before = chunks_between(reply, Instant(), window.begin) * tokens_per_chunk(reply);
  return reply.usage->prompt_tokens + before + window.steps / 2;
}

bool all_have_output(const std::vector<ProbeReply>& replies) {
  return std::ranges::all_of(replies, [](const ProbeReply& reply) {
    return !reply.tokens.empty() && reply.usage.has_value();
  });
}

double seconds_between(Instant begin, Instant end) { return seconds(end - begin); }

}  // namespace

EngineProbes::EngineProbes(net::EventLoop& loop, ProbedServers servers, ProbeOptions options,
                           Tell tell)
    : loop_(loop),
      client_(loop),
      servers_(std::move(servers)),
      options_(std::move(options)),
      tell_(std::move(tell)),
      prompts_(options_.seed) {}

Result<ProbedEngine> EngineProbes::run() {
  deadline_ = loop_.exact_now() + options_.budget;
  PDJOB_TRY_STATUS(learn_engine());
  PDJOB_TRY_STATUS(learn_prompts());
  while (const auto wanted = plan_->next(deadline_ - loop_.exact_now())) {
    tell_(wanted->name(), plan_->share_done());
    if (const Status measured = measure(*wanted); !measured) {
      if (measured.error().code != ErrorCode::kTimeout) {
        return measured.error();
      }
      break;  // What was measured before counts.
    }
  }
  engine_.model = options_.model;
  return std::move(engine_);
}

Status EngineProbes::learn_engine() {
  PDJOB_TRY(const net::HttpReply models, client_.get(servers_.prompts, "/v1/models"));
  if (models.status == 401 || models.status == 403) {
    return Error{ErrorCode::kInvalidArgument, "the server wants an API key: name it by --key-file"};
  }
  if (models.status != 200) {
    return Error{ErrorCode::kUnsupported, "the server has no /v1/models: it answers " +
                                              refusal_text(models.status, models.body)};
  }
  const openai::ListedModels listed = openai::parse_model_list(models.body);
  options_.model = options_.model.empty() ? listed.id : options_.model;
  if (options_.model.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the server has not exactly one model: name one by --model"};
  }
  engine_.engine = engine_words(models.body, client_.get(servers_.prompts, "/version"));
  const uint32_t context = listed.context_max;
  plan_.emplace(ProbePlan::Limits{
      .budget = options_.budget,
      .prompt_tokens_max =
          context == 0 ? UINT32_MAX : context - std::min(context / 4, kContextReserve),
      .transfers = servers_.decode.has_value()});
  return ok();
}

// The first request also warms up the engine.
Status EngineProbes::learn_prompts() {
  std::vector<ProbeAsk> asks = {ask_of(servers_.prompts, kStreamTokens, 4)};
  if (servers_.decode) {
    asks.push_back(ask_of(*servers_.decode, kStreamTokens, 4));
  }
  PDJOB_TRY(const auto replies, client_.ask(asks, deadline_));
  for (const ProbeReply& reply : replies) {
    if (reply.status == 401 || reply.status == 403) {
      return Error{ErrorCode::kInvalidArgument,
                   "the server wants an API key: name it by --key-file, and one of --decode by "
                   "--decode-key-file"};
    }
    if (!reply.refusal.empty()) {
      return Error{ErrorCode::kUnsupported,
                   "the server does not answer /v1/completions: " + reply.refusal};
    }
    if (reply.tokens.empty() || !reply.usage) {
      return Error{ErrorCode::kUnsupported,
                   "the server's stream has no output, or no usage: it must know "
                   "stream_options.include_usage"};
    }
  }
  prompts_.learn(asks.front().request.prompt, replies.front().usage->prompt_tokens);
  return ok();
}

Status EngineProbes::measure(const WantedProbe& wanted) {
  const Instant begin = loop_.exact_now();
  std::optional<Miss> miss;
  if (wanted.kind == WantedProbe::Kind::kTransfer) {
    PDJOB_TRY(const auto figure, measure_transfer(wanted));
    if (const auto* transfer = std::get_if<TransferProbe>(&figure)) {
      const auto known =
          std::ranges::find(engine_.transfers, transfer->tokens, &TransferProbe::tokens);
      known == engine_.transfers.end() ? engine_.transfers.push_back(*transfer)
                                       : known->seconds.push_back(transfer->seconds.front());
    } else {
      miss = std::get<Miss>(figure);
    }
  } else {
    PDJOB_TRY(const auto figure, wanted.kind == WantedProbe::Kind::kPrompt ? measure_prompts(wanted)
                                 : wanted.kind == WantedProbe::Kind::kDecode
                                     ? measure_decode(wanted)
                                     : measure_mixed(wanted));
    if (const auto* measured = std::get_if<Measured>(&figure)) {
      note(wanted, *measured);
    } else {
      miss = std::get<Miss>(figure);
    }
  }
  if (!miss) {
    plan_->took(loop_.exact_now() - begin);
  } else if (*miss == Miss::kTooLong) {
    plan_->was_too_long();
  } else if (*miss == Miss::kTooMany) {
    plan_->was_too_many();
  } else {
    plan_->was_useless();
  }
  return ok();
}

// Repetitions have prompts of slightly different lengths: the work is their mean.
void EngineProbes::note(const WantedProbe& wanted, const Measured& measured) {
  using Kind = WantedProbe::Kind;
  const auto [at, is_new] = steps_at_.emplace(wanted, engine_.steps.size());
  if (is_new) {
    engine_.steps.push_back({.kind = wanted.kind == Kind::kPrompt   ? ProbeKind::kPrefill
                                     : wanted.kind == Kind::kDecode ? ProbeKind::kDecode
                                                                    : ProbeKind::kMixed,
                             .name = wanted.name(),
                             .work = measured.work});
  }
  StepProbe& probe = engine_.steps[at->second];
  probe.seconds.push_back(measured.seconds);
  probe.work.approach(measured.work, 1.0 / static_cast<double>(probe.seconds.size()));
}

EngineProbes::Figure<std::vector<ProbeReply>> EngineProbes::replies_of(std::vector<ProbeAsk> asks) {
  const bool several = asks.size() > 1;
  PDJOB_TRY(auto replies, client_.ask(std::move(asks), deadline_));
  for (const ProbeReply& reply : replies) {
    if (reply.refusal.empty()) {
      continue;
    }
    last_refusal_ = reply.refusal;
    if (++refused_in_a_row_ > kRefusedInARowMax) {
      return Error{ErrorCode::kPeerFailed,
                   "the server refuses request after request: " + last_refusal_};
    }
    const bool too_long = reply.status == 400 || reply.status == 413 || reply.status == 422;
    const bool too_many = several && (reply.status == 429 || reply.status == 503);
    return std::variant<std::vector<ProbeReply>, Miss>(too_long   ? Miss::kTooLong
                                                       : too_many ? Miss::kTooMany
                                                                  : Miss::kUseless);
  }
  refused_in_a_row_ = 0;
  return std::variant<std::vector<ProbeReply>, Miss>(std::move(replies));
}

ProbeAsk EngineProbes::ask_of(const ProbeTarget& to, uint32_t tokens, uint32_t output_tokens) {
  return {.to = to,
          .request = {.model = options_.model,
                      .prompt = prompts_.prompt(tokens),
                      .output_tokens = output_tokens}};
}

std::vector<ProbeAsk> EngineProbes::prompts_again(const std::vector<ProbeAsk>& asks,
                                                  uint32_t output_tokens) {
  std::vector<ProbeAsk> again = asks;
  for (ProbeAsk& ask : again) {
    ask.request.output_tokens = output_tokens;
  }
  return again;
}

void EngineProbes::add_prompt(StepWork& work, const ProbeReply& reply) const {
  work.add(0, std::max(2U, reply.usage->prompt_tokens));
}

EngineProbes::Figure<EngineProbes::Measured> EngineProbes::measure_prompts(
    const WantedProbe& wanted) {
  using Outcome = std::variant<Measured, Miss>;
  std::vector<ProbeAsk> asks;
  for (uint32_t i = 0; i < wanted.requests; ++i) {
    asks.push_back(ask_of(servers_.prompts, wanted.tokens, 1));
  }
  PDJOB_TRY(const auto answered, replies_of(asks));
  const auto* const replies = std::get_if<std::vector<ProbeReply>>(&answered);
  if (replies == nullptr) {
    return Outcome(std::get<Miss>(answered));
  }
  if (!all_have_output(*replies)) {
    return Outcome(Miss::kUseless);
  }
  prompts_.learn(asks.front().request.prompt, replies->front().usage->prompt_tokens);
  Instant first = replies->front().sent;
  Instant last{};
  Measured measured{.work = {.requests = 1}};
  for (const ProbeReply& reply : *replies) {
    first = std::min(first, reply.sent);
    last = std::max(last, reply.tokens.front());
    add_prompt(measured.work, reply);
  }
  measured.work.steps =
      options_.chunk_tokens == 0
          ? 1
          : std::ceil(measured.work.prompt_tokens / static_cast<double>(options_.chunk_tokens));
  measured.seconds = seconds_between(first, last);
  return Outcome(measured);
}

// The prompts are computed once before, so that a prefix cache lets all streams begin at once.
EngineProbes::Figure<EngineProbes::Measured> EngineProbes::measure_decode(
    const WantedProbe& wanted) {
  using Outcome = std::variant<Measured, Miss>;
  std::vector<ProbeAsk> asks;
  for (uint32_t i = 0; i < wanted.requests; ++i) {
    asks.push_back(ask_of(decoder(), wanted.tokens, 1));
  }
  PDJOB_TRY(const auto warmed, replies_of(asks));
  if (const auto* const miss = std::get_if<Miss>(&warmed)) {
    return Outcome(*miss);
  }
  uint32_t& output = output_of_.emplace(wanted, kFirstOutput).first->second;
  while (true) {
    PDJOB_TRY(const auto answered, replies_of(prompts_again(asks, output)));
    const auto* const replies = std::get_if<std::vector<ProbeReply>>(&answered);
    if (replies == nullptr) {
      return Outcome(std::get<Miss>(answered));
    }
    if (!all_have_output(*replies)) {
      return Outcome(Miss::kUseless);
    }
    const Window window = window_of(*replies);
    if (!window.is_none() && window.steps >= kStepsMin) {
      Measured measured{.work = {.steps = 1},
                        .seconds = seconds_between(window.begin, window.end) / window.steps};
      for (const ProbeReply& reply : *replies) {
        measured.work.sequences += 1;
        measured.work.context_reads += rows_in(reply, window) + 1;
      }
      return Outcome(measured);
    }
    if (output >= kOutputMax) {
      return Outcome(Miss::kTooMany);  // Some of them wait until others have ended.
    }
    output = std::min(kOutputMax, output * 4);
  }
}

// From the first step after the prompt has come to the prompt's first token.
EngineProbes::Figure<EngineProbes::Measured> EngineProbes::measure_mixed(
    const WantedProbe& wanted) {
  using Outcome = std::variant<Measured, Miss>;
  uint32_t& output = output_of_.emplace(wanted, kFirstOutput).first->second;
  std::vector<ProbeAsk> asks;
  for (uint32_t i = 0; i < wanted.requests; ++i) {
    asks.push_back(ask_of(decoder(), kStreamTokens, output));
  }
  asks.push_back(ask_of(decoder(), wanted.tokens, 1));
  asks.back().late = true;
  PDJOB_TRY(const auto answered, replies_of(asks));
  const auto* const all = std::get_if<std::vector<ProbeReply>>(&answered);
  if (all == nullptr) {
    return Outcome(std::get<Miss>(answered));
  }
  if (!all_have_output(*all)) {
    return Outcome(Miss::kUseless);
  }
  const ProbeReply& prompt = all->back();
  const std::vector<ProbeReply> streams(all->begin(), all->end() - 1);
  const Instant end = prompt.tokens.front();
  Window window = window_of(streams);
  const auto begins = std::ranges::upper_bound(streams.front().tokens, prompt.sent);
  if (window.end < end || begins == streams.front().tokens.end() || *begins >= end) {
    output = std::min(kOutputMax, output * 4);
    return Outcome(Miss::kUseless);
  }
  window = {
      .begin = *begins,
      .end = end,
      .steps = chunks_between(streams.front(), *begins, end) * tokens_per_chunk(streams.front())};
  Measured measured{.work = {.steps = std::max(1.0, window.steps)},
                    .seconds = seconds_between(window.begin, window.end)};
  add_prompt(measured.work, prompt);
  for (const ProbeReply& stream : streams) {
    measured.work.sequences += measured.work.steps;
    measured.work.context_reads += measured.work.steps * (rows_in(stream, window) + 1);
  }
  return Outcome(measured);
}

// vLLM's two-hop protocol, by hand: the prefill worker computes and keeps the KV, and the decode
// worker fetches it. So nothing but the transfer is between the decode leg and its first token.
EngineProbes::Figure<TransferProbe> EngineProbes::measure_transfer(const WantedProbe& wanted) {
  using Outcome = std::variant<TransferProbe, Miss>;
  if (transfers_fail_) {
    return Outcome(Miss::kUseless);
  }
  ProbeAsk prefill = ask_of(servers_.prompts, wanted.tokens, 1);
  prefill.request.stream = false;
  prefill.request.kv_transfer_params = kPrefillLegParams;
  PDJOB_TRY(const auto computed, replies_of({prefill}));
  if (const auto* const miss = std::get_if<Miss>(&computed)) {
    return Outcome(*miss);
  }
  const auto params = transfer_params_of(std::get<0>(computed).front().body);
  if (!params) {
    transfers_fail_ = true;
    engine_.notes.push_back(
        "KV transfers were not measured: the server of --measure is no prefill "
        "worker, " +
        params.error().message);
    return Outcome(Miss::kUseless);
  }
  ProbeAsk decode = prefill;
  decode.to = *servers_.decode;
  decode.request.stream = true;
  decode.request.kv_transfer_params = *params;
  PDJOB_TRY(const auto fetched, replies_of({decode}));
  const auto* const replies = std::get_if<std::vector<ProbeReply>>(&fetched);
  if (replies == nullptr) {
    return Outcome(std::get<Miss>(fetched));
  }
  if (!all_have_output(*replies)) {
    return Outcome(Miss::kUseless);
  }
  const ProbeReply& reply = replies->front();
  const double seconds =
      reply.kv_seconds > 0 ? reply.kv_seconds : seconds_between(reply.sent, reply.tokens.front());
  return Outcome(TransferProbe{.tokens = wanted.tokens, .seconds = {seconds}});
}

}  // namespace pdjob::launcher
