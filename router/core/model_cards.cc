#include "router/core/model_cards.h"

namespace pdjob::router {

std::vector<openai::ModelCard> model_cards(const Router& router, int64_t began) {
  std::vector<openai::ModelCard> cards;
  for (const std::string& model : router.models()) {
    openai::ModelCard& card = cards.emplace_back(openai::ModelCard{.id = model});
    const auto least = [](auto& number, auto said) {
      number = said > 0 && (number == 0 || said < number) ? said : number;
    };
    for (const auto& [id, worker] : router.workers().all()) {
      if (worker.entry.model == model) {
        least(card.context_max, worker.entry.context_max);
        least(card.created, static_cast<int64_t>(worker.entry.created));
      }
    }
    card.created = card.created > 0 ? card.created : began;
  }
  return cards;
}

}  // namespace pdjob::router
