// LedgerFile: the ledger on disk. It lists the input files and where each row is in them, and for
// each row that has ended where its record is in the part files. Rows without that are pending.
// Every change is one transaction. Calls block. Any thread may call, but only one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/core/ledger.h"
#include "common/result.h"
#include "common/sqlite/database.h"

namespace pdjob::batch {

// Files store these numbers.
enum class RecordKind { kOutput = 0, kError = 1 };

struct InputFile {
  std::string name;    // As a person gave it.
  std::string path;    // Where offsets of rows point: the file, or its unpacked copy.
  int64_t format = 0;  // RowFormat.
  std::string digest;  // Of the file as given; empty: of standard input.
  std::string header;  // CSV: its first record.
};

struct InputRow {
  RowId id;  // From 1, in order of input.
  uint32_t file = 0;
  uint64_t line = 0;  // From 1.
  uint64_t offset = 0;
  uint64_t length = 0;  // Bytes, without the end of the line.
  uint32_t weight = 0;
  uint64_t digest = 0;          // Of these bytes.
  std::optional<uint64_t> key;  // Of its custom_id; empty: it has none.
  uint64_t beginning = 0;       // RowReader::Glance::beginning.
  RowId duplicate_of;           // Another row has the same custom_id; zero: none has.
  Blame blame;
};

struct Extent {
  uint32_t part = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct RowStats {
  int64_t ended_at = 0;       // Seconds since 1970.
  uint32_t milliseconds = 0;  // Of the attempt that counts.
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t attempts = 0;
  std::string cause;  // Of a failure, one word: "timeout", "400".
};

struct EndedRow {
  RowId id;
  RecordKind kind = RecordKind::kOutput;
  Extent place;
  RowStats stats;
};

struct RowCounts {
  uint64_t total = 0;
  uint64_t answered = 0;
  uint64_t failed = 0;
  uint64_t completion_tokens = 0;
};

// How many bytes of a part the ledger knows.
struct PartSize {
  RecordKind kind = RecordKind::kOutput;
  uint32_t part = 0;
  uint64_t bytes = 0;
};

class LedgerFile {
 public:
  static Result<std::unique_ptr<LedgerFile>> open(const std::string& file);
  ~LedgerFile();
  LedgerFile(const LedgerFile&) = delete;
  LedgerFile& operator=(const LedgerFile&) = delete;

  // Facts about the batch as a whole; empty: never set.
  Result<std::string> fact(const std::string& name);
  Status set_fact(const std::string& name, const std::string& value);

  // ---- The scan of the input. A scan that did not end starts anew.
  Status begin_scan();  // Forgets everything, the facts and the ended rows, too.
  Status add_file(const InputFile& file);
  Status add_row(const InputRow& row);
  // Calls `found` for each row whose key an earlier row has. Keys are hashes.
  Status find_equal_keys(const std::function<Status(RowId first, RowId second)>& found);
  Status add_duplicate(RowId row, RowId first);
  // At most `limit` pairs of lines: of a row, and of the earlier one that has its custom_id.
  Result<std::vector<std::pair<uint64_t, uint64_t>>> duplicates(size_t limit);
  Status end_scan();
  Result<bool> scanned();

  Result<std::vector<InputFile>> files();
  Result<RowCounts> counts();
  // kNotFound: there is no such row.
  Result<InputRow> row(RowId id);
  // At most `count` rows that have not ended, in order, after this one.
  Result<std::vector<InputRow>> pending(RowId after, size_t count);
  Result<std::vector<PartSize>> parts();
  // Requires: the records are on disk.
  Status note(const std::vector<EndedRow>& rows, const std::vector<PartSize>& parts);
  // Keeps notes of servers on these rows, in order. note() forgets them with the row.
  using HalfDone = std::vector<std::pair<RowId, std::string>>;
  Status note_half_done(const HalfDone& notes);
  // The kept notes on the rows from `first` to `last`.
  Result<std::map<RowId, std::vector<std::string>>> half_done(RowId first, RowId last);
  // Replaces what the rows were blamed for.
  Status note_blames(const std::map<RowId, Blame>& blames);
  // Failed rows are pending again, without blame. Returns how many.
  Result<uint64_t> forget_failed();

  // Calls `found` for the record of each row of the kind.
  enum class Order { kInput, kCompleted };
  Status records(RecordKind kind, Order order, const std::function<Status(const Extent&)>& found);

  Database& database() { return *database_; }

 private:
  explicit LedgerFile(std::unique_ptr<Database> database);

  struct Prepared;
  const std::unique_ptr<Database> database_;
  std::unique_ptr<Prepared> prepared_;  // Before the database ends.
};

}  // namespace pdjob::batch
