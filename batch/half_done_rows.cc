#include "batch/half_done_rows.h"

#include <array>
#include <utility>

#include "openai/json/json_edit.h"

namespace pdjob::batch {

void HalfDoneRows::restore(RowId row, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    rows_[row].tokens.take(note);
  }
}

HalfDoneRows::Beginning HalfDoneRows::begin(RowId id, AttemptId attempt, std::string body) {
  Row& row = rows_[id];
  Attempt& begun = attempts_[attempt];
  begun.row = id;
  Beginning beginning{.tells = row.teller == AttemptId{}, .body = std::move(body)};
  if (beginning.tells) {
    row.teller = attempt;
  }
  if (row.tokens.count() == 0) {
    return beginning;
  }
  const std::string tokens = row.tokens.tokens_json();
  const std::string weights = row.tokens.weights_json();
  const std::string model = row.tokens.model_json();
  const std::array edits = {openai::JsonEdit{"pdjob_resume", tokens},
                            openai::JsonEdit{"pdjob_resume_weights", weights},
                            openai::JsonEdit{"pdjob_resume_model", model}};
  if (auto edited = openai::edit_json_object(beginning.body, edits)) {
    beginning.body = *std::move(edited);
    begun.went_on = true;
    ++went_on_;
  }
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
