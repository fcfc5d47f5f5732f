#include "router/core/model_cards.h"

#include <map>

namespace pdjob::router {
namespace {

// Takes what a worker says of its model into the card of that model, or of an adapter of it.
void take(const net::WorkerEntry& entry, openai::ModelCard& card) {
  const auto least = [](auto& number, auto said) {
    number = said > 0 && (number == 0 || said < number) ? said : number;
  };
  least(card.context_max, entry.context_max);
  least(card.created, static_cast<int64_t>(entry.created));
}

}  // namespace

std::vector<openai::ModelCard> model_cards(const Router& router, int64_t began) {
  const std::set<std::string> models = router.models();
  std::map<std::string, openai::ModelCard> cards;
  std::map<std::string, openai::ModelCard> adapters;
  for (const std::string& model : models) {
    cards[model].id = model;
  }
  for (const auto& [id, worker] : router.workers().all()) {
    if (!worker.entry.model.empty()) {
      take(worker.entry, cards.at(worker.entry.model));
    }
    for (const std::string& name : worker.adapters) {
      if (!models.contains(name)) {
        openai::ModelCard& card = adapters[name];
        card.id = name;
        card.parent = worker.entry.model;
        take(worker.entry, card);
      }
    }
  }
  std::vector<openai::ModelCard> list;
  for (const auto* const some : {&cards, &adapters}) {
    for (const auto& [id, card] : *some) {
      list.push_back(card);
      list.back().created = card.created > 0 ? card.created : began;
    }
  }
  return list;
}

}  // namespace pdjob::router
