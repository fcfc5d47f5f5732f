#include "batch/half_done_rows.h"

namespace pdjob::batch {

void HalfDoneRows::restore(RowId row, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    rows_[row].tokens.take(note);
  }
}

HalfDoneRows::Beginning HalfDoneRows::begin(RowId id, AttemptId attempt) {
  Row& row = rows_[id];
  Beginning beginning{.tells = row.teller == AttemptId{}};
  if (beginning.tells) {
    row.teller = attempt;
  }
  const bool goes_on = row.tokens.count() > 0;
  if (goes_on) {
    beginning.goes_on = {.tokens = row.tokens.tokens_json(),
                         .weights = row.tokens.weights_json(),
                         .model = row.tokens.model_json()};
    ++went_on_;
  }
  attempts_[attempt] = {.row = id, .went_on = goes_on};
  return beginning;
}

RowId HalfDoneRows::take(AttemptId attempt, std::string_view note) {
  const auto found = attempts_.find(attempt);
  if (found == attempts_.end()) {
    return {};
  }
  Row& row = rows_.at(found->second.row);
  const bool is_new =
      row.teller == attempt && row.tokens.take(note) == openai::ToldTokens::Taken::kNew;
  return is_new ? found->second.row : RowId{};
}

bool HalfDoneRows::ended(AttemptId attempt, End end) {
  const auto found = attempts_.find(attempt);
  if (found == attempts_.end()) {
    return false;
  }
  const Attempt was = found->second;
  attempts_.erase(found);
  const auto row = rows_.find(was.row);
  if (row == rows_.end()) {
    return false;
  }
  if (row->second.teller == attempt) {
    row->second.teller = {};
  }
  const bool to_blame = was.went_on && end == End::kRefused;
  if (to_blame) {
    row->second.tokens = {};
  }
  return to_blame;
}

void HalfDoneRows::forget(RowId row) { rows_.erase(row); }

}  // namespace pdjob::batch
