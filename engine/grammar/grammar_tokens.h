// The tokenizer as XGrammar sees it. Only for engine/grammar and its door. Value.
#pragma once

#include <vector>

#include <xgrammar/tokenizer_info.h>

#include "common/generation.h"
#include "engine/grammar/compiled_grammar.h"

namespace pdjob::engine {

struct GrammarTokens {
  xgrammar::TokenizerInfo info;
  std::vector<Token> ends;
};

}  // namespace pdjob::engine
