#include "worker/api/reply_book.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>

#include "common/hex.h"
#include "common/limits.h"
#include "common/log.h"
#include "openai/headers.h"
#include "openai/reply_error.h"
#include "worker/api/plain_replies.h"
#include "worker/core/kv_params.h"

namespace pdjob::worker {
namespace {

constexpr size_t kReplyIdBytesMax = 128;
// Requests in the background may queue so many times as long as others.
constexpr int kPatienceInBackground = 6;
// An interim response has at most so many tokens.
constexpr uint32_t kNoteTokensMax = 512;

std::string format_seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", seconds(duration));
  return text;
}

// Like vLLM, uses the id that the request came with, so that it can be found in the logs of every
// process.
std::string reply_id(std::string_view request_id, net::Loop& loop) {
  const bool plain = std::ranges::all_of(request_id, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
  return plain && !request_id.empty() && request_id.size() <= kReplyIdBytesMax
             ? std::string(request_id)
             : TransferId{loop.entropy(), loop.entropy()}.to_string();
}

// Whether tokens alone let another worker go on with this whole reply: not with logprobs of those
// that it did not compute.
bool tells_progress(const openai::ApiRequest& request, const GenerationRequest& first) {
  return !request.stream && !first.prompt_only && first.reading == PromptReading::kNothing &&
         first.kv != KvMode::kOffer && request.sampling.logprobs < 0;
}

void append_version(std::string& note, std::string_view version) {
  note.append(";w=");
  for (const char byte : version) {
    append_hex(note, static_cast<unsigned char>(byte), 2);
  }
}

}  // namespace

ReplyBook::ReplyBook(Options options, const engine::Engine& engine, EngineQueue& engine_queue,
                     net::HttpServer& server, net::Loop& loop, WorkerMetrics& metrics,
                     LoadMeter& meter, std::function<void()> let_go)
    : options_(std::move(options)),
      weight_version_(options_.weight_version.empty() ? "default" : options_.weight_version),
      engine_(engine),
      engine_queue_(engine_queue),
      server_(server),
      loop_(loop),
      metrics_(metrics),
      meter_(meter),
      let_go_(std::move(let_go)) {}

void ReplyBook::take(Output& output) {
  std::visit(
      [this](auto& one) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(one)>, WorkerDrained>) {
          take_output(one);
        }
      },
      output);
}

void ReplyBook::client_left(net::ExchangeId id) {
  if (exchanges_.contains(id.value)) {
    metrics_.requests_cancelled.add();
    drop(id.value);
  }
}

size_t ReplyBook::abort(const openai::AbortRequest& asked, std::string_view tenant) {
  std::vector<ExchangeKey> keys;
  keys.reserve(exchanges_.size());
  for (const auto& [key, exchange] : exchanges_) {
    if (tenant.empty() || exchange.tenant == tenant) {
      keys.push_back(key);
    }
  }
  size_t count = 0;
  for (const ExchangeKey key : keys) {
    if (const auto found = exchanges_.find(key); found != exchanges_.end()) {
      count += abort(found->second, asked);
    }
  }
  return count;
}

