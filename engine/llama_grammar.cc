#include "engine/llama_grammar.h"

#include <cctype>
#include <cmath>
#include <exception>
#include <vector>

#include <json-schema-to-grammar.h>
#include <llama-grammar.h>
#include <llama.h>

#include "common/limits.h"
#include "engine/llama_vocabulary.h"

namespace pdjob::engine {
namespace {

constexpr size_t kNestingMax = limits::kJsonDepthMax;
constexpr size_t kSchemaKeysMax = 1024;  // The converter recurses over optional properties.
constexpr size_t kGeneratedBytesMax = 16 * limits::kGrammarBytesMax;
constexpr uint64_t kLeftPathsMax = 1U << 16;  // Ways to reach the first character of a rule.
constexpr size_t kLeftDepthMax = 4096;
constexpr size_t kStacksMax = 512;  // Readings of the text so far that are still possible.
constexpr size_t kMessageBytesMax = 200;

Error invalid(const std::string& why) {
  // libllama's messages quote the rest of the grammar.
  return {ErrorCode::kInvalidArgument, why.substr(0, kMessageBytesMax)};
}

struct FreeGrammar {
  void operator()(llama_grammar* grammar) const { llama_grammar_free_impl(grammar); }
};

// Skips a quoted text or a character class from its opening sign; returns the index behind it.
size_t skip_quoted(std::string_view text, size_t at, char closing) {
  for (++at; at < text.size() && text[at] != closing; ++at) {
    if (text[at] == '\\') {
      ++at;
    }
  }
  return at + 1;
}

size_t skip_comment(std::string_view text, size_t at) {
  return std::min(text.find_first_of("\r\n", at), text.size());
}

Status check_gbnf_nesting(std::string_view gbnf) {
  size_t depth = 0;
  for (size_t at = 0; at < gbnf.size();) {
    switch (gbnf[at]) {
      case '"':
        at = skip_quoted(gbnf, at, '"');
        continue;
      case '[':
        at = skip_quoted(gbnf, at, ']');
        continue;
      case '#':
        at = skip_comment(gbnf, at);
        continue;
      case '(':
        if (++depth > kNestingMax) {
          return invalid("the grammar is nested too deeply");
        }
        break;
      case ')':
        depth -= depth > 0 ? 1 : 0;
        break;
      default:
        break;
    }
    ++at;
  }
  return ok();
}

Status check_json_size(std::string_view json) {
  size_t depth = 0;
  size_t keys = 0;
  for (size_t at = 0; at < json.size();) {
    const char sign = json[at];
    if (sign == '"') {
      at = skip_quoted(json, at, '"');
      continue;
    }
    if (sign == '{' || sign == '[') {
      ++depth;
    } else if (sign == '}' || sign == ']') {
      depth -= depth > 0 ? 1 : 0;
    } else if (sign == ':') {
      ++keys;
    }
    if (depth > kNestingMax || keys > kSchemaKeysMax) {
      return invalid("the JSON schema is nested too deeply or has too many keys");
    }
    ++at;
  }
  return ok();
}

// libllama looks for left recursion by walking every path to the leftmost rules, again and again,
// and overlooks rules that are empty only by way of others; so we count the paths first, once per
// rule, and know all rules that may be empty.
class LeftPaths {
 public:
  explicit LeftPaths(const llama_grammar_rules& rules)
      : rules_(rules), nullable_(rules.size(), false), paths_(rules.size(), kUnknown) {}

  Status check() {
    find_nullable();
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      if (count(rule, 0) > kLeftPathsMax) {
        return invalid(left_recursive_ ? "the grammar is left-recursive"
                                       : "the grammar is too ambiguous");
      }
    }
    return ok();
  }

 private:
  static constexpr uint64_t kUnknown = UINT64_MAX;
  static constexpr uint64_t kInProgress = UINT64_MAX - 1;

  static bool ends(const llama_grammar_element& element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
  }

  bool may_be_empty(const llama_grammar_rule& rule) const {
    bool empty_so_far = true;
    for (const llama_grammar_element& element : rule) {
      if (ends(element)) {
        if (empty_so_far) {
          return true;
        }
        empty_so_far = true;
      } else {
        empty_so_far =
            empty_so_far && element.type == LLAMA_GRETYPE_RULE_REF && nullable_[element.value];
      }
    }
    return false;
  }

  void find_nullable() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rule = rules_.size(); rule-- > 0;) {
        if (!nullable_[rule] && may_be_empty(rules_[rule])) {
          nullable_[rule] = true;
          changed = true;
        }
      }
    }
  }

  uint64_t count(size_t rule, size_t depth) {
    if (paths_[rule] == kInProgress || depth > kLeftDepthMax) {
      left_recursive_ = paths_[rule] == kInProgress;
      return kLeftPathsMax + 1;
    }
    if (paths_[rule] != kUnknown) {
      return paths_[rule];
    }
    paths_[rule] = kInProgress;
    uint64_t paths = 1;
    bool leftmost = true;
    for (const llama_grammar_element& element : rules_[rule]) {
      if (ends(element)) {
        leftmost = true;
        ++paths;
      } else if (leftmost && element.type == LLAMA_GRETYPE_RULE_REF) {
        paths += count(element.value, depth + 1);
        leftmost = nullable_[element.value];
      } else {
        leftmost = false;
      }
      if (paths > kLeftPathsMax) {
        return paths;  // Refused: what is in progress does not matter any more.
      }
    }
    return paths_[rule] = paths;
  }

  const llama_grammar_rules& rules_;
  std::vector<bool> nullable_;
  std::vector<uint64_t> paths_;
  bool left_recursive_ = false;
};

