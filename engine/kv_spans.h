// KV cells of libllama, reached through the two virtual interfaces behind its state save and
// restore: no patch, no private symbol.
//
// llama_memory_i::state_write and state_read describe a sequence to an "io" object: first its cells
// (positions), then per window the type, row size and tensor span. An io that copies nothing learns
// where rows are; one that replays made-up cells makes rows exist before anybody has computed them.
// The .cc is the only file to include the two internal headers, and pins them at compile time.
// Calls run on the engine thread, between steps. Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/id.h"
#include "common/result.h"

struct llama_context;

namespace pdjob::engine {

// What one row of KV consists of. Windows are ordered K of layer 0, V of layer 0, K of layer 1,
// ...; models without V have K only.
struct KvLayout {
  uint32_t layers = 0;
  std::vector<uint32_t> row_bytes;  // By window.
  bool in_host_memory = true;
  std::string description;  // libllama's own, replayed by place_rows.
};

// Learns the layout from a context made for one sequence, which holds exactly one token.
// kUnsupported: rows of this model's memory are not one plain array per window (sliding window,
// recurrent state, 2-D positions).
Result<KvLayout> read_layout(llama_context* probe);

// Makes rows 0 .. rows-1 of an empty sequence exist, with whatever bytes are there; returns row 0
// of each window. kInternal: the context's cells are not laid out as `layout` says.
Result<std::vector<std::byte*>> place_rows(llama_context* context, const KvLayout& layout,
                                           SequenceId sequence, uint32_t rows);

// Does the sequence consist of exactly rows 0 .. rows-1, in order of position? Walks all cells: for
// tests and debug builds.
bool rows_in_order(llama_context* context, const KvLayout& layout, SequenceId sequence,
                   uint32_t rows);

}  // namespace pdjob::engine
