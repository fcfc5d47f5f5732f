// Decodes hostile messages between agents and launchers. The form is canonical: a decoded message
// encodes to the same bytes. Both cores then take it, and must survive.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"
#include "launcher/agents/agent_roster.h"
#include "launcher/agents/agent_session.h"
#include "launcher/agents/agent_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pdjob;
  using namespace pdjob::launcher;
  const auto frame = decode_agent_frame(std::as_bytes(std::span(data, size)));
  if (!frame) {
    return 0;
  }
  const std::string bytes = encode(*frame);
  PDJOB_CHECK(bytes.size() == size && std::memcmp(bytes.data(), data, size) == 0);

  const Instant now{std::chrono::seconds(1000)};
  std::vector<AgentEffect> of_agent;
  AgentSession agent({.name = "n", .instance = 1});
  agent.step(FrameArrived{{7, 1, Welcome{.lease_ms = 5000}}}, now, of_agent);
  agent.step(FrameArrived{*frame}, now, of_agent);
  agent.step(TimePassed{}, agent.next_wakeup(), of_agent);

  std::vector<RosterEffect> of_launcher;
  AgentRoster roster({.cluster = "lab", .first_session = 7});
  roster.step(AgentSpoke{"r", {.message = AgentHello{.name = "n", .instance = 1}}}, now,
              of_launcher);
  roster.step(AgentSpoke{"r", *frame}, now, of_launcher);
  roster.step(TimePassed{}, now + std::chrono::seconds(1), of_launcher);
  for (const RosterEffect& effect : of_launcher) {  // What it answers must fit into a message.
    if (const auto* answer = std::get_if<SendToAgent>(&effect)) {
      encode(answer->frame);
    }
  }
  return 0;
}
