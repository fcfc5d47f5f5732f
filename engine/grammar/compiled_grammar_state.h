// Only for engine/grammar and its door.
#pragma once

#include <memory>

#include <xgrammar/compiler.h>

#include "engine/grammar/compiled_grammar.h"
#include "engine/grammar/grammar_tokens.h"

namespace pdjob::engine {

struct CompiledGrammar::State {
  std::shared_ptr<const GrammarTokens> tokens;
  xgrammar::CompiledGrammar compiled;
};

}  // namespace pdjob::engine
