// The Batch API's records of files and batches, the text in which they are stored, and the objects
// of OpenAI's API in which clients see them. Values. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"

namespace pdjob::batch {

struct FileRecord {
  int64_t number = 0;  // Of its making; never used again.
  std::string id;      // "file-..."; also its name on disk.
  std::string tenant;  // Empty: there are no tenants.
  std::string filename;
  std::string purpose;  // "batch" or "batch_output".
  int64_t bytes = 0;
  int64_t created_at = 0;  // Seconds since 1970, as all times here.
  int64_t expires_at = 0;
};

enum class BatchState {
  kValidating,
  kInProgress,
  kFinalizing,
  kCancelling,
  kCompleted,
  kFailed,
  kExpired,
  kCancelled,
};
const char* to_string(BatchState state);

struct BatchRecord {
  int64_t number = 0;
  std::string id;  // "batch_..."; also the name of its folder.
  std::string tenant;
  BatchState state = BatchState::kValidating;
  std::string endpoint;
  std::string input_file_id;
  std::string completion_window;
  std::string metadata;         // A JSON object; empty: null.
  std::string errors;           // JSON objects with commas between them: why it failed.
  std::string model;            // Of its rows, if all have the same.
  std::string output_file_id;   // Empty: null.
  std::string error_file_id;    // The same.
  int64_t output_lifetime = 0;  // Seconds.
  int64_t created_at = 0;
  int64_t expires_at = 0;
  // 0: not yet.
  int64_t in_progress_at = 0;
  int64_t finalizing_at = 0;
  int64_t cancelling_at = 0;
  int64_t ended_at = 0;
  int64_t total = 0;
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;

  bool ended() const { return state >= BatchState::kCompleted; }
};

// As they are stored: flat JSON objects.
std::string stored_text(const FileRecord& file);
std::string stored_text(const BatchRecord& batch);
Status read_stored(const std::string& text, FileRecord& file);
Status read_stored(const std::string& text, BatchRecord& batch);

// As clients see them.
std::string file_object(const FileRecord& file);
std::string batch_object(const BatchRecord& batch);

}  // namespace pdjob::batch
