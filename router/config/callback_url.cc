#include "router/config/callback_url.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pdjob::router {
namespace {

bool matches(const CallbackReceiver& receiver, const net::Url& url) {
  const net::HttpAddress& to = url.address;
  const auto address = net::parse_ip(to.host);
  const bool same_host = !receiver.host.empty() && receiver.host == to.host;
  const bool in_network = receiver.network && address && receiver.network->contains(*address);
  return (same_host || in_network) && (receiver.port == 0 || receiver.port == to.port);
}

}  // namespace

Result<CallbackReceiver> parse_callback_receiver(std::string_view text) {
  if (text.find('/') != std::string_view::npos && text.find("//") == std::string_view::npos) {
    if (auto network = net::IpNetwork::parse(text)) {
      return CallbackReceiver{.network = network};
    }
  }
  const auto url = net::parse_url("http://" + std::string(text));
  if (!url || !url->path.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "must be host, host:port or a block such as 10.0.0.0/8, got " + std::string(text)};
  }
  const size_t colon = std::min(text.rfind(':'), text.size());
  const bool has_port = colon < text.size() && text.find(']', colon) == std::string_view::npos;
  CallbackReceiver receiver{.host = url->address.host,
                            .port = has_port ? url->address.port : uint16_t{0}};
  if (net::parse_ip(receiver.host)) {
    receiver.network = net::IpNetwork::parse(receiver.host);
  }
  return receiver;
}

Result<CallbackTarget> find_callback_target(std::string_view url,
                                            const std::vector<CallbackReceiver>& receivers) {
  if (receivers.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "Nobody is called back here: router.async.callbacks.allowed is empty"};
  }
  auto parsed = net::parse_url(url);
  if (!parsed || url.size() > kCallbackUrlBytesMax) {
    return Error{ErrorCode::kInvalidArgument,
                 "A callback is http://host:port/path or https://host:port/path, of at most " +
                     std::to_string(kCallbackUrlBytesMax) + " bytes, without a user or a #"};
  }
  CallbackTarget target{.url = *std::move(parsed)};
  const auto found = std::ranges::find_if(
      receivers, [&](const CallbackReceiver& receiver) { return matches(receiver, target.url); });
  if (found == receivers.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 target.url.address.to_string() +
                     " may not be called: router.async.callbacks.allowed does not list it"};
  }
  target.receiver = static_cast<size_t>(std::distance(receivers.begin(), found));
  if (target.url.path.empty()) {
    target.url.path = "/";
  }
  return target;
}

bool may_connect(std::string_view host, const net::IpAddress& address,
                 const std::vector<CallbackReceiver>& receivers) {
  static const auto this_machine = {*net::IpNetwork::parse("127.0.0.0/8"),
                                    *net::IpNetwork::parse("::1")};
  return net::is_public(address) ||
         (host == "localhost" &&
          std::ranges::any_of(this_machine,
                              [&](const auto& one) { return one.contains(address); })) ||
         std::ranges::any_of(receivers, [&](const CallbackReceiver& receiver) {
           return receiver.network && receiver.network->contains(address);
         });
}

}  // namespace pdjob::router
