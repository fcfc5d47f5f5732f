// GrammarCompiler: turns a grammar or a JSON schema that the limits have let through into a
// compiled grammar, as bytes that CompiledGrammar reads. Runs in a process of its own
// (worker/grammar_helper.h): no bound on the input makes the library safe against all of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"
#include "engine/grammar/compiled_grammar.h"

namespace pdjob::engine {

enum class StructureKind : uint8_t {
  kGrammar = 0,  // GBNF, root rule "root".
  kSchema = 1,   // A JSON schema as it comes from normalise_json_schema().
};

// The pure checks of a structure, in microseconds to a millisecond: what is handed to the compiler.
// kInvalidArgument: too much, not supported, or not understood.
Result<std::string> check_structure(StructureKind kind, std::string_view text);

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const std::shared_ptr<const GrammarTokens>& tokens);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `checked` is what check_structure() returned. kInvalidArgument: the library refuses it, or
  // would ignore a part of it. May take seconds, gigabytes or the whole process.
  Result<std::string> compile(StructureKind kind, const std::string& checked);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pdjob::engine