// libllama's own parse() prints what users sent to stderr, so its steps are taken here.
Status parse_rules(const std::string& gbnf, llama_grammar_parser& parser) {
  size_t start = 0;
  while (start < gbnf.size() &&
         (std::isspace(static_cast<unsigned char>(gbnf[start])) != 0 || gbnf[start] == '#')) {
    start = gbnf[start] == '#' ? skip_comment(gbnf, start) : start + 1;
  }
  try {
    for (const char* at = gbnf.c_str() + start; *at != '\0';) {
      at = parser.parse_rule(at);
    }
  } catch (const std::exception& thrown) {
    return invalid(std::string("the grammar is wrong: ") + thrown.what());
  }
  for (const auto& [name, rule] : parser.symbol_ids) {
    if (rule >= parser.rules.size() || parser.rules[rule].empty()) {
      return invalid("the grammar does not define " + name);
    }
  }
  return ok();
}

}  // namespace

struct Grammar::State {
  const llama_vocab* vocabulary;
  std::unique_ptr<llama_grammar, FreeGrammar> grammar;
  std::vector<llama_token_data> candidates;  // Reused by mask.
  bool ended = false;
};

Grammar::Grammar(std::unique_ptr<State> state) : state_(std::move(state)) {}
Grammar::Grammar(Grammar&&) noexcept = default;
Grammar& Grammar::operator=(Grammar&&) noexcept = default;
Grammar::~Grammar() = default;

Result<Grammar> Grammar::from_gbnf(const Vocabulary& vocabulary, const std::string& gbnf) {
  const auto* llama = dynamic_cast<const LlamaVocabulary*>(&vocabulary);
  if (llama == nullptr) {
    return Error{ErrorCode::kUnsupported, "this engine has no grammars"};
  }
  if (gbnf.size() > kGeneratedBytesMax || gbnf.find('\0') != std::string::npos) {
    return invalid("the grammar is too long, or not text");
  }
  PDJOB_TRY_STATUS(check_gbnf_nesting(gbnf));
  llama_grammar_parser parser(llama->inner());
  PDJOB_TRY_STATUS(parse_rules(gbnf, parser));
  const auto root = parser.symbol_ids.find("root");
  if (root == parser.symbol_ids.end()) {
    return invalid("the grammar does not define root");
  }
  PDJOB_TRY_STATUS(LeftPaths(parser.rules).check());
  std::vector<const llama_grammar_element*> rules = parser.c_rules();
  auto state = std::make_unique<State>();
  state->vocabulary = llama->inner();
  state->grammar.reset(
      llama_grammar_init_impl(llama->inner(), rules.data(), rules.size(), root->second));
  if (state->grammar == nullptr || state->grammar->stacks.size() > kStacksMax) {
    return invalid("the grammar is too ambiguous");
  }
  return Grammar(std::move(state));
}

Result<Grammar> Grammar::from_json_schema(const Vocabulary& vocabulary, const std::string& schema) {
  if (schema.size() > limits::kGrammarBytesMax) {
    return invalid("the JSON schema is too long");
  }
  PDJOB_TRY_STATUS(check_json_size(schema));
  std::string gbnf;
  try {
    gbnf = json_schema_to_grammar(common_json::parse(schema));
  } catch (const std::exception& thrown) {
    return invalid(std::string("the JSON schema is wrong: ") + thrown.what());
  }
  return from_gbnf(vocabulary, gbnf);
}

bool Grammar::allows(Token token) const {
  llama_token_data one{token, 0.0F, 0.0F};
  llama_token_data_array array{&one, 1, -1, false};
  if (!state_->ended) {
    llama_grammar_apply_impl(*state_->grammar, &array);
  }
  return state_->ended ? llama_vocab_is_eog(state_->vocabulary, token) : one.logit == 0.0F;
}

void Grammar::mask(std::span<float> logits) {
  std::vector<llama_token_data>& candidates = state_->candidates;
  candidates.clear();
  for (size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] != -INFINITY) {
      candidates.push_back({static_cast<llama_token>(token), 0.0F, 0.0F});
    }
  }
  llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
  if (state_->ended) {
    for (llama_token_data& each : candidates) {
      each.logit = llama_vocab_is_eog(state_->vocabulary, each.id) ? 0.0F : -INFINITY;
    }
  } else {
    llama_grammar_apply_impl(*state_->grammar, &array);
  }
  for (const llama_token_data& each : candidates) {
    if (each.logit == -INFINITY) {
      logits[static_cast<size_t>(each.id)] = -INFINITY;
    }
  }
}

Status Grammar::accept(Token token) {
  if (!allows(token)) {
    return invalid("the grammar does not allow token " + std::to_string(token) + " here");
  }
  if (llama_vocab_is_eog(state_->vocabulary, token)) {
    state_->ended = true;
    return ok();
  }
  try {
    llama_grammar_accept_impl(*state_->grammar, token);
  } catch (const std::exception&) {
    return invalid("the grammar does not allow token " + std::to_string(token) + " here");
  }
  if (state_->grammar->stacks.size() > kStacksMax) {
    return invalid("the grammar is too ambiguous for this text");
  }
  return ok();
}

bool Grammar::finished() const {
  if (state_->ended) {
    return true;
  }
  for (const llama_grammar_stack& stack : state_->grammar->stacks) {
    if (!stack.empty()) {
      return false;
    }
  }
  return true;
}

}  // namespace pdjob::engine
