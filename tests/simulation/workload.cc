#include "tests/simulation/workload.h"

namespace pdjob::simulation {

std::vector<Ask> make_workload(const WorkloadShape& shape, Instant start, uint64_t seed) {
  Random random(seed);
  Random families(mix(seed));
  std::vector<Ask> asks;
  for (uint32_t i = 1; i <= shape.asks; ++i) {
    Ask ask{.id = RequestId{i}, .model = shape.models[i % shape.models.size()]};
    ask.prompt = {.seed = random.next(),
                  .tokens = static_cast<uint32_t>(1 + random.below(shape.prompt_tokens_max)),
                  .max_tokens = static_cast<uint32_t>(1 + random.below(shape.max_tokens_max)),
                  .choices = random.chance(0.7)
                                 ? 1
                                 : static_cast<uint32_t>(1 + random.below(shape.choices_max))};
    if (shape.families > 0) {
      ask.prompt.family = mix(seed + families.below(shape.families));
      ask.prompt.shared = static_cast<uint32_t>(families.below(ask.prompt.tokens + 1));
    }
    ask.stream = random.chance(0.5);
    ask.poisoned = random.chance(shape.poisoned);
    ask.arrives = start + Duration(random.below(static_cast<uint64_t>(shape.duration.count())));
    if (random.chance(shape.leaving)) {
      ask.leaves = ask.arrives + std::chrono::microseconds(random.below(200'000));
    }
    asks.push_back(ask);
  }
  if (shape.killer != Kills::kNobody) {
    Ask& killer = asks[mix(seed + 1) % asks.size()];
    killer.kills = shape.killer;
    killer.poisoned = false;
  }
  return asks;
}

Clients::Clients(Invariants& invariants, const std::vector<Ask>& asks, uint32_t rows_per_sequence)
    : invariants_(invariants), rows_per_sequence_(rows_per_sequence) {
  for (const Ask& ask : asks) {
    rows_[ask.id] = {.ask = ask, .texts = std::vector<ToyText>(ask.prompt.choices)};
  }
}

void Clients::on_status(RequestId id, int status) {
  Client& client = rows_.at(id);
  invariants_.expect(!client.ended && client.status == 0, "one head for each reply", id);
  client.status = status;
  check_status(id, status);
}

// All requests are valid, and a client that left gets no status.
void Clients::check_status(RequestId id, int status) {
  const Client& client = rows_.at(id);
  const bool killer = client.ask.kills != Kills::kNobody;
  const bool may_be_blamed = killer ? client.killed.size() == 2 : client.broke || killer_left_;
  counts_.blamed += status == 422 ? 1 : 0;
  const bool excuse =
      status == 200 || status == 429 || status >= 500 || (status == 422 && may_be_blamed);
  invariants_.expect(excuse, "a valid request is never called wrong, but request", id, "got",
                     status);
}

void Clients::on_kill(RequestId id, Incarnation worker) {
  std::set<Incarnation>& killed = rows_.at(id).killed;
  counts_.kills += killed.insert(worker).second ? 1 : 0;  // Two of its legs may break at once.
  invariants_.expect(killed.size() <= 2, "after two crashes no worker gets the request again", id);
}

void Clients::on_token(RequestId id, uint32_t choice, Token token, FinishReason finish) {
  Client& client = rows_.at(id);
  invariants_.expect(!client.ended && client.status == 200,
                     "tokens come after a good head and before the end", id);
  invariants_.expect(choice < client.texts.size(), "a choice that was asked for", id, choice);
  if (invariants_.broken()) {
    return;
  }
  ToyText& text = client.texts[choice];
  invariants_.expect(text.finish == FinishReason::kNone, "no token follows the last one", id,
                     choice);
  text.tokens.push_back(token);
  text.finish = finish;
}

Clients::Client& Clients::end(RequestId id) {
  Client& client = rows_.at(id);
  invariants_.expect(!client.ended, "each request ends exactly once, but again ended", id);
  ended_ += client.ended ? 0 : 1;
  client.ended = true;
  return client;
}

void Clients::on_complete(RequestId id) {
  const Client& client = end(id);
  invariants_.expect(client.status != 0, "a reply has a head", id);
  ++(client.status == 200 ? counts_.served : counts_.failed);
  if (client.status == 200) {
    invariants_.expect(client.texts == reference(client.ask.prompt, rows_per_sequence_),
                       "a complete reply has the reference's tokens, but not that of request", id);
    for (const ToyText& text : client.texts) {
      invariants_.expect(!client.ask.poisoned || text.tokens.size() < kPoisonedToken,
                         "a failed sampler is no success", id);
    }
  }
}

void Clients::on_refused(RequestId id, int status) {
  const Client& client = end(id);
  invariants_.expect(client.status == 0, "a refusal is not appended to a reply", id);
  check_status(id, status);
  ++counts_.refused;
}

void Clients::on_aborted(RequestId id) {
  end(id);
  ++counts_.aborted;
}

void Clients::on_left(RequestId id) {
  if (end(id).ask.kills != Kills::kNobody) {
    killer_left_ = true;
  }
  ++counts_.left;
}

std::string Clients::list_waiting() const {
  std::string list;
  for (const auto& [id, client] : rows_) {
    list += client.ended ? "" : " " + std::to_string(id.value);
  }
  return list;
}

}  // namespace pdjob::simulation
