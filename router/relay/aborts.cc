#include "router/relay/aborts.h"

#include "common/limits.h"
#include "openai/headers.h"
#include "router/relay/abort_step.h"

namespace pdjob::router {
namespace {

constexpr Duration kAbortAgain = std::chrono::milliseconds(100);
constexpr Duration kAbortTimeout = std::chrono::seconds(5);
constexpr size_t kAbortAnswersPerTurn = 64;  // Each one parses a body.

}  // namespace

Aborts::Aborts(net::Loop& loop, const RouterConfig& config, net::HttpClient& client,
               const WorkerTable& workers, const Reception& reception, Requests& requests)
    : loop_(loop),
      config_(config),
      client_(client),
      workers_(workers),
      reception_(reception),
      requests_(requests),
      leg_prefix_(TransferId{loop.entropy(), loop.entropy()}.to_string() + '-') {}

Aborts::~Aborts() {
  for (const auto& timer : {timer_, soon_}) {
    if (timer) {
      loop_.cancel(*timer);
    }
  }
}

std::optional<Aborts::Prompts> Aborts::meant(const openai::AbortRequest& asked,
                                             const std::string& request_id,
                                             const std::vector<std::string>& rids) {
  if (asked.means_exactly(request_id)) {
    return Prompts{};
  }
  Prompts prompts;
  for (uint32_t index = 0; index < rids.size(); ++index) {
    if (asked.means(rids[index])) {
      prompts.insert(index);
    }
  }
  if (prompts.empty()) {
    return std::nullopt;
  }
  return prompts.size() == rids.size() ? Prompts{} : prompts;
}

void Aborts::begin(RequestId id, const Prompts& prompts, size_t count) {
  const auto [row, is_new] = aborting_.try_emplace(id, Ending{loop_.now(), prompts});
  Ending& ending = row->second;
  if (!is_new) {
    if (ending.prompts.empty()) {
      return;  // Under way already.
    }
    ending.prompts.insert(prompts.begin(), prompts.end());
    if (prompts.empty() || ending.prompts.size() == count) {
      ending = {.since = loop_.now(), .prompts = {}};
    }
  }
  due_.insert(id);
}

void Aborts::step() {
  size_t answered = 0;
  while (!due_.empty() && answered < kAbortAnswersPerTurn) {
    answered += step(due_.extract(due_.begin()).value()) ? 1 : 0;
  }
  std::vector<Asked> asked;
  for (const auto& [to, question] : questions_) {
    asked.push_back(to);
  }
  for (const Asked& to : asked) {
    ask(to);
  }
  if (!due_.empty()) {
    step_soon();
  }
  if (!aborting_.empty() && !timer_) {
    timer_ = loop_.call_at(loop_.now() + kAbortAgain, [this] {
      timer_.reset();
      for (const auto& [id, ending] : aborting_) {
        due_.insert(id);
      }
      step();
    });
  }
}

void Aborts::step_soon() {
  if (!soon_) {
    soon_ = loop_.call_at(loop_.now(), [this] {
      soon_.reset();
      step();
    });
  }
}

bool Aborts::step(RequestId id) {
  const auto row = aborting_.find(id);
  if (row == aborting_.end()) {
    return false;  // It has ended.
  }
  const auto& [since, prompts] = row->second;
  Requests::Sight seen = requests_.look(id);
  const bool at_worker = !seen.workers.empty();
  std::erase_if(seen.workers, [this](WorkerId id_of_worker) {
    const Worker* const worker = workers_.find(id_of_worker);
    return worker == nullptr || !worker->is_pdjob();
  });
  const AbortSight sight{.at_worker = at_worker,
                         .foreign = seen.workers.empty(),
                         .begun = seen.begun,
                         .stream = seen.stream,
                         .whole = prompts.empty()};
  switch (abort_step(sight, loop_.now() - since)) {
    case AbortStep::kWait:
      return false;
    case AbortStep::kAnswer:
    case AbortStep::kCut:
      requests_.answer_aborted(id);
      return true;
    case AbortStep::kAsk:
      break;
  }
  for (const WorkerId worker : seen.workers) {
    auto& names = questions_[{worker, seen.tenant}].next;
    if (prompts.empty()) {
      names.insert(leg_name(id));
    }
    for (const uint32_t prompt : prompts) {
      names.insert(openai::leg_prompt(leg_name(id), prompt));
    }
  }
  return false;
}

void Aborts::ask(const Asked& asked) {
  const auto row = questions_.find(asked);
  Question& question = row->second;
  const Worker* worker = workers_.find(asked.first);
  if (question.in_flight) {
    return;
  }
  if (question.next.empty() || worker == nullptr) {
    questions_.erase(row);
    return;
  }
  openai::AbortRequest request;
  while (!question.next.empty() && request.names.size() < limits::kAbortNamesMax) {
    request.names.insert(question.next.extract(question.next.begin()));
  }
  question.in_flight = true;
  const std::string& name = reception_.config_of(asked.second).name;
  net::fetch(
      loop_, client_,
      {.to = {worker->entry.host, worker->entry.port},
       .method = "POST",
       .target = "/abort_request",
       .header_lines = name.empty() ? std::string()
                                    : std::string(openai::header::kTenant) + ": " + name + "\r\n",
       .more_header_lines = worker->key_line,
       .body = openai::abort_request_body(request),
       .connect_timeout = config_.connect_timeout,
       .head_timeout = kAbortTimeout,
       .idle_timeout = kAbortTimeout},
      limits::kKiB, [this, asked](const Result<net::HttpReply>& /*reply*/) {
        // If it failed, the timer asks again.
        questions_.at(asked).in_flight = false;
        ask(asked);
      });
}

}  // namespace pdjob::router
