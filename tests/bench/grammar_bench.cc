// grammar_bench MODEL.gguf SCHEMA.json... measures what structured output costs with a model's
// vocabulary. It prints one line of JSON for each schema.
// - The time to check, compile and read back the schema, and its compiled size.
// - The time of a mask of the whole vocabulary, per token along random texts.
// - The time to ask about one token and accept it, which is all that most tokens need.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/random.h"
#include "engine/engine.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/sampler.h"

namespace {

using namespace pdjob;
using namespace pdjob::engine;

constexpr int kTexts = 5;
constexpr int kTokens = 200;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
T require(Result<T> result) {
  if (!result.has_value()) {
    std::fprintf(stderr, "grammar_bench: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

double at(std::vector<double>& all, double quantile) {
  std::sort(all.begin(), all.end());
  return all[static_cast<size_t>(quantile * static_cast<double>(all.size() - 1))];
}

struct Costs {
  std::vector<double> mask_us;
  std::vector<double> token_us;
};

void walk(const std::shared_ptr<const CompiledGrammar>& compiled, size_t vocabulary, Random& random,
          Costs& costs) {
  Grammar grammar(compiled);
  std::vector<float> row(vocabulary);
  for (int i = 0; i < kTokens && !grammar.finished(); ++i) {
    std::fill(row.begin(), row.end(), 0.0F);
    // accept() has invalidated the last mask; finished() may have made a new one.
    Grammar fresh(std::move(grammar));
    const double begun = now();
    fresh.mask(row);
    costs.mask_us.push_back((now() - begun) * 1e6);
    std::vector<Token> open;
    for (Token token = 0; token < static_cast<Token>(row.size()); ++token) {
      if (row[token] == 0.0F) {
        open.push_back(token);
      }
    }
    const Token token = open[random.below(open.size())];
    const double asked = now();
    const bool allowed = fresh.allows(token) && fresh.accept(token).has_value();
    costs.token_us.push_back((now() - asked) * 1e6);
    if (!allowed) {
      return;
    }
    grammar = std::move(fresh);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("grammar_bench MODEL.gguf SCHEMA.json...\n", stderr);
    return 2;
  }
  const auto engine = require(open_engine({.model_path = argv[1]}));
  const double opened = now();
  const auto tokens = open_grammar_tokens(grammar_pieces(engine->vocabulary()));
  std::fprintf(stderr, "vocabulary of %u tokens: %.1f ms\n", engine->vocabulary().size(),
               (now() - opened) * 1e3);
  GrammarCompiler compiler(tokens);
  Random random(7);
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i]);
    const std::string schema{std::istreambuf_iterator<char>(file), {}};
    const double begun = now();
    const std::string checked = require(check_structure(StructureKind::kSchema, schema)).text;
    const double compiling = now();
    const std::string text = require(compiler.compile(StructureKind::kSchema, checked));
    const double reading = now();
    const auto compiled = require(CompiledGrammar::read(tokens, text));
    const double done = now();
    Costs costs;
    for (int k = 0; k < kTexts; ++k) {
      walk(compiled, engine->vocabulary().size(), random, costs);
    }
    std::printf(
        "{\"schema\":\"%s\",\"bytes\":%zu,\"check_ms\":%.3f,\"compile_ms\":%.2f,\"read_ms\":%.2f,"
        "\"compiled_bytes\":%zu,\"memory_bytes\":%zu,\"mask_us\":%.1f,\"mask_us_max\":%.1f,"
        "\"token_us\":%.1f,\"token_us_max\":%.1f}\n",
        std::filesystem::path(argv[i]).stem().c_str(), schema.size(), (compiling - begun) * 1e3,
        (reading - compiling) * 1e3, (done - reading) * 1e3, text.size(), compiled->bytes(),
        at(costs.mask_us, 0.5), at(costs.mask_us, 1), at(costs.token_us, 0.5),
        at(costs.token_us, 1));
  }
  return 0;
}
