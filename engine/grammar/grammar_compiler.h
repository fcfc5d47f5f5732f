// GrammarCompiler: compiles a grammar, a regular expression or a JSON schema that passed the
// limits, into bytes that CompiledGrammar reads. Runs in a separate process
// (worker/grammar/grammar_helper.h), because input limits cannot make the library safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "engine/grammar/compiled_grammar.h"

namespace pdjob::engine {

enum class StructureKind : uint8_t {
  kGrammar = 0,     // GBNF, root rule "root".
  kSchema = 1,      // A JSON schema, normalised by normalise_json_schema().
  kToolCalls = 2,   // ToolCallRules (tool_calls.h).
  kOpenSchema = 3,  // A JSON schema that is held as far as it can be, as SchemaDemand says.
  kRegex = 4,       // A regular expression that the whole text matches.
};

struct CheckedStructure {
  std::string text;      // For the compiler.
  std::string not_held;  // What the output is not held to, for a header; empty: nothing.
};
// Checks a structure. Pure; takes microseconds to milliseconds. Fails with kInvalidArgument if the
// structure is too large, unsupported or malformed.
Result<CheckedStructure> check_structure(StructureKind kind, std::string_view text);

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const std::shared_ptr<const GrammarTokens>& tokens);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `checked` is the text of check_structure(). Fails with kInvalidArgument if the library
  // refuses it, or would ignore a part of it. May take seconds or gigabytes, or crash the process.
  Result<std::string> compile(StructureKind kind, const std::string& checked);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
