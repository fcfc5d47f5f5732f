// The process that compiles grammars (`pdjob compile-grammar`). Bounds on client input cannot make
// a library of 28,000 lines safe, so it runs in a process that has nothing to lose.
// - It has the vocabulary, one socket, and limits on CPU time, memory and stack.
// - It has no files, no environment, no output and no core dump.
// - If it ends, for any reason, one grammar fails.
//
// Frames in both directions: the size of the rest (4 bytes), one HelperWord byte, text. The helper
// first sends kReady. Then it answers each kGrammar, kSchema, kToolCalls or kRegex with kCompiled
// or kRefused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pdjob::worker {

enum class HelperWord : uint8_t {
  kGrammar = 0,
  kSchema = 1,
  kReady = 2,
  kCompiled = 3,
  kRefused = 4,
  kToolCalls = 5,
  kRegex = 6
};
inline constexpr size_t kHelperHeadBytes = sizeof(uint32_t);

// `channel` is a blocking stream socket, `vocabulary` a file written by write_pieces(). Returns the
// exit code when the channel is closed, or when the vocabulary cannot be read.
int run_grammar_helper(int channel, int vocabulary);

}  // namespace pdjob::worker
