#include "router/config/callback_url.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pdjob::router {
namespace {

constexpr std::string_view kScheme = "http://";

std::string lower_case(std::string text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

// Characters that a request line may contain without escaping.
bool is_path_char(char c) { return c > ' ' && c <= '~' && c != '#'; }

}  // namespace

Result<CallbackReceiver> parse_callback_receiver(std::string_view text) {
  const Error error{ErrorCode::kInvalidArgument,
                    "must be host or host:port, got " + std::string(text)};
  const auto address = text.starts_with(kScheme)
                           ? Result<net::HttpAddress>(error)
                           : net::parse_http_address(std::string(kScheme) + std::string(text));
  const size_t colon = std::min(text.rfind(':'), text.size());
  const bool has_port = colon < text.size() && text.find(']', colon) == std::string_view::npos;
  if (!address || (has_port && address->port == 0)) {
    return error;
  }
  return CallbackReceiver{.host = lower_case(address->host),
                          .port = has_port ? address->port : uint16_t{0}};
}

Result<CallbackTarget> find_callback_target(std::string_view url,
                                            const std::vector<CallbackReceiver>& receivers) {
  if (receivers.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "Nobody is called back here: router.async.callbacks.allowed is empty"};
  }
  const size_t host = url.starts_with(kScheme) ? kScheme.size() : url.size();
  const size_t path = std::min(url.find_first_of("/?", host), url.size());
  auto address = net::parse_http_address(url.substr(0, path));
  if (host == path || url.size() > kCallbackUrlBytesMax || !address || address->port == 0 ||
      !std::ranges::all_of(url.substr(path), is_path_char)) {
    return Error{ErrorCode::kInvalidArgument,
                 "A callback is http://host:port/path, of at most " +
                     std::to_string(kCallbackUrlBytesMax) +
                     " bytes, without a user or a #; there is no https"};
  }
  CallbackTarget target{.to = *std::move(address), .path = std::string(url.substr(path))};
  target.to.host = lower_case(std::move(target.to.host));
  if (!target.path.starts_with('/')) {
    target.path.insert(0, 1, '/');
  }
  const auto found = std::ranges::find_if(receivers, [&target](const CallbackReceiver& receiver) {
    return receiver.host == target.to.host &&
           (receiver.port == 0 || receiver.port == target.to.port);
  });
  if (found == receivers.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 target.to.to_string() +
                     " may not be called: router.async.callbacks.allowed does not list it"};
  }
  target.receiver = static_cast<size_t>(std::distance(receivers.begin(), found));
  return target;
}

}  // namespace pdjob::router
