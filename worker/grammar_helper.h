// The process that compiles grammars (`pdjob compile-grammar`): no bound on what clients send makes
// a library of 28,000 lines safe against all of it, but a process that has nothing can lose
// nothing. It has the vocabulary, one socket, and bounds on CPU time, memory and stack; no files,
// no environment, no output, no core. Whatever ends it fails one grammar.
//
// Frames, both ways: size (4 bytes, of what follows), a byte, text. First it says kReady. Then it
// answers each kGrammar or kSchema with kCompiled or kRefused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pdjob::worker {

enum class HelperWord : uint8_t {
  kGrammar = 0,
  kSchema = 1,
  kReady = 2,
  kCompiled = 3,
  kRefused = 4
};
inline constexpr size_t kHelperHeadBytes = sizeof(uint32_t);

// `channel`: a blocking stream socket. `vocabulary`: a file of write_pieces(). Returns the exit
// code when the channel is closed.
int run_grammar_helper(int channel, int vocabulary);

}  // namespace pdjob::worker