void ReplyBook::start(const Asked& asked, PreparedRequest prepared,
                      const openai::AbortRequest& aborted) {
  const openai::ApiRequest& request = prepared.request;
  std::vector<GenerationRequest>& generations = prepared.generations;
  const auto choices_per_prompt = static_cast<uint32_t>(generations.front().samplers.size());
  const auto choices = choices_per_prompt * static_cast<uint32_t>(generations.size());
  openai::ReplyOptions reply = openai::reply_options(request);
  const std::string id = reply_id(asked.request_id, loop_);
  reply.id = id;
  reply.model = engine_.facts().name;
  const int64_t created = asked.created.value_or(loop_.unix_seconds());
  reply.created = created;
  reply.choices = choices;
  reply.choices_per_prompt = choices_per_prompt;
  const engine::Vocabulary& vocabulary = engine_.vocabulary();
  Exchange exchange{
      .http = asked.http,
      .log_name = id,
      .request_id = asked.request_id,
      .leg = asked.leg,
      .tenant = asked.tenant,
      .writer = openai::reply_form(
          std::move(reply),
          [&vocabulary](Token token, std::string& out) { out += vocabulary.piece(token, true); }),
      .choices = std::vector<ChoiceReply>(choices),
      .choices_per_prompt = choices_per_prompt,
      .choices_left = choices,
      .stream = request.stream,
      .embeds = request.kind == openai::ApiKind::kEmbedding,
      .shows_ends = request.kind == openai::ApiKind::kSglang ||
                    request.kind == openai::ApiKind::kTokens || request.return_token_ids,
      .tells = request.stream && asked.created,
      .tell_every = tells_progress(request, generations.front())
                        ? std::min<uint32_t>(asked.progress, kNoteTokensMax)
                        : 0,
      .background = asked.background,
      .headers = {{std::string(openai::header::kWorker), options_.name}},
      .arrived = loop_.now()};
  if (!asked.not_held.empty()) {
    exchange.headers.emplace_back(openai::header::kNotHeld, asked.not_held);
  }
  for (GenerationRequest& generation : generations) {
    const auto index = static_cast<uint32_t>(exchange.prompts.size());
    generation.id = RequestId{next_request_++};
    generation.group = index == 0 ? generation.id : exchange.prompts.front().generation;
    generation.tenant = asked.tenant;
    generation.background = asked.background;
    if (options_.trusts_store) {
      generation.store = asked.store;
      generation.elsewhere = asked.elsewhere;
    }
    if (generation.kv == KvMode::kOffer && generation.two_hop) {
      generation.transfer = {loop_.entropy(), loop_.entropy()};
    }
    generation.log_name = id;
    exchange.usage.prompt_tokens += generation.prompt.size();
    if (generation.kv == KvMode::kOffer) {
      exchange.kv_transfer_params = prefill_reply_params(
          options_.kv, generation.transfer, static_cast<uint32_t>(generation.prompt.size()));
    }
    if (request.echo) {
      for (uint32_t choice = 0; choice < choices_per_prompt; ++choice) {
        exchange.choices[index * choices_per_prompt + choice].text = prepared.echoes[index];
      }
    }
    if (!request.tools.empty()) {
      const std::string seed = call_seed(id, created, generation.prompt);
      for (uint32_t choice = 0; choice < choices_per_prompt; ++choice) {
        exchange.choices[choice].tools.emplace(seed, choice);
      }
    }
    for (uint32_t choice = 0; choice < generation.resumed.size(); ++choice) {
      exchange.choices[index * choices_per_prompt + choice].resumed_left =
          generation.resumed[choice].size();
    }
    exchange.prompts.push_back(
        {.generation = generation.id,
         .rid = index < request.rids.size() ? request.rids[index] : std::string(),
         .ids = request.return_token_ids || request.scores_prompt() ? generation.prompt
                                                                    : std::vector<Token>{},
         .tokens = generation.prompt.size(),
         .choices_left = choices_per_prompt});
    generations_[generation.id] = {.exchange = asked.http.value, .prompt_index = index};
    exchange.held.push_back(std::move(generation));
  }
  prompts_held_ += exchange.held.size();
  for (size_t i = 0; i < request.resumed_weights.size() && i < exchange.choices.size(); ++i) {
    exchange.choices[i].weights = request.resumed_weights[i];
  }
  Exchange& started = exchanges_.emplace(asked.http.value, std::move(exchange)).first->second;
  if (aborted.all || !aborted.names.empty()) {
    abort(started, aborted);
  }
  // An abort may have ended it.
  if (exchanges_.contains(asked.http.value)) {
    submit_held(started);
  }
}

