// What XGrammar has compiled, as bytes. Its own JSON holds the whole automaton once for each rule,
// and the masks as decimal numbers: 53 MB and seconds for a schema of five bounded strings, which
// are two megabytes and milliseconds here.
// Only for engine/grammar: it shows what is inside the library, of the one version that ./dev pins.
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
