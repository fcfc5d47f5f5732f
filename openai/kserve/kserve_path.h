// Paths of KServe's Open Inference Protocol (v2), with and without a model's version. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pdjob::openai {

enum class KserveEnd { kServer, kLive, kReady, kModel, kModelReady, kInfer };

struct KservePath {
  KserveEnd end = KserveEnd::kServer;
  std::string model;    // Of the last three, decoded.
  std::string version;  // Empty: not named.
  bool posts() const { return end == KserveEnd::kInfer; }
};

inline constexpr std::string_view kKservePath = "/v2";
// The only version of each model.
inline constexpr std::string_view kKserveVersion = "1";

std::optional<KservePath> parse_kserve_path(std::string_view path);

}  // namespace pdjob::openai