// A request of many prompts must not fill the engine's queue, which others wait in, too.
void ReplyBook::submit_held(Exchange& exchange) {
  while (!exchange.held.empty() && exchange.prompts_submitted < limits::kPromptsSubmittedMax) {
    GenerationRequest generation = std::move(exchange.held.front());
    exchange.held.pop_front();
    prompts_held_ -= 1;
    const RequestId id = generation.id;
    const auto found = generations_.find(id);
    if (found == generations_.end()) {
      continue;  // Aborted.
    }
    exchange.prompts[found->second.prompt_index].submitted = true;
    exchange.prompts_submitted += 1;
    const int patience = generation.background ? kPatienceInBackground : 1;
    generation.deadline = loop_.now() + patience * options_.queue_timeout;
    if (const Status submitted = engine_queue_.submit(std::move(generation)); !submitted) {
      return take_output(RequestFailed{.request = id, .error = submitted.error()});
    }
  }
  let_go_();
}

void ReplyBook::take_output(TokenOutput& output) {
  const auto found = generations_.find(output.request);
  if (found == generations_.end()) {
    return;  // Its client left.
  }
  const Generation generation = found->second;
  Exchange& exchange = exchanges_.at(generation.exchange);
  const uint32_t index = generation.prompt_index * exchange.choices_per_prompt + output.choice;
  ChoiceReply& choice = exchange.choices[index];
  exchange.usage.completion_tokens += output.no_token ? 0 : 1;
  choice.completion_tokens += output.no_token ? 0 : 1;
  if (!output.resumed && !output.no_token) {
    const Instant now = loop_.now();
    if (!exchange.background) {
      exchange.last_token == Instant{} ? meter_.first_token(now - exchange.arrived)
                                       : meter_.next_token(now - exchange.last_token);
    }
    exchange.last_token = now;
    metrics_.generation_tokens.add();
  }
  if (((exchange.tells && !output.resumed) || exchange.tell_every > 0) && !output.no_token) {
    choice.untold.push_back(output.token.token);
  }
  choice.finish = output.finish;
  add_text(choice, output.text);
  if (!output.shown) {
    choice.stop_token = output.token.token;
  }
  choice.stop_string = std::move(output.stop_string);
  if (!output.no_token && (output.shown || exchange.shows_ends)) {
    const bool noted = !choice.weights.empty() &&
                       choice.weights.back().end > choice.tokens_noted;  // By another worker.
    if (!noted) {
      note_weights(choice.weights);
    }
    choice.tokens_noted += 1;
    choice.tokens.push_back(std::move(output.token));
  }
  const bool ended = output.finish != FinishReason::kNone;
  exchange.choices_left -= ended ? 1 : 0;
  PromptReply& prompt = exchange.prompts[generation.prompt_index];
  prompt.choices_left -= ended ? 1 : 0;
  exchange.prompts_submitted -= ended && prompt.choices_left == 0 ? 1 : 0;
  choice.resumed_left -= output.resumed && choice.resumed_left > 0 ? 1 : 0;
  if (exchange.stream && !send_part(exchange, index, output.resumed)) {
    return;
  }
  if (exchange.choices_left == 0) {
    return finish(exchange);
  }
  // Those of another worker come back at once.
  if (exchange.tell_every > 0 &&
      choice.untold.size() >= (choice.resumed_left > 0 ? kNoteTokensMax : exchange.tell_every)) {
    tell_progress(exchange, index);
  }
  if (prompt.abort_wanted && !resumes(exchange, generation.prompt_index) &&
      !abort_prompt(exchange, generation.prompt_index)) {
    return;
  }
  if (!exchange.held.empty()) {
    submit_held(exchange);
  }
}

void ReplyBook::add_text(ChoiceReply& choice, std::string_view text) {
  if (choice.tools) {
    choice.tools->take(text, choice.finish != FinishReason::kNone, choice.text, choice.calls);
  } else {
    choice.text += text;
  }
}

