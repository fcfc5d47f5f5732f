// The `kv_transfer_config` of vLLM's own `pdjob` file: JSON text with placeholders. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/config/config_reader.h"

namespace pdjob::launcher {

// Replaces {PORT}, {KV_IP} and {NODE_NAME} by the words that `engine.args` knows.
std::string with_words(std::string_view text);

// Whose configuration it is.
struct VllmKvEnd {
  std::string role;  // "prefill" or "decode".
  bool gpu = true;
};

// Returns the value of --kv-transfer-config for the engine; empty: pdjob derives all of it. Reports
// errors and warnings at `place`.
std::string read_vllm_kv_config(ConfigReader& in, const std::string& place, const VllmKvEnd& end,
                                const std::string& json);

}  // namespace pdjob::launcher
