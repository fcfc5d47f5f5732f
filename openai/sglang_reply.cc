#include <utility>

#include "common/check.h"
#include "common/json/json_writer.h"
#include "openai/sglang.h"

namespace pdjob::openai {
namespace {

void append_comma(std::string& list) {
  if (!list.empty()) {
    list += ',';
  }
}

void append_finish(JsonWriter& json, const ReplyPart& part, uint64_t tokens) {
  json.key("finish_reason");
  if (part.finish == FinishReason::kNone) {
    json.null();
    return;
  }
  json.begin_object().key("type").string(to_string(part.finish));
  if (part.finish == FinishReason::kLength) {
    json.key("length").integer(tokens);
  } else if (part.finish == FinishReason::kAbort) {
    json.key("message").string("aborted");
    json.key("status_code").null().key("err_type").null();
  } else if (part.stop_token) {
    json.key("matched").integer(*part.stop_token);
  } else {
    json.key("matched").string(part.stop_string);
  }
  json.end_object();
}

}  // namespace

SglangReplyWriter::SglangReplyWriter(ReplyOptions options, AppendPiece append_piece)
    : options_(std::move(options)),
      append_piece_(std::move(append_piece)),
      choices_(options_.choices) {}

void SglangReplyWriter::append_part(std::string& out, const ReplyPart& part) {
  take(part);
  if (part.text.empty() && part.tokens.empty() && part.finish == FinishReason::kNone) {
    return;
  }
  out += "data: ";
  append_choice(out, part, {});
  out += "\n\n";
}

void SglangReplyWriter::append_end(std::string& out, const Usage& /*usage*/) { append_done(out); }

void SglangReplyWriter::append_whole(std::string& out, std::span<const ReplyPart> parts,
                                     const Usage& /*usage*/, std::string_view kv_transfer_params) {
  const bool list = listed() && kv_transfer_params.empty();
  out += list ? "[" : "";
  for (const ReplyPart& part : parts) {
    out += &part == &parts.front() ? "" : ",";
    take(part);
    append_choice(out, part, kv_transfer_params);
  }
  out += list ? "]" : "";
}

void SglangReplyWriter::take(const ReplyPart& part) {
  PDJOB_CHECK(part.choice < choices_.size(), part.choice, choices_.size());
  ChoiceOutput& choice = choices_[part.choice];
  append_json_escaped(choice.text, part.text);
  for (const GeneratedToken& token : part.tokens) {
    append_comma(choice.ids);
    choice.ids += std::to_string(token.token);
    if (options_.logprobs) {
      append_comma(choice.logprobs);
      append_logprob(choice.logprobs, token.token, token.logprob);
    }
    if (options_.alternatives) {
      append_comma(choice.alternatives);
      choice.alternatives += '[';
      for (const TokenLogprob& top : token.top) {
        choice.alternatives += &top == &token.top.front() ? "" : ",";
        append_logprob(choice.alternatives, top.token, top.logprob);
      }
      choice.alternatives += ']';
    }
  }
  choice.tokens += part.tokens.size();
}

void SglangReplyWriter::append_logprob(std::string& out, Token token,
                                       std::optional<float> logprob) {
  JsonWriter json(out);
  json.begin_array();
  if (logprob) {
    json.number(static_cast<double>(finite_logprob(*logprob)));
  } else {
    json.null();
  }
  json.integer(token);
  if (options_.text_in_logprobs) {
    piece_.clear();
    append_piece_(token, piece_);
    json.string(piece_);
  } else {
    json.null();
  }
  json.end_array();
}

void SglangReplyWriter::append_choice(std::string& out, const ReplyPart& part,
                                      std::string_view kv_transfer_params) {
  const ChoiceOutput& choice = choices_[part.choice];
  JsonWriter json(out);
  json.begin_object();
  out.append("\"text\":\"").append(choice.text).append("\",\"output_ids\":[");
  out.append(choice.ids).append("],");
  if (options_.return_token_ids) {
    json.key("prompt_token_ids").begin_array();
    for (const Token token : part.prompt) {
      json.integer(token);
    }
    json.end_array();
  }
  append_meta(out, json, part);
  if (listed()) {
    json.key("index").integer(part.choice);
  }
  if (!kv_transfer_params.empty()) {
    json.key("kv_transfer_params").raw(kv_transfer_params);
  }
  json.end_object();
}

void SglangReplyWriter::append_meta(std::string& out, JsonWriter& json, const ReplyPart& part) {
  const ChoiceOutput& choice = choices_[part.choice];
  json.key("meta_info").begin_object();
  json.key("id").string(id_of(part.choice));
  append_finish(json, part, choice.tokens);
  json.key("prompt_tokens").integer(part.prompt_tokens);
  json.key("completion_tokens").integer(choice.tokens);
  json.key("cached_tokens").integer(part.cached_tokens);
  json.key("num_retractions").integer(0);
  json.key("e2e_latency").number(part.seconds);
  append_weight_versions(json, part);
  if (options_.logprobs) {
    append_input(out, json, part);
    json.key("output_token_logprobs").begin_array();
    out += choice.logprobs;
    json.end_array();
    json.key("output_token_logprobs_length").integer(choice.tokens);
  }
  if (options_.logprobs && options_.alternatives) {
    json.key("output_top_logprobs").begin_array();
    out += choice.alternatives;
    json.end_array();
  }
  json.end_object();
}

// As in SGLang, the first one has no logprob, wherever it is in the prompt.
void SglangReplyWriter::append_input(std::string& out, JsonWriter& json, const ReplyPart& part) {
  const PromptLogprobs* scored = part.prompt_logprobs;
  const size_t first = options_.logprob_start.value_or(0);
  const size_t end = scored != nullptr && options_.logprob_start ? part.prompt.size() : first;
  json.key("input_token_logprobs").begin_array();
  for (size_t at = first; at < end; ++at) {
    out += at > first ? "," : "";
    append_logprob(out, part.prompt[at],
                   at > first ? std::optional(scored->logprobs[at - 1]) : std::nullopt);
  }
  json.end_array();
  if (!options_.alternatives) {
    return;
  }
  json.key("input_top_logprobs").begin_array();
  for (size_t at = first; at < end; ++at) {
    out += at > first ? ",[" : "null";
    const auto top =
        at > first
            ? std::span(scored->top).subspan((at - 1) * scored->alternatives, scored->alternatives)
            : std::span<const TokenLogprob>();
    for (const TokenLogprob& other : top) {
      out += &other == &top.front() ? "" : ",";
      append_logprob(out, other.token, other.logprob);
    }
    out += at > first ? "]" : "";
  }
  json.end_array();
}

std::string SglangReplyWriter::id_of(uint32_t choice) const {
  const uint32_t prompt = choice / options_.choices_per_prompt;
  const bool several = options_.choices > 1;
  const bool named = prompt < options_.rids.size();
  const std::string& id = named ? options_.rids[prompt] : options_.id;
  const uint32_t number = named ? choice % options_.choices_per_prompt : choice;
  return several && (!named || options_.choices_per_prompt > 1) ? id + "_" + std::to_string(number)
                                                                : id;
}

}  // namespace pdjob::openai
