// Reads recorded loads. The file's first line tells its format:
//
//   Mooncake   {"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
//              milliseconds; an id for each 512 tokens of the prompt. Equal ids at the beginning of
//              two prompts mean equal tokens.
//   Azure      TIMESTAMP,ContextTokens,GeneratedTokens
//   BurstGPT   Timestamp,Model,Request tokens,Response tokens,... (seconds). Rows without an answer
//              are left out: they failed.
//
// Lines are read one by one. Not known: spans of OpenTelemetry, and logs of pdjob.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "launcher/played/request_trace.h"

namespace pdjob::simulation {

struct LoadFile {
  RequestTrace requests;  // By time, the first at 0.
  std::string format;     // "Mooncake", "Azure", "BurstGPT"
  uint64_t left_out = 0;  // Rows without an answer.
};

// What of a file is wanted, counted in its rows.
struct LoadPart {
  size_t skip = 0;
  size_t requests = SIZE_MAX;
};

// kInvalidArgument: the file cannot be read, a line is not of the format, or it has more than
// load_words.h allows. The message names the line. Waits for the disk.
Result<LoadFile> read_load_file(const std::string& path, const LoadPart& part);

}  // namespace pdjob::simulation
