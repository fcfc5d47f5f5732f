// Accesses libllama's KV cells through the two virtual interfaces behind its state save and
// restore. libllama is used as it is, by public symbols.
//
// llama_memory_i::state_write and state_read describe a sequence to an "io" object: first its cells
// (positions), then per window the type, row size and tensor span. An io that copies no data learns
// where rows are. An io that replays made-up cells creates rows before they are computed.
// Only kv_spans.cc includes the two internal headers, and it checks them at compile time. Calls run
// on the engine thread, between steps. Value.
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

// The parts of one row of KV. Window order: K of layer 0, V of layer 0, K of layer 1, ... Models
// without V have only K.
struct KvLayout {
  uint32_t layers = 0;
  std::vector<uint32_t> row_bytes;  // By window.
  bool in_host_memory = true;
  std::string description;  // libllama's own description; place_rows replays it.
};

// Reads the layout from a context for one sequence, which holds exactly one token. Fails with
// kUnsupported if this model's rows are not one plain array per window (sliding window, recurrent
// state, 2-D positions).
Result<KvLayout> read_layout(llama_context* probe);

// Creates rows 0 .. rows-1 of an empty sequence, with undefined content. Returns row 0 of each
// window. Fails with kInternal if the context's cells do not match `layout`.
Result<std::vector<std::byte*>> place_rows(llama_context* context, const KvLayout& layout,
                                           SequenceId sequence, uint32_t rows);

// True if the sequence consists of exactly rows 0 .. rows-1, in order of position. Reads all cells:
// for tests and debug builds.
bool rows_in_order(llama_context* context, const KvLayout& layout, SequenceId sequence,
                   uint32_t rows);

}  // namespace pdjob::engine
