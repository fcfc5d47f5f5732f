// Writes a grammar that XGrammar has compiled as bytes. The library itself can write JSON, which
// repeats the whole automaton for each rule and writes masks as decimal numbers. For a schema of
// five bounded strings, that is 53 MB and takes seconds; this format takes 1 MB and milliseconds.
// Only for engine/grammar: it reads the library's internals, in the one version that ./dev pins.
#pragma once

#include <string>
#include <string_view>

#include <xgrammar/compiler.h>

#include "common/result.h"

namespace pdjob::engine {

// Fails with kInvalidArgument if the bytes or the grammar in memory exceed
// limits::kCompiledGrammarBytesMax.
Result<std::string> write_compiled(const xgrammar::CompiledGrammar& compiled);

// Fails with kCorrupt if write_compiled() did not write `bytes` for these tokens, or if they exceed
// its bound.
Result<xgrammar::CompiledGrammar> read_compiled(std::string_view bytes,
                                                const xgrammar::TokenizerInfo& tokens);

}  // namespace pdjob::engine
