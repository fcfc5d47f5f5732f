// A grammar that XGrammar has compiled, as bytes. The library can write it as JSON, which holds the
// whole automaton once for each rule, and masks as decimal numbers. For a schema of five bounded
// strings that is 53 MB and takes seconds; here it is 1 MB and takes milliseconds.
// Only for engine/grammar: it reads the inside of the library, in the one version that ./dev pins.
#pragma once

#include <string>
#include <string_view>

#include <xgrammar/compiler.h>

#include "common/result.h"

namespace pdjob::engine {

// kInvalidArgument: more than limits::kCompiledGrammarBytesMax, here or in memory.
Result<std::string> write_compiled(const xgrammar::CompiledGrammar& compiled);

// kCorrupt: not what write_compiled() has written for these tokens, or more than its bound.
Result<xgrammar::CompiledGrammar> read_compiled(std::string_view bytes,
                                                const xgrammar::TokenizerInfo& tokens);

}  // namespace pdjob::engine
