#include "router/relay/request_facts.h"

#include "common/parse_number.h"
#include "openai/headers.h"
#include "router/core/kv_words.h"
#include "router/prefix_index/prompt_blocks.h"

namespace pdjob::router {
namespace {

// The header is ignored unless it is a whole number of milliseconds.
Duration timeout_of(const net::HttpRequest& request) {
  const uint32_t milliseconds =
      parse_number<uint32_t>(request.header(openai::header::kRequestTimeout)).value_or(0);
  return milliseconds > 0 ? std::chrono::milliseconds(milliseconds) : kForever;
}

// A prompt that is read leaves no rows behind.
std::vector<uint64_t> blocks_of(const RequestBody& body, const TenantConfig& tenant,
                                const Router& core) {
  if (!core.wants_blocks() || body.scores_prompt() || body.embeds() || body.passes()) {
    return {};
  }
  std::string shape = body.shape();
  if (!tenant.name.empty()) {
    shape.append(1, '\0').append(tenant.name);  // Workers share no KV between tenants.
  }
  return prompt_blocks(body.model(), body.prompt(), shape);
}

// True if one request may hand over several prompts, whichever prefill worker it goes to.
bool prefills_several_prompts(const Router& core) {
  bool takes_several = false;
  for (const auto& [id, worker] : core.workers().all()) {
    if (worker.serves(Stage::kPrefill)) {
      takes_several = dialect_of(worker.entry.protocol, worker.concurrent()).several_prompts;
      if (!takes_several) {
        break;
      }
    }
  }
  return takes_several;
}

// The key for consistent_hash; empty: none.
std::string_view session_of(const net::HttpRequest& request, const RequestBody& body,
                            const RouterConfig& config) {
  if (config.affinity == Affinity::kModel) {
    return body.model();
  }
  for (const std::string_view name : {openai::header::kSessionId, openai::header::kRoutingKey}) {
    if (const std::string_view session = request.header(name); !session.empty()) {
      return session;
    }
  }
  return body.user();
}

}  // namespace

bool is_in_background(const net::HttpRequest& request, const RequestBody& body,
                      const Reception& reception) {
  return reception.is_row(request) || !request.header(openai::header::kBackground).empty() ||
         body.is_flex();
}

RequestFacts request_facts(const net::HttpRequest& request, const RequestBody& body,
                           const RequestKind& kind, const RouterConfig& config,
                           const Reception& reception, const Router& core) {
  const TenantConfig& tenant = reception.config_of(kind.tenant);
  // A pin overrides the policy. If tenants share the workers, only probes may pin.
  const bool may_pin = reception.admission().open_to_all() || tenant.name == kProbeTenant;
  const auto pin = [&](std::string_view header) {
    return may_pin ? std::string(request.header(header)) : std::string();
  };
  return {.model = body.model(),
          .route = body.passes() ? std::string(request.path) : std::string(),
          .hands_over = kind.generates && !kind.alone && !body.scores_prompt() && !body.embeds() &&
                        !body.passes() &&
                        (!body.several_prompts() || prefills_several_prompts(core)),
          .prompt_only = body.prompt_only(),
          .prompt_tokens = body.prompt_tokens(),
          .output_tokens = body.output_tokens(),
          .blocks = blocks_of(body, tenant, core),
          .session = name_hash(session_of(request, body, config)),
          .tenant = kind.tenant,
          .weight = tenant.weight,
          .priority = kind.background || kind.alone ? 0 : tenant.priority + 1,
          .background = kind.background,
          .timeout = timeout_of(request),
          .pin_prefill = pin(openai::header::kPinPrefill),
          .pin_decode = pin(openai::header::kPinDecode),
          .probes = kind.probes};
}

}  // namespace pdjob::router
