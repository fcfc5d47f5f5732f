// GrammarCompiler: compiles a grammar or a JSON schema that passed the limits, into bytes that
// CompiledGrammar reads. Runs in a separate process (worker/grammar/grammar_helper.h), because
// input limits cannot make the library safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "engine/grammar/compiled_grammar.h"

namespace pdjob::engine {

enum class StructureKind : uint8_t {
  kGrammar = 0,    // GBNF, root rule "root".
  kSchema = 1,     // A JSON schema, normalised by normalise_json_schema().
  kToolCalls = 2,  // ToolCallRules (tool_calls.h).
};

// Checks a structure and returns the text for the compiler. Pure; takes microseconds to a
// millisecond. Fails with kInvalidArgument if the structure is too large, unsupported or malformed.
Result<std::string> check_structure(StructureKind kind, std::string_view text);

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const std::shared_ptr<const GrammarTokens>& tokens);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `checked` is the result of check_structure(). Fails with kInvalidArgument if the library
  // refuses it, or would ignore a part of it. May take seconds or gigabytes, or crash the process.
  Result<std::string> compile(StructureKind kind, const std::string& checked);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
