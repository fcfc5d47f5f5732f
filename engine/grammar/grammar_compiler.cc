#include "engine/grammar/grammar_compiler.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <xgrammar/compiler.h>

#include "common/limits.h"
#include "engine/grammar/compiled_bytes.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/grammar_tokens.h"
#include "engine/grammar/library_log.h"
#include "engine/grammar/tool_calls.h"
#include "engine/schema/json_schema.h"
#include "engine/schema/not_held.h"
#include "engine/schema/pattern.h"

namespace pdjob::engine {
namespace {

constexpr size_t kMessageBytesMax = 300;

// The library's messages begin with a time and a source file, and may quote the whole grammar.
Error bad_grammar(const std::string& what) {
  const size_t source = what.find(".cc:");
  const size_t colon = source == std::string::npos ? std::string::npos : what.find(": ", source);
  std::string message = colon == std::string::npos ? what : what.substr(colon + 2);
  message.resize(std::min(message.size(), kMessageBytesMax));
  while (!message.empty() && message.back() == '\n') {
    message.pop_back();
  }
  return {ErrorCode::kInvalidArgument, message};
}

Result<std::string> check_regex(std::string_view text) {
  auto translated = translate_regex(text);
  if (!translated) {
    return Error{translated.error().code, "the regular expression " + translated.error().message};
  }
  return translated;
}

}  // namespace

Result<CheckedStructure> check_structure(StructureKind kind, std::string_view text) {
  CheckedStructure checked;
  NotHeld not_held;
  switch (kind) {
    case StructureKind::kSchema:
    case StructureKind::kOpenSchema: {
      PDJOB_TRY(ReadSchema read,
                normalise_json_schema(text, {.exact = kind == StructureKind::kSchema}));
      checked.text = std::move(read.text);
      not_held.add("schema", read.not_held);
      break;
    }
    case StructureKind::kToolCalls: {
      PDJOB_TRY(checked.text, check_tool_calls(text, not_held));
      break;
    }
    case StructureKind::kRegex: {
      PDJOB_TRY(checked.text, check_regex(text));
      break;
    }
    case StructureKind::kGrammar:
      PDJOB_TRY_STATUS(check_gbnf(text));
      checked.text = text;
  }
  if (checked.text.size() > limits::kGrammarCheckedBytesMax) {
    return Error{ErrorCode::kInvalidArgument, "the grammar or JSON schema is too long"};
  }
  checked.not_held = not_held.line();
  return checked;
}

struct GrammarCompiler::State {
  xgrammar::CompiledGrammar compile(StructureKind kind, const std::string& checked) {
    switch (kind) {
      case StructureKind::kSchema:
      case StructureKind::kOpenSchema:
        return compiler.CompileJSONSchema(checked, /*any_whitespace=*/true, /*indent=*/std::nullopt,
                                          /*separators=*/std::nullopt, /*strict_mode=*/true,
                                          limits::kSchemaWhitespaceMax);
      case StructureKind::kToolCalls:
        return compiler.CompileStructuralTag(checked);
      case StructureKind::kRegex:
        return compiler.CompileRegex(checked);
      case StructureKind::kGrammar:
        break;
    }
    return compiler.CompileGrammar(checked, "root");
  }

  xgrammar::GrammarCompiler compiler;
};

GrammarCompiler::GrammarCompiler(const std::shared_ptr<const GrammarTokens>& tokens)
    : state_(std::make_unique<State>(State{
          xgrammar::GrammarCompiler(tokens->info, /*max_threads=*/1, /*cache_enabled=*/false)})) {}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::string> GrammarCompiler::compile(StructureKind kind, const std::string& checked) {
  const size_t warnings = library_warnings();
  try {
    const xgrammar::CompiledGrammar compiled = state_->compile(kind, checked);
    if (library_warnings() != warnings) {
      return Error{ErrorCode::kInvalidArgument,
                   "a part of the structure cannot be followed exactly"};
    }
    return write_compiled(compiled);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kInvalidArgument, "the structure takes too much memory to compile"};
  } catch (const std::exception& thrown) {
    return bad_grammar(thrown.what());
  }
}

}  // namespace pdjob::engine
