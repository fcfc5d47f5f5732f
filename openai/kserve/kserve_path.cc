#include "openai/kserve/kserve_path.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "openai/openai_reply.h"

namespace pdjob::openai {
namespace {

std::vector<std::string_view> segments_of(std::string_view path) {
  std::vector<std::string_view> segments;
  while (!path.empty()) {
    path.remove_prefix(1);  // The slash.
    const size_t end = std::min(path.find('/'), path.size());
    segments.push_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return segments;
}

}  // namespace

std::optional<KservePath> parse_kserve_path(std::string_view path) {
  static constexpr std::array<std::pair<std::string_view, KserveEnd>, 3> kOfServer = {
      {{"/v2", KserveEnd::kServer},
       {"/v2/health/live", KserveEnd::kLive},
       {"/v2/health/ready", KserveEnd::kReady}}};
  const auto* const known =
      std::ranges::find(kOfServer, path, &std::pair<std::string_view, KserveEnd>::first);
  if (known != kOfServer.end()) {
    return KservePath{.end = known->second};
  }
  std::vector<std::string_view> segments = segments_of(path);
  if (segments.size() < 3 || segments[0] != "v2" || segments[1] != "models") {
    return std::nullopt;
  }
  KservePath found{.end = KserveEnd::kModel, .model = percent_decoded(segments[2])};
  segments.erase(segments.begin(), segments.begin() + 3);
  if (segments.size() >= 2 && segments[0] == "versions") {
    found.version = percent_decoded(segments[1]);
    segments.erase(segments.begin(), segments.begin() + 2);
  }
  if (segments.empty()) {
    return found;
  }
  const bool ready = segments[0] == "ready";
  if (segments.size() > 1 || (!ready && segments[0] != "infer")) {
    return std::nullopt;
  }
  found.end = ready ? KserveEnd::kModelReady : KserveEnd::kInfer;
  return found;
}

}  // namespace pdjob::openai
