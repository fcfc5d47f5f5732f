#include "worker/api/generation_intake.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "common/parse_number.h"
#include "openai/headers.h"
#include "openai/tokenize_request.h"
#include "worker/api/tool_replies.h"
#include "worker/core/kv_params.h"

namespace pdjob::worker {
namespace {

constexpr size_t kQuotedBytesMax = 256;  // Client text quoted in a message.

// Whether a request of this size can be prepared at once, on the loop thread.
bool is_short(size_t body_bytes) { return body_bytes <= limits::kPreparedAtOnceBytesMax; }

// A stream that may continue at another worker gets its creation time from the router, so that it
// is the same everywhere.
std::optional<int64_t> created_by_router(std::string_view value) {
  const auto created = parse_number<int64_t>(value);
  return created.value_or(0) > 0 ? created : std::nullopt;
}

std::optional<kvtransfer::EndpointAddress> store_of(std::string_view address) {
  if (address.empty()) {
    return std::nullopt;
  }
  const auto read = parse_kv_address(std::string(address));
  return read ? std::optional(peer_address(*read)) : std::nullopt;
}

}  // namespace

GenerationIntake::GenerationIntake(net::Loop& loop, const engine::Engine& engine,
                                   std::string meaning, net::Role role,
                                   const GrammarProgram& grammar_program, PlainReplies& replies,
                                   Start start, std::function<void()> let_go)
    : loop_(loop),
      engine_(engine),
      meaning_(std::move(meaning)),
      role_(role),
      maker_(engine, role),
      replies_(replies),
      start_(std::move(start)),
      let_go_(std::move(let_go)),
      bootstrap_(loop),
      grammar_thread_(loop, engine.vocabulary(), grammar_program),
      grammars_([this](engine::StructureKind kind, std::string text, StructureDepth depth,
                       std::string digest, GrammarThread::Then then) {
        grammar_thread_.submit(kind, std::move(text), depth, std::move(digest), std::move(then));
      }),
      preparer_(loop) {}

bool GenerationIntake::client_left(net::ExchangeId id) {
  const bool waited = end_waiting(id);
  if (waited) {
    preparer_.cancel(id.value);
  }
  return waited;
}

size_t GenerationIntake::abort(const openai::AbortRequest& asked, std::string_view tenant) {
  size_t count = 0;
  for (auto& [key, waiting] : waiting_) {
    if (tenant.empty() || waiting.tenant == tenant) {
      const openai::AbortRequest part = asked.part_of(waiting.leg);
      const bool whole = part.all || asked.means_exactly(waiting.request_id);
      waiting.aborted.all |= whole;
      waiting.aborted.names.insert(part.names.begin(), part.names.end());
      count += whole || !part.names.empty() ? 1 : 0;
    }
  }
  return count;
}

void GenerationIntake::refuse(net::ExchangeId id, const openai::ApiError& error) {
  end_waiting(id);
  replies_.refuse(id, error);
}

void GenerationIntake::take(net::ExchangeId id, openai::ApiKind kind, net::HttpRequest& http) {
  const size_t bytes = http.body.size();
  if (!begin_waiting(id, bytes)) {
    return;
  }
  Asked asked{
      .http = id,
      .request_id = std::string(http.header(openai::header::kRequestId)),
      .leg = std::string(http.header(openai::header::kLeg)),
      .tenant = std::string(http.header(openai::header::kTenant)),
      .store = store_of(http.header(openai::header::kKvStore)),
      .elsewhere = store_of(http.header(openai::header::kKvElsewhere)),
      .created = created_by_router(http.header(openai::header::kContinue)),
      .background = !http.header(openai::header::kBackground).empty(),
      .progress = parse_number<uint32_t>(http.header(openai::header::kProgress)).value_or(0),
      .bytes = bytes};
  Waiting& waiting = waiting_.at(id);
  waiting.request_id = asked.request_id;
  waiting.leg = asked.leg;
  waiting.tenant = asked.tenant;
  if (bytes <= limits::kParsedAtOnceBytesMax) {
    return on_parsed(std::move(asked), openai::parse_api_request(kind, http.body));
  }
  prepare(id, bytes, Size::kLarge,
          prepare_request(kind, std::move(http.body),
                          [this, asked](auto parsed) { on_parsed(asked, std::move(parsed)); }));
}

void GenerationIntake::on_parsed(Asked asked, Result<openai::ApiRequest, openai::ApiError> parsed) {
  if (!parsed) {
    return refuse(asked.http, parsed.error());
  }
  if (!parsed->model.empty() && parsed->model != engine_.facts().name) {
    return refuse(asked.http,
                  openai::invalid_request("the model `" + parsed->model.substr(0, kQuotedBytesMax) +
                                              "` does not exist; this worker serves `" +
                                              engine_.facts().name + "`",
                                          "model", "model_not_found", 404));
  }
  // Tokens of another model mean nothing here.
  if (!parsed->resumed_model.empty() && parsed->resumed_model != meaning_) {
    parsed->resumed.clear();
    parsed->resumed_weights.clear();
  }
  if (parsed->bootstrap) {
    on_bootstrap(std::move(asked), *std::move(parsed));
  } else {
    generate(asked, *std::move(parsed));
  }
}

void GenerationIntake::on_bootstrap(Asked asked, openai::ApiRequest request) {
  const openai::BootstrapParams params = *request.bootstrap;
  if (role_ != net::Role::kDecode) {
    if (role_ == net::Role::kPrefill) {
      request.kv_transfer = offer_in_room(params);
    }
    return generate(asked, std::move(request));
  }
  if (params.port == 0) {
    return refuse(asked.http, openai::invalid_request("a decode worker needs it, to find the KV",
                                                      "bootstrap_port"));
  }
  bootstrap_.look_up(params, [this, asked = std::move(asked), request = std::move(request)](
                                 Result<openai::KvTransferParams> found) mutable {
    if (!waiting_.contains(asked.http)) {
      return;  // Its client left.
    }
    if (!found) {
      return refuse(asked.http, openai::to_api_error(found.error()));
    }
    request.kv_transfer = std::move(*found);
    generate(asked, std::move(request));
  });
}

void GenerationIntake::generate(const Asked& asked, openai::ApiRequest request) {
  if (const auto checked = maker_.check(request); !checked) {
    return refuse(asked.http, checked.error());
  }
  const bool tools = !request.tools.empty();
  if (!tools && !request.sampling.structured()) {
    return prepare(asked, std::move(request), {});
  }
  // A prefill worker does not apply the grammar, but refuses at once any that the decode worker
  // would refuse.
  const bool offered = request.kv_transfer && request.kv_transfer->do_remote_decode;
  const Structure structure = take_structure(request);
  grammars_.find(structure.kind, structure.text,
                 offered ? StructureDepth::kChecked : StructureDepth::kCompiled,
                 [this, asked, tools,
                  request = std::move(request)](const Result<GrammarThread::Compiled>& grammar) {
                   if (!waiting_.contains(asked.http)) {
                     return;  // Its client left.
                   }
                   if (!grammar) {
                     openai::ApiError error = openai::to_api_error(grammar.error());
                     if (tools && grammar.error().code == ErrorCode::kInvalidArgument) {
                       error.param = "tools";
                     }
                     return refuse(asked.http, error);
                   }
                   Asked held = asked;
                   held.not_held = grammar->not_held;
                   prepare(held, request, grammar->grammar);
                 });
}

void GenerationIntake::prepare(const Asked& asked, openai::ApiRequest request,
                               std::shared_ptr<const engine::CompiledGrammar> grammar) {
  const size_t choices = GenerationMaker::prompts(request) * request.choices;
  const bool small = is_short(asked.bytes) && choices <= limits::kPreparedAtOnceChoicesMax;
  prepare(asked.http, asked.bytes, small ? Size::kSmall : Size::kLarge,
          prepare_generations(maker_, std::move(request), loop_.entropy(), std::move(grammar),
                              [this, asked](Result<PreparedRequest, openai::ApiError> outcome) {
                                if (!outcome) {
                                  return refuse(asked.http, outcome.error());
                                }
                                start_(asked, *std::move(outcome), waiting_.at(asked.http).aborted);
                                end_waiting(asked.http);  // Last: the worker must not drain before.
                              }));
}

void GenerationIntake::prepare(net::ExchangeId id, size_t bytes, Size size,
                               std::unique_ptr<Preparation> work) {
  if (size == Size::kSmall) {
    while (!work->step()) {
    }
    return work->done();
  }
  if (const Status taken = preparer_.submit(id.value, bytes, std::move(work)); !taken) {
    refuse(id, openai::to_api_error(taken.error()));
  }
}

bool GenerationIntake::begin_waiting(net::ExchangeId id, size_t bytes) {
  if (waiting_.size() >= limits::kRequestsQueuedMax ||
      waiting_bytes_ + bytes > limits::kPreparedBytesMax) {
    refuse(id, openai::to_api_error({ErrorCode::kOverloaded,
                                     "this worker prepares as many requests as it can hold"}));
    return false;
  }
  waiting_[id].bytes = bytes;
  waiting_bytes_ += bytes;
  return true;
}

bool GenerationIntake::end_waiting(net::ExchangeId id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) {
    return false;
  }
  waiting_bytes_ -= found->second.bytes;
  waiting_.erase(found);
  let_go_();
  return true;
}

