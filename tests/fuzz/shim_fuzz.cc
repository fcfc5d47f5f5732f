// Lines of the Ray shim, and the session that believes them: whatever comes, it stays whole.
#include <chrono>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "launcher/ray/ray_session.h"

using namespace pdjob;
using namespace pdjob::launcher;

namespace {

RaySession two_clusters() {
  return RaySession(
      {.job = "j",
       .address = "10.0.0.1:6379",
       .clusters = {{.name = "a"}, {.name = "b", .nodes = 2, .dashboard = "http://b"}}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  RaySession session = two_clusters();
  Instant now{std::chrono::hours(1)};
  std::vector<RayEffect> effects;
  session.step(TimePassed{}, now, effects);
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const Result<ShimLine> line = decode_shim_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    effects.clear();
    now += std::chrono::seconds(line ? 1 : 7);
    if (line) {
      session.step(ShimSaid{*line}, now, effects);
    } else {
      session.step(TimePassed{}, now, effects);
    }
    PDJOB_CHECK(session.next_wakeup() > now);
    for (const RayEffect& effect : effects) {
      if (const auto* ask = std::get_if<AskShim>(&effect)) {
        PDJOB_CHECK(encode_request(ask->id, ask->request).find('\n') == std::string::npos);
      }
    }
  }
  return 0;
}
