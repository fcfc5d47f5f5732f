// The `kv_transfer_config` of vLLM's own `pdjob` file: JSON text with placeholders. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pdjob::launcher {

// Replaces {PORT}, {KV_IP} and {NODE_NAME} by the words that `engine.args` knows.
std::string with_words(std::string_view text);

// Whose configuration it is.
struct VllmKvEnd {
  std::string role;  // "prefill" or "decode".
  bool gpu = true;
};

struct VllmKvConfig {
  std::string passed;  // The value of --kv-transfer-config; empty: pdjob derives all of it.
  std::string error;   // Empty: none.
  std::vector<std::string> warnings;
};

VllmKvConfig vllm_kv_config(const VllmKvEnd& end, const std::string& json);

}  // namespace pdjob::launcher
