// HalfDoneRows: the tokens that rows have so far, so that the next attempt at a row goes on with
// them, in this process or in the next one. One attempt of a row tells its tokens at a time; a
// straggler's second one does not. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "batch/core/ledger.h"
#include "batch/row_client.h"
#include "openai/replies/told_tokens.h"

namespace pdjob::batch {

class HalfDoneRows {
 public:
  // The notes that earlier processes kept of a row, in order.
  void restore(RowId row, const std::vector<std::string>& notes);

  struct Beginning {
    bool tells = false;  // The server is asked for tokens.
    GoesOn goes_on;
  };
  Beginning begin(RowId row, AttemptId attempt);
  // A note of the server (told_tokens.h). Returns the row if it is to be kept on disk, else zero.
  RowId take(AttemptId attempt, std::string_view note);
  enum class End {
    kOther,
    kRefused,  // The server does not take the request.
  };
  // The attempt has ended, or is cancelled. Returns true if it went on with tokens and was refused.
  // The tokens are forgotten then, and the row is to be asked again.
  bool ended(AttemptId attempt, End end);
  // The row has ended.
  void forget(RowId row);

  uint64_t went_on() const { return went_on_; }  // Attempts that began with tokens.

 private:
  struct Row {
    openai::ToldTokens tokens;
    AttemptId teller;
  };
  struct Attempt {
    RowId row;
    bool went_on = false;
  };

  std::map<RowId, Row> rows_;
  std::map<AttemptId, Attempt> attempts_;
  uint64_t went_on_ = 0;
};

}  // namespace pdjob::batch