// A token more, of the version that the engine has now.
void ReplyBook::note_weights(std::vector<openai::WeightSpan>& weights) const {
  const uint64_t tokens = weights.empty() ? 0 : weights.back().end;
  if (weights.empty() || weights.back().version != weight_version_) {
    weights.push_back({.version = weight_version_, .start = tokens});
  }
  weights.back().end = tokens + 1;
}

openai::ReplyPart ReplyBook::part_of(const Exchange& exchange, uint32_t index) const {
  const ChoiceReply& choice = exchange.choices[index];
  const PromptReply& prompt = exchange.prompts[index / exchange.choices_per_prompt];
  return {.choice = index,
          .text = choice.text,
          .tokens = choice.tokens,
          .finish = choice.finish,
          .prompt = prompt.ids,
          .prompt_logprobs = prompt.scored ? &prompt.logprobs : nullptr,
          .prompt_tokens = prompt.tokens,
          .cached_tokens = prompt.cached_tokens,
          .completion_tokens = choice.completion_tokens,
          .seconds = seconds(loop_.now() - exchange.arrived),
          .stop_token = choice.stop_token,
          .stop_string = choice.stop_string,
          .weight_version = weight_version_,
          .weights = choice.weights,
          .calls = choice.calls,
          .embedding = prompt.embedding,
          .ends_in_calls = choice.tools && choice.tools->ends_in_calls()};
}

void ReplyBook::begin_stream(Exchange& exchange) {
  if (!exchange.begun) {
    exchange.begun = true;
    exchange.headers.emplace_back(openai::kUnbuffered);
    server_.begin(exchange.http, 200, openai::kEventStream, exchange.headers);
  }
}

std::string_view ReplyBook::told(const Exchange& exchange, ChoiceReply& choice, uint32_t index) {
  extension_.clear();
  if (!exchange.tells) {
    return extension_;
  }
  extension_.append("t=").append(std::to_string(index));
  for (const Token token : choice.untold) {
    extension_.append(".").append(std::to_string(token));
  }
  if (!choice.weights.empty() && choice.weights.back().version != choice.told_weights) {
    choice.told_weights = choice.weights.back().version;
    append_version(extension_, choice.told_weights);
  }
  return extension_;
}

// A slow asker gets them later. A note is of one version, and says which.
void ReplyBook::tell_progress(Exchange& exchange, uint32_t index) {
  ChoiceReply& choice = exchange.choices[index];
  if (server_.bytes_queued(exchange.http) > limits::kHttpSendQueueBytesMax) {
    return;
  }
  for (size_t at = 0; at < choice.untold.size();) {
    const auto span = std::ranges::find_if(
        choice.weights, [&](const openai::WeightSpan& each) { return choice.told < each.end; });
    const bool known = span != choice.weights.end();
    const size_t count = std::min<size_t>({choice.untold.size() - at, kNoteTokensMax,
                                           known ? span->end - choice.told : kNoteTokensMax});
    extension_.assign(openai::header::kTokens).append(": ").append(std::to_string(index));
    extension_.append("@").append(std::to_string(choice.told));
    for (const Token token : std::span(choice.untold).subspan(at, count)) {
      extension_.append(".").append(std::to_string(token));
    }
    append_version(extension_, known ? span->version : weight_version_);
    extension_.append(";m=").append(options_.meaning).append("\r\n");
    server_.interim(exchange.http, extension_);
    choice.told += count;
    at += count;
  }
  choice.untold.clear();
}

bool ReplyBook::send_part(Exchange& exchange, uint32_t index, bool known) {
  if (!known) {
    begin_stream(exchange);
  }
  ChoiceReply& choice = exchange.choices[index];
  buffer_.clear();
  exchange.writer->append_part(buffer_, part_of(exchange, index));
  choice.text.clear();
  choice.calls.clear();
  choice.tokens.clear();
  if (!buffer_.empty() && !known) {
    server_.write(exchange.http, buffer_, told(exchange, choice, index));
    choice.untold.clear();
  }
  if (server_.bytes_queued(exchange.http) > limits::kHttpSendQueueBytesMax) {
    log::warn("request " + exchange.log_name + ": its client reads too slowly, the stream is cut");
    server_.abort(exchange.http);
    metrics_.requests_cancelled.add();
    drop(exchange.http.value);
    return false;
  }
  return true;
}

