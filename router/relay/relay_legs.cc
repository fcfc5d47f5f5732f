// What the legs of a request send.
#include <utility>

#include "common/check.h"
#include "common/parse_number.h"
#include "openai/headers.h"
#include "router/relay/relay_api.h"
#include "router/streams/engine_stream.h"
#include "router/streams/pdjob_stream.h"

namespace pdjob::router {
namespace {

// A worker tells this many tokens of a whole reply at once.
constexpr uint32_t kToldEvery = 64;
// Size of a leg's own header lines, without most values.
constexpr size_t kLegLineBytes = 160;

// `address`: empty if there is none.
void append_store(std::string_view header, const std::string& address, std::string& lines) {
  if (!address.empty()) {
    lines.append(header).append(": ").append(address).append("\r\n");
  }
}

}  // namespace

KvWords RelayApi::kv_words(const StartLeg& effect, Exchange& exchange) const {
  if (effect.kv == KvPart::kNone) {
    return {};
  }
  const bool offers = effect.leg.stage == Stage::kPrefill;
  // Null between two hops, if the worker has left after its part.
  const Worker* prefill = core_.workers().find(offers ? effect.worker : effect.peer);
  if (offers) {
    exchange.dialect = &dialect_of(prefill->entry.protocol, prefill->concurrent());
  }
  const KvDialect& dialect = *exchange.dialect;
  return (offers ? dialect.offer : dialect.fetch)({.transfer = effect.transfer,
                                                   .address = effect.kv == KvPart::kFetchReturned
                                                                  ? exchange.returned_params
                                                                  : prefill->kv_address(),
                                                   .request_id = exchange.request_id});
}

// Empty: the client's own stays.
std::string RelayApi::priority_of(const StartLeg& effect, const Exchange& exchange) const {
  const Worker* const worker = core_.workers().find(effect.worker);
  const uint32_t priority =
      worker == nullptr || !exchange.trail.background ? 0 : worker->entry.background_priority;
  return priority == 0 ? "" : std::to_string(priority);
}

RelayApi::LegText RelayApi::leg_text(const StartLeg& effect, const Exchange& exchange,
                                     const KvWords& words) const {
  const bool prefills = effect.leg.stage == Stage::kPrefill && !exchange.dialect->one_body;
  const std::string priority = priority_of(effect, exchange);
  if (exchange.method == "GET") {
    return {.target = exchange.target, .body = {}};
  }
  if (!effect.resumes) {
    if (prefills) {
      return {.target = exchange.target, .body = exchange.body.prefill_leg(words, priority)};
    }
    if (exchange.told && exchange.told->count() > 0) {
      return {.target = exchange.target,
              .body = exchange.body.decode_leg(words, {.resume = exchange.told->tokens_json(),
                                                       .weights = exchange.told->weights_json(),
                                                       .model = exchange.told->model_json(),
                                                       .priority = priority})};
    }
    return {.target = exchange.target,
            .body = exchange.body.decode_leg(
                words, {.priority = priority,
                        .token_ids = exchange.record && !exchange.record->of_pdjob(),
                        .keeps_resume = exchange.passes_progress})};
  }
  const Resumption next = exchange.record->resumption();
  if (next.body.empty()) {
    return {.target = exchange.target,
            .body = prefills ? exchange.body.prefill_leg(words, priority)
                             : exchange.body.decode_leg(words, {.resume = next.tokens,
                                                                .weights = next.weights,
                                                                .priority = priority})};
  }
  const auto body = RequestBody::scan(next.body, form_of(next.target));
  PDJOB_CHECK(body.has_value(), next.target);
  return {.target = next.target,
          .body = prefills ? body->prefill_leg(words, priority)
                           : body->decode_leg(words, {.priority = priority})};
}

void RelayApi::ask_progress(const net::HttpRequest& request, Exchange& exchange) const {
  const auto asked = parse_number<uint32_t>(request.header(openai::header::kProgress)).value_or(0);
  exchange.told.emplace();
  exchange.passes_progress = asked > 0;
  exchange.header_lines.append(openai::header::kProgress)
      .append(": " + std::to_string(asked > 0 ? asked : kToldEvery) + "\r\n");
}

void RelayApi::begin_record(const Worker& worker, Exchange& exchange) const {
  exchange.record.reset();
  exchange.obstacle = Obstacle::kOff;
  if (!exchange.may_continue) {
    return;
  }
  if (worker.is_pdjob()) {
    exchange.record = std::make_unique<PdjobStream>();
    return;
  }
  EngineRequest request =
      EngineRequest::read(exchange.target, exchange.body.text(),
                          {.sglang = worker.entry.protocol == net::Protocol::kSglang,
                           .context_max = worker.entry.context_max});
  exchange.obstacle = request.obstacle();
  if (request.obstacle() == Obstacle::kNone || request.may_replay()) {
    exchange.record = std::make_unique<EngineStream>(std::move(request));
  }
}

std::string RelayApi::leg_lines(const StartLeg& effect, const Exchange& exchange,
                                const KvWords& words, const Span* span) const {
  const Worker& worker = *core_.workers().find(effect.worker);
  const std::string& request_id = words.request_id.empty() ? exchange.request_id : words.request_id;
  std::string lines;
  lines.reserve(kLegLineBytes + request_id.size() + words.header_lines.size() +
                worker.key_line.size());
  lines.append(openai::header::kRequestId).append(": ").append(request_id).append("\r\n");
  lines.append(words.header_lines).append(worker.key_line);
  append_store(openai::header::kKvStore, core_.stores().address(worker.store), lines);
  append_store(openai::header::kKvElsewhere, core_.stores().address(effect.elsewhere), lines);
  if (effect.leg.stage == Stage::kDecode && exchange.abortable && worker.is_pdjob()) {
    const std::string name = aborts_.leg_name(effect.leg.request);
    lines.append(openai::header::kLeg).append(": ").append(name).append("\r\n");
  }
  if (span != nullptr) {
    lines.append("traceparent: " + traceparent(span->context) + "\r\n");
  }
  return lines;
}

void RelayApi::carry_out(const StartLeg& effect) {
  Exchange& exchange = exchanges_.at(effect.leg.request);
  const Worker& chosen = *core_.workers().find(effect.worker);
  const net::WorkerEntry& worker = chosen.entry;
  const bool decodes = effect.leg.stage == Stage::kDecode;
  if (decodes && !effect.resumes) {
    begin_record(chosen, exchange);
  }
  std::unique_ptr<Span> span = watch_.begin_leg(exchange.trail, effect);
  const KvWords words = kv_words(effect, exchange);
  const std::string own_lines = leg_lines(effect, exchange, words, span.get());
  LegText text = leg_text(effect, exchange, words);
  const net::CallId call = client_->start({.to = {worker.host, worker.port},
                                           .method = exchange.method,
                                           .target = text.target,
                                           .header_lines = exchange.header_lines,
                                           .more_header_lines = own_lines,
                                           .body = std::move(text.body),
                                           .connect_timeout = config_.connect_timeout,
                                           .head_timeout = config_.request_timeout,
                                           .idle_timeout = config_.request_timeout},
                                          *this);
  const bool teaches = effect.kv == KvPart::kOffer && exchange.dialect->address_in != nullptr;
  legs_[call] =
      Leg{.id = effect.leg,
          .worker = effect.worker,
          .peer = effect.peer,
          .began = loop_.now(),
          .use = effect.kv == KvPart::kOfferUnnamed || teaches ? Use::kCollect : Use::kDrop,
          .resumes = decodes && effect.resumes,
          .span = std::move(span)};
  calls_[effect.leg] = call;
}

}  // namespace pdjob::router
