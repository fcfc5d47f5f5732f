// GBNF grammars of strangers. A grammar that passes the limits is compiled, read back and followed,
// if it is small enough to be compiled thousands of times a second. Nothing crashes. The grammar
// accepts each token that its mask allows.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "engine/grammar/gbnf.h"
#include "tests/unit/engine/grammar/grammar_rig.h"

using namespace pdjob;

namespace {

constexpr size_t kCompiledBytesMax = 200;

void follow(const std::shared_ptr<const engine::CompiledGrammar>& compiled) {
  engine::Grammar grammar(compiled);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> row(engine::test_pieces().pieces.size(), 0.0F);
    grammar.mask(row);
    Token next = -1;
    for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
      next = row[token] == 0.0F ? token : next;
    }
    if (next < 0) {
      return;  // The grammar has no words.
    }
    PDJOB_CHECK(grammar.allows(next));
    if (!grammar.accept(next).has_value() || next == engine::kTestEnd) {
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!engine::check_gbnf(text) || size > kCompiledBytesMax ||
      text.find_first_of('{') != std::string_view::npos) {
    return 0;
  }
  if (const auto compiled = engine::compile(engine::StructureKind::kGrammar, text)) {
    follow(*compiled);
  }
  return 0;
}
