// The lines between a batch and the processes of its stages: one JSON object each way for each row.
//
//   to a stage before:   {"custom_id", "method", "url", "body", "stages"}
//   to a stage after:    {"custom_id", "request": {"url", "body"}, "response", "stages"}
//   from a stage before: its changed `url` and `body`
//   from a stage after:  its changed `response`
//   from both: {"pdjob_drop": REASON} or {"pdjob_error": REASON}; all other members are notes,
//   which the row's record and the later stages get as `stages`.{NAME}. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace pdjob::batch {

enum class StageSide { kBefore, kAfter };

// The notes of stages on a row: the stage's name, and a JSON object.
using StageNotes = std::vector<std::pair<std::string, std::string>>;

struct StageInput {
  std::string_view custom_id;
  std::string_view url;
  std::string_view body;      // JSON.
  std::string_view response;  // JSON; only for kAfter.
};

// Without '\n'.
std::string stage_line(StageSide side, const StageInput& input, const StageNotes& notes);
// A JSON object; empty without notes.
std::string notes_object(const StageNotes& notes);

struct StageReply {
  enum class Kind { kChanged, kDropped, kFailed };
  Kind kind = Kind::kChanged;
  std::string reason;    // Of kDropped and kFailed.
  std::string url;       // Empty: as it was. The same holds for the next two.
  std::string body;      // JSON.
  std::string response;  // JSON.
  std::string notes;     // A JSON object; empty: none.
};

// kCorrupt: the line is no JSON object, or has another custom_id. The process cannot be trusted.
Result<StageReply> read_stage_line(StageSide side, std::string line, std::string_view custom_id);

}  // namespace pdjob::batch
