// Reads JSON schemas, one a line, each after "strict " or "open ". Writes for each: "refused
// MESSAGE", or "held NOT_HELD", texts that its grammar allows, one a line, and an empty line.
// generated_schemas.py asks it.
#include <algorithm>
#include <iostream>
#include <string>

#include "tests/unit/engine/grammar/grammar_rig.h"

namespace pdjob::engine {
namespace {

constexpr int kTexts = 6;
constexpr size_t kTokensMax = 250;

void answer(StructureKind kind, const std::string& schema, Random& random) {
  const auto checked = check_structure(kind, schema);
  const auto compiled = compile(kind, schema);
  if (!checked || !compiled) {
    std::cout << "refused " << (checked ? compiled.error() : checked.error()).message << "\n\n";
    return;
  }
  std::cout << "held " << checked->not_held << "\n";
  for (int i = 0; i < kTexts; ++i) {
    bool ended = false;
    std::string text = random_text(*compiled, random, kTokensMax, ended);
    std::replace(text.begin(), text.end(), '\n', ' ');
    if (ended) {
      std::cout << text << "\n";
    }
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace pdjob::engine

int main() {
  using pdjob::engine::StructureKind;
  pdjob::Random random(5);
  std::string line;
  while (std::getline(std::cin, line)) {
    const bool strict = line.starts_with("strict ");
    pdjob::engine::answer(strict ? StructureKind::kSchema : StructureKind::kOpenSchema,
                          line.substr(line.find(' ') + 1), random);
  }
  return 0;
}
