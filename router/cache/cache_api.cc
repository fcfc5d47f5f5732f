#include "router/cache/cache_api.h"

#include <algorithm>

#include "common/limits.h"
#include "common/log.h"
#include "net/http/http_parser.h"
#include "openai/headers.h"
#include "openai/openai_embedding.h"
#include "router/cache/cache_sink.h"

namespace pdjob::router {
namespace {

// For a reply with one vector: up to 32 bytes for each number.
constexpr size_t kVectorReplyBytesMax = 32 * limits::kEmbeddingDimensionsMax;

// The client's wishes about the cache.
struct Wish {
  bool taken_part = true;
  bool look_up = true;
  bool always = false;  // Even if another run could give another answer.
};

// Looks in all Cache-Control lines and ignores case (RFC 9111, 5.2).
bool has_directive(const net::HttpRequest& request, std::string_view directive) {
  const auto is_same = [](const char& a, const char& b) {
    return net::equal_ignoring_case({&a, 1}, {&b, 1});
  };
  return std::ranges::any_of(request.headers, [&](const net::HttpHeader& header) {
    // Not std::ranges::search: clang 14, which builds the fuzzers, cannot compile libstdc++ 12's
    // subrange.
    return net::equal_ignoring_case(header.name, "cache-control") &&
           std::search(header.value.begin(), header.value.end(), directive.begin(), directive.end(),
                       is_same) != header.value.end();
  });
}

Wish wish_of(const net::HttpRequest& request) {
  const std::string_view own = request.header(openai::header::kCache);
  return {.taken_part = own != "no" && !has_directive(request, "no-store"),
          .look_up = !has_directive(request, "no-cache"),
          .always = own == "always"};
}

// A client that asks for a certain worker wants that worker's answer.
bool is_pinned(const net::HttpRequest& request) {
  return !request.header(openai::header::kPinPrefill).empty() ||
         !request.header(openai::header::kPinDecode).empty();
}

net::Url embedder_of(const SimilarityConfig& config) {
  auto url = net::parse_service_url(config.url);
  if (!url) {
    return {};
  }
  url->path += "/v1/embeddings";
  return *std::move(url);
}

}  // namespace

CacheApi::CacheApi(net::Loop& loop, RelayApi& relay, const RouterConfig& config,
                   std::unique_ptr<net::OutboundClient> client)
    : loop_(loop),
      relay_(relay),
      config_(config.cache),
      open_to_all_(config.tenants.empty()),
      cache_(config.cache),
      embedder_(embedder_of(config.cache.similarity)),
      client_(std::move(client)) {
  relay_.on_workers_changed([this] { cache_.keep_writers(relay_.core().workers()); });
}

CacheApi::~CacheApi() {
  for (const auto& [id, asked] : waiting_) {
    loop_.cancel(asked.deadline);
  }
}

net::HttpRequest CacheApi::Asked::request() const {
  net::HttpRequest request{.method = "POST", .path = path, .account = account};
  for (const auto& [name, value] : headers) {
    request.headers.push_back({name, value});
  }
  return request;
}

void CacheApi::route(RequestId id, net::HttpRequest& request, RequestBody body,
                     std::unique_ptr<ReplySink> sink) {
  const Wish wish = wish_of(request);
  const std::string_view authorization = request.header("authorization");
  const Admission::Tenant tenant = relay_.reception().tenant_of(request);
  std::optional<RequestDigest> digest;
  if (wish.taken_part && !is_pinned(request)) {
    digest = request_digest(request.path, open_to_all_ ? authorization : "", body.text());
  }
  if (!digest || !(digest->deterministic || wish.always)) {
    relay_.metrics().cached(CacheResult::kBypass);
    relay_.route(id, request, std::move(body), /*generates=*/true, std::move(sink));
    return;
  }
  Asked asked{.id = id,
              .sink = std::move(sink),
              .account = request.account,
              .body = std::move(body),
              .path = std::string(request.path),
              .key = {tenant, digest->whole},
              .look_up = wish.look_up,
              .arrived = loop_.now()};
  for (const net::HttpHeader& header : request.headers) {
    asked.headers.emplace_back(header.name, header.value);
  }
  const auto found = wish.look_up ? cache_.find(asked.key, loop_.now()) : std::nullopt;
  if (found) {
    answer(asked, *found, CacheResult::kHit);
  } else if (may_embed(*digest)) {
    ask_for_vector(std::move(asked), *digest);
  } else {
    pass_on(std::move(asked));
  }
}

bool CacheApi::may_embed(const RequestDigest& digest) const {
  return !config_.similarity.url.empty() && !digest.question.empty() &&
         digest.question.size() <= limits::kEmbeddingTextBytesMax &&
         embeddings_in_flight_ < limits::kEmbeddingsInFlightMax;
}

void CacheApi::ask_for_vector(Asked asked, const RequestDigest& digest) {
  const RequestId id = asked.id;
  const Duration timeout = config_.similarity.timeout;
  asked.meaning = ResponseCache::Meaning{.context = digest.context};
  asked.deadline = loop_.call_at(loop_.now() + timeout, [this, id] {
    note_failed_embedding("no answer in time");
    pass_on(*take_waiting(id));
  });
  waiting_.emplace(id, std::move(asked));
  embeddings_in_flight_ += 1;
  client_->post({.to = embedder_,
                 .headers = {"Content-Type: application/json"},
                 .body = openai::embedding_request(config_.similarity.model, digest.question),
                 .connect_timeout = timeout,
                 .timeout = timeout,
                 .reply_bytes_max = kVectorReplyBytesMax},
                [this, id](const Result<net::OutboundReply>& reply) {
                  embeddings_in_flight_ -= 1;
                  take_vector(id, reply);
                });
}

void CacheApi::take_vector(RequestId id, const Result<net::OutboundReply>& reply) {
  std::optional<Asked> asked = take_waiting(id);
  if (!asked) {
    return;
  }
  auto vector =
      !reply ? Result<std::vector<float>>(reply.error())
             : openai::parse_embedding(reply->status == 200 && reply->complete ? reply->body : "");
  if (!vector) {
    note_failed_embedding(reply && reply->status != 200
                              ? "it answers " + std::to_string(reply->status)
                              : vector.error().message);
    pass_on(std::move(*asked));
    return;
  }
  asked->meaning->vector = std::move(*vector);
  const auto found = asked->look_up
                         ? cache_.find_similar(asked->key.tenant, *asked->meaning, loop_.now())
                         : std::nullopt;
  if (found) {
    answer(*asked, *found, CacheResult::kSimilar);
  } else {
    pass_on(std::move(*asked));
  }
}

void CacheApi::answer(const Asked& asked, const ResponseCache::Found& found, CacheResult result) {
  const net::HttpRequest request = asked.request();
  auto headers = relay_.reception().admit_free(*asked.sink, asked.key.tenant);
  if (!headers) {
    return;
  }
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(found.age);
  relay_.metrics().cached(result);
  relay_.metrics().ended(Outcome::kOk, loop_.now() - asked.arrived);
  headers->emplace_back(openai::header::kRequestId, relay_.reception().request_id_of(request));
  headers->emplace_back(openai::header::kCache, to_string(result));
  headers->emplace_back("age", std::to_string(age.count()));
  asked.sink->reply(200, found.reply.content_type, found.reply.body, *headers);
}

void CacheApi::pass_on(Asked asked) {
  relay_.metrics().cached(CacheResult::kMiss);
  if (asked.meaning && asked.meaning->vector.empty()) {
    asked.meaning.reset();
  }
  net::HttpRequest request = asked.request();
  auto sink = std::make_unique<CacheSink>(
      std::move(asked.sink), config_.reply_bytes_max,
      [this, key = asked.key, meaning = asked.meaning](CapturedReply reply) {
        keep(key, meaning, std::move(reply));
      });
  relay_.route(asked.id, request, std::move(asked.body), /*generates=*/true, std::move(sink));
}

void CacheApi::keep(const ResponseCache::Key& key, std::optional<ResponseCache::Meaning> meaning,
                    CapturedReply reply) {
  if (reply.status != 200 || !is_whole_answer(reply.content_type, reply.body) ||
      relay_.core().workers().find(reply.writer) == nullptr) {
    return;
  }
  cache_.store(key,
               {.content_type = std::move(reply.content_type),
                .body = std::move(reply.body),
                .writer = reply.writer},
               std::move(meaning), loop_.now());
}

void CacheApi::client_left(RequestId id) { take_waiting(id); }

void CacheApi::let_all_go_on() {
  while (!waiting_.empty()) {
    pass_on(*take_waiting(waiting_.begin()->first));
  }
}

std::optional<CacheApi::Asked> CacheApi::take_waiting(RequestId id) {
  auto node = waiting_.extract(id);
  if (node.empty()) {
    return std::nullopt;
  }
  loop_.cancel(node.mapped().deadline);
  return std::move(node.mapped());
}

void CacheApi::note_failed_embedding(const std::string& why) {
  relay_.metrics().embedding_failed();
  if (warning_.opens(loop_.now())) {
    log::warn("no vector from " + config_.similarity.url + " (" + why +
              "): prompts are not compared");
  }
}

}  // namespace pdjob::router
