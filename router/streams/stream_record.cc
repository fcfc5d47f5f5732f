#include "router/streams/stream_record.h"

namespace pdjob::router {

std::string_view to_string(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::kNone:
      return "none";
    case Obstacle::kOff:
      return "off";
    case Obstacle::kNoTokens:
      return "no_tokens";
    case Obstacle::kChoices:
      return "choices";
    case Obstacle::kStructure:
      return "structure";
    case Obstacle::kTools:
      return "tools";
    case Obstacle::kReasoning:
      return "reasoning";
    case Obstacle::kText:
      return "text";
    case Obstacle::kSampling:
      return "sampling";
    case Obstacle::kMember:
      return "member";
    case Obstacle::kDiffers:
      return "differs";
  }
  return "none";
}

}  // namespace pdjob::router
