// Callback URLs of hostile clients: only a listed receiver is ever called. The request line stays
// one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "router/config/callback_url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pdjob::router;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<CallbackReceiver> receivers = {{.host = "a.b"}, {.host = "::1", .port = 9}};
  if (const auto target = find_callback_target(text, receivers)) {
    const pdjob::net::HttpAddress& to = target->url.address;
    PDJOB_CHECK(target->receiver == 0 ? to.host == "a.b" : to.host == "::1" && to.port == 9, text);
    PDJOB_CHECK(to.port != 0 && target->url.path.starts_with('/'), text);
    PDJOB_CHECK(std::ranges::all_of(target->url.path, [](char c) { return c > ' ' && c <= '~'; }),
                text);
    const auto again = pdjob::net::parse_url(target->url.to_string());
    PDJOB_CHECK(again && again->to_string() == target->url.to_string(), text);
  }
  // A receiver that may be listed can also be called.
  const auto receiver = parse_callback_receiver(text);
  if (receiver && !receiver->host.empty()) {
    receivers = {*receiver};
    const pdjob::net::HttpAddress to{.host = receiver->host,
                                     .port = receiver->port == 0 ? uint16_t{7} : receiver->port};
    const std::string url = "http://" + to.to_string();
    PDJOB_CHECK(url.size() > kCallbackUrlBytesMax || find_callback_target(url, receivers), url);
  }
  return 0;
}
