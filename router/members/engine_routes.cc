#include "router/members/engine_routes.h"

#include <algorithm>
#include <span>

namespace pdjob::router {
namespace {

struct Make {
  std::string_view name;
  std::span<const std::string_view> any;     // Of workers of each role.
  std::span<const std::string_view> decode;  // More, of decode workers.
  std::span<const std::string_view> both;    // More, of workers without a partner.
};

constexpr std::string_view kVllmAny[] = {"/v1/messages/count_tokens",
                                         "/generative_scoring",
                                         "/classify",
                                         "/pooling",
                                         "/score",
                                         "/v1/score",
                                         "/rerank",
                                         "/v1/rerank",
                                         "/v2/rerank",
                                         "/v2/embed",
                                         "/v1/load_lora_adapter",
                                         "/v1/unload_lora_adapter"};
constexpr std::string_view kVllmWhole[] = {"/v1/messages", "/v1/chat/completions/batch",
                                           "/v1/audio/transcriptions", "/v1/audio/translations"};
constexpr std::string_view kSglangAny[] = {"/v1/tokenize", "/v1/detokenize",
                                           "/v1/messages/count_tokens", "/load_lora_adapter",
                                           "/unload_lora_adapter"};
constexpr std::string_view kSglangBoth[] = {"/v1/messages", "/v1/audio/transcriptions",
                                            "/v1/score",    "/v1/rerank",
                                            "/v1/classify", "/classify",
                                            "/encode"};
constexpr Make kMakes[] = {
    {.name = "vLLM", .any = kVllmAny, .decode = kVllmWhole, .both = kVllmWhole},
    {.name = "SGLang", .any = kSglangAny, .decode = {}, .both = kSglangBoth}};

void append(std::span<const std::string_view> more, std::vector<std::string>& routes) {
  routes.insert(routes.end(), more.begin(), more.end());
}

bool contains(std::span<const std::string_view> routes, std::string_view path) {
  return std::ranges::find(routes, path) != routes.end();
}

}  // namespace

std::vector<std::string> engine_routes(net::Protocol protocol, net::Role role) {
  const Make& make = kMakes[protocol == net::Protocol::kSglang ? 1 : 0];
  std::vector<std::string> routes;
  append(make.any, routes);
  if (role != net::Role::kPrefill) {
    append(role == net::Role::kDecode ? make.decode : make.both, routes);
  }
  return routes;
}

std::string makes_that_serve(std::string_view path) {
  std::string names;
  for (const Make& make : kMakes) {
    if (contains(make.any, path) || contains(make.both, path)) {
      names.append(names.empty() ? "" : " and ").append(make.name);
    }
  }
  return names;
}

}  // namespace pdjob::router