void ReplyBook::finish(Exchange& exchange) {
  buffer_.clear();
  exchange.usage.ended = loop_.unix_seconds();
  if (exchange.stream) {
    begin_stream(exchange);
    exchange.writer->append_end(buffer_, exchange.usage);
    server_.write(exchange.http, buffer_, exchange.tells ? "t=end" : "");
    server_.end(exchange.http);
  } else {
    std::vector<openai::ReplyPart> parts;
    for (uint32_t index = 0; index < exchange.choices.size(); ++index) {
      parts.push_back(part_of(exchange, index));
    }
    exchange.writer->append_whole(buffer_, parts, exchange.usage, exchange.kv_transfer_params);
    server_.reply(exchange.http, 200, kJson, buffer_, exchange.headers);
  }
  (exchange.aborted ? metrics_.requests_cancelled : metrics_.requests_succeeded).add();
  metrics_.prompt_tokens.add(static_cast<double>(exchange.usage.prompt_tokens));
  for (const PromptReply& prompt : exchange.prompts) {
    generations_.erase(prompt.generation);
  }
  prompts_held_ -= exchange.held.size();  // Aborted ones.
  exchanges_.erase(exchange.http.value);
  let_go_();
}

void ReplyBook::take_output(const KvFetched& output) {
  metrics_.kv_transfers_received.add();
  metrics_.kv_bytes_received.add(static_cast<double>(output.bytes));
  metrics_.kv_transfer_seconds.observe(seconds(output.duration));
  metrics_.kv_visible_seconds.observe(seconds(output.visible));
  const auto found = generations_.find(output.request);
  if (found == generations_.end()) {
    return;
  }
  note_cached(found->second, output.prompt_reused);
  auto& headers = exchanges_.at(found->second.exchange).headers;
  headers.emplace_back(openai::header::kKvBytes, std::to_string(output.bytes));
  headers.emplace_back(openai::header::kKvSeconds, format_seconds(output.duration));
  headers.emplace_back(openai::header::kKvVisibleSeconds, format_seconds(output.visible));
  headers.emplace_back(openai::header::kKvTransport, output.transport);
}

void ReplyBook::take_output(const PromptReused& output) {
  metrics_.prefix_cache_queries.add(static_cast<double>(output.prompt_tokens));
  metrics_.prefix_cache_hits.add(static_cast<double>(output.rows));
  if (const auto found = generations_.find(output.request); found != generations_.end()) {
    note_cached(found->second, output.rows);
  }
}

void ReplyBook::note_cached(const Generation& generation, uint64_t tokens) {
  Exchange& exchange = exchanges_.at(generation.exchange);
  exchange.usage.cached_tokens += tokens;
  exchange.prompts[generation.prompt_index].cached_tokens += tokens;
}

void ReplyBook::take_output(PromptScored& output) {
  if (const auto found = generations_.find(output.request); found != generations_.end()) {
    PromptReply& prompt = exchanges_.at(found->second.exchange).prompts[found->second.prompt_index];
    prompt.scored = true;
    prompt.logprobs = std::move(output.logprobs);
  }
}

void ReplyBook::take_output(PromptEmbedded& output) {
  if (const auto found = generations_.find(output.request); found != generations_.end()) {
    exchanges_.at(found->second.exchange).prompts[found->second.prompt_index].embedding =
        std::move(output.embedding);
  }
}

