// The part of OpenaiApi that gives the prompts of a request to the engine, and aborts them.
#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "openai/headers.h"
#include "worker/api/openai_api.h"

namespace pdjob::worker {

// A request of many prompts must not fill the engine's queue, which others wait in, too.
void OpenaiApi::submit_held(Exchange& exchange) {
  while (!exchange.held.empty() && exchange.prompts_submitted < limits::kPromptsSubmittedMax) {
    GenerationRequest generation = std::move(exchange.held.front());
    exchange.held.pop_front();
    prompts_held_ -= 1;
    const RequestId id = generation.id;
    const auto found = generations_.find(id);
    if (found == generations_.end()) {
      continue;  // Aborted.
    }
    exchange.prompts[found->second.prompt_index].submitted = true;
    exchange.prompts_submitted += 1;
    generation.deadline = loop_->now() + options_.queue_timeout;
    if (const Status submitted = engine_queue_.submit(std::move(generation)); !submitted) {
      return take_output(RequestFailed{.request = id, .error = submitted.error()});
    }
  }
  report_if_prepared();
}

void OpenaiApi::report_if_prepared() {
  if (waiting_.empty() && prompts_held_ == 0 && when_prepared_) {
    // In a later turn: the engine thread does not have the last request yet.
    loop_->post(std::exchange(when_prepared_, nullptr));
  }
}

size_t OpenaiApi::abort(const openai::AbortRequest& asked, std::string_view tenant) {
  size_t count = 0;
  for (auto& [key, waiting] : waiting_) {
    if (tenant.empty() || waiting.tenant == tenant) {
      const openai::AbortRequest part = asked.part_of(waiting.leg);
      const bool whole = part.all || asked.means_exactly(waiting.request_id);
      waiting.aborted.all |= whole;
      waiting.aborted.names.insert(part.names.begin(), part.names.end());
      count += whole || !part.names.empty() ? 1 : 0;
    }
  }
  std::vector<ExchangeKey> keys;
  keys.reserve(exchanges_.size());
  for (const auto& [key, exchange] : exchanges_) {
    if (tenant.empty() || exchange.tenant == tenant) {
      keys.push_back(key);
    }
  }
  for (const ExchangeKey key : keys) {
    if (const auto found = exchanges_.find(key); found != exchanges_.end()) {
      count += abort(found->second, asked);
    }
  }
  return count;
}

size_t OpenaiApi::abort(Exchange& exchange, const openai::AbortRequest& asked) {
  if (exchange.embeds) {
    return 0;
  }
  const openai::AbortRequest part = asked.part_of(exchange.leg);
  const bool whole = part.all || asked.means_exactly(exchange.request_id);
  size_t count = 0;
  for (uint32_t index = 0; index < exchange.prompts.size(); ++index) {
    PromptReply& prompt = exchange.prompts[index];
    const auto first = exchange.choices.begin() + ptrdiff_t{index} * exchange.choices_per_prompt;
    const bool ended =
        std::all_of(first, first + exchange.choices_per_prompt,
                    [](const ChoiceReply& choice) { return choice.finish != FinishReason::kNone; });
    if (ended || !(whole || (!prompt.rid.empty() && asked.means(prompt.rid)) ||
                   part.names.contains(openai::leg_prompt(exchange.leg, index)))) {
      continue;
    }
    ++count;
    if (resumes(exchange, index)) {
      prompt.abort_wanted = true;
    } else if (!abort_prompt(exchange, index)) {
      return count;
    }
  }
  submit_held(exchange);
  return count;
}

bool OpenaiApi::resumes(const Exchange& exchange, uint32_t prompt) {
  const auto first = exchange.choices.begin() + ptrdiff_t{prompt} * exchange.choices_per_prompt;
  return std::any_of(first, first + exchange.choices_per_prompt, [](const ChoiceReply& choice) {
    return choice.resumed_left > 0 && choice.finish == FinishReason::kNone;
  });
}

bool OpenaiApi::abort_prompt(Exchange& exchange, uint32_t prompt) {
  PromptReply& reply = exchange.prompts[prompt];
  generations_.erase(reply.generation);
  engine_queue_.cancel(reply.generation);
  exchange.prompts_submitted -= reply.submitted && reply.choices_left > 0 ? 1 : 0;
  reply.choices_left = 0;
  if (!exchange.begun && !exchange.aborted) {
    exchange.headers.emplace_back(openai::header::kAborted, "1");
  }
  exchange.aborted = true;
  const uint32_t first = prompt * exchange.choices_per_prompt;
  for (uint32_t index = first; index < first + exchange.choices_per_prompt; ++index) {
    ChoiceReply& choice = exchange.choices[index];
    if (choice.finish != FinishReason::kNone) {
      continue;
    }
    choice.finish = FinishReason::kAbort;
    add_text(choice, "");
    exchange.choices_left -= 1;
    if (exchange.stream && !send_part(exchange, index, /*known=*/false)) {
      return false;
    }
  }
  if (exchange.choices_left > 0) {
    return true;
  }
  finish(exchange);
  return false;
}

}  // namespace pdjob::worker