BodyThen GenerationIntake::reply_with_body(net::ExchangeId id) {
  return [this, id](Result<std::string, openai::ApiError> body) {
    if (!body) {
      return refuse(id, body.error());
    }
    end_waiting(id);
    replies_.json(id, *body);
  };
}

bool GenerationIntake::begin_tokenizing(net::ExchangeId id, size_t bytes) {
  if (bytes > limits::kTokenizeBodyBytesMax) {
    refuse(id,
           openai::invalid_request("the body must have at most " +
                                   std::to_string(limits::kTokenizeBodyBytesMax) + " bytes here"));
    return false;
  }
  return begin_waiting(id, bytes);
}

void GenerationIntake::tokenize(net::ExchangeId id, const net::HttpRequest& http) {
  if (!begin_tokenizing(id, http.body.size())) {
    return;
  }
  auto parsed = openai::parse_tokenize_request(http.body);
  if (!parsed) {
    return refuse(id, parsed.error());
  }
  prepare(id, http.body.size(), is_short(http.body.size()) ? Size::kSmall : Size::kLarge,
          prepare_tokens(maker_, *std::move(parsed), engine_.config().tokens_per_sequence,
                         reply_with_body(id)));
}

void GenerationIntake::detokenize(net::ExchangeId id, const net::HttpRequest& http) {
  if (!begin_tokenizing(id, http.body.size())) {
    return;
  }
  const size_t tokens_max =
      std::max<size_t>(limits::kDetokenizeTokensMax, engine_.config().tokens_per_sequence);
  auto parsed = openai::parse_detokenize_request(http.body, tokens_max);
  if (!parsed) {
    return refuse(id, parsed.error());
  }
  prepare(id, http.body.size(), is_short(http.body.size()) ? Size::kSmall : Size::kLarge,
          prepare_text(maker_, *std::move(parsed), reply_with_body(id)));
}

}  // namespace pdjob::worker
