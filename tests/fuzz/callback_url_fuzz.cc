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
    PDJOB_CHECK(target->receiver == 0 ? target->to.host == "a.b"
                                      : target->to.host == "::1" && target->to.port == 9,
                text);
    PDJOB_CHECK(target->to.port != 0 && target->path.starts_with('/'), text);
    PDJOB_CHECK(std::ranges::all_of(target->path, [](char c) { return c > ' ' && c <= '~'; }),
                text);
  }
  // A receiver that may be listed can also be called.
  if (const auto receiver = parse_callback_receiver(text)) {
    receivers = {*receiver};
    const pdjob::net::HttpAddress to{.host = receiver->host,
                                     .port = receiver->port == 0 ? uint16_t{7} : receiver->port};
    const std::string url = "http://" + to.to_string();
    PDJOB_CHECK(url.size() > kCallbackUrlBytesMax || find_callback_target(url, receivers), url);
  }
  return 0;
}