void ReplyBook::take_output(const RequestFailed& output) {
  const auto found = generations_.find(output.request);
  if (found == generations_.end()) {
    return;
  }
  Exchange& exchange = exchanges_.at(found->second.exchange);
  metrics_.requests_failed.add();
  const openai::ApiError error = openai::to_api_error(output.error);
  if (!exchange.begun) {
    if (output.error.code == ErrorCode::kOverloaded) {
      exchange.headers.emplace_back("Retry-After", "1");
    }
    if (!output.kv_suspect.empty()) {
      exchange.headers.emplace_back(openai::header::kKvSuspect, output.kv_suspect);
    }
    openai::reply_error(server_, exchange.http, error, exchange.headers);
  } else {
    // The 200 is already sent. Send the error, then abort, so that no client takes this for a
    // complete answer. A stream that may continue at another worker gets no error event.
    buffer_.clear();
    if (!exchange.tells) {
      exchange.writer->append_error(buffer_, error);
      server_.write(exchange.http, buffer_);
    }
    server_.abort(exchange.http);
  }
  drop(exchange.http.value);
}

void ReplyBook::drop(ExchangeKey key) {
  const auto found = exchanges_.find(key);
  for (const PromptReply& prompt : found->second.prompts) {
    if (generations_.erase(prompt.generation) > 0) {
      engine_queue_.cancel(prompt.generation);
    }
  }
  prompts_held_ -= found->second.held.size();
  exchanges_.erase(found);
  let_go_();
}

size_t ReplyBook::abort(Exchange& exchange, const openai::AbortRequest& asked) {
  if (exchange.embeds) {
    return 0;
  }
  const openai::AbortRequest part = asked.part_of(exchange.leg);
  const bool whole = part.all || asked.means_exactly(exchange.request_id);
  size_t count = 0;
  for (uint32_t index = 0; index < exchange.prompts.size(); ++index) {
    PromptReply& prompt = exchange.prompts[index];
    const auto first = exchange.choices.begin() + ptrdiff_t{index} * exchange.choices_per_prompt;
    const bool ended =
        std::all_of(first, first + exchange.choices_per_prompt,
                    [](const ChoiceReply& choice) { return choice.finish != FinishReason::kNone; });
    if (ended || !(whole || (!prompt.rid.empty() && asked.means(prompt.rid)) ||
                   part.names.contains(openai::leg_prompt(exchange.leg, index)))) {
      continue;
    }
    ++count;
    if (resumes(exchange, index)) {
      prompt.abort_wanted = true;
    } else if (!abort_prompt(exchange, index)) {
      return count;
    }
  }
  submit_held(exchange);
  return count;
}

bool ReplyBook::resumes(const Exchange& exchange, uint32_t prompt) {
  const auto first = exchange.choices.begin() + ptrdiff_t{prompt} * exchange.choices_per_prompt;
  return std::any_of(first, first + exchange.choices_per_prompt, [](const ChoiceReply& choice) {
    return choice.resumed_left > 0 && choice.finish == FinishReason::kNone;
  });
}

bool ReplyBook::abort_prompt(Exchange& exchange, uint32_t prompt) {
  PromptReply& reply = exchange.prompts[prompt];
  generations_.erase(reply.generation);
  engine_queue_.cancel(reply.generation);
  exchange.prompts_submitted -= reply.submitted && reply.choices_left > 0 ? 1 : 0;
  reply.choices_left = 0;
  if (!exchange.begun && !exchange.aborted) {
    exchange.headers.emplace_back(openai::header::kAborted, "1");
  }
  exchange.aborted = true;
  const uint32_t first = prompt * exchange.choices_per_prompt;
  for (uint32_t index = first; index < first + exchange.choices_per_prompt; ++index) {
    ChoiceReply& choice = exchange.choices[index];
    if (choice.finish != FinishReason::kNone) {
      continue;
    }
    choice.finish = FinishReason::kAbort;
    add_text(choice, "");
    exchange.choices_left -= 1;
    if (exchange.stream && !send_part(exchange, index, /*known=*/false)) {
      return false;
    }
  }
  if (exchange.choices_left > 0) {
    return true;
  }
  finish(exchange);
  return false;
}

}  // namespace pdjob::worker
