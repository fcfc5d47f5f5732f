#include "batch/store/ledger_file.h"

#include <utility>

namespace pdjob::batch {
namespace {

// `answers` is a table of its own, so that the rows, of which there are many, are never written
// again.
constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, name TEXT NOT NULL,"
    "  path TEXT NOT NULL, format INTEGER NOT NULL, digest TEXT NOT NULL, header TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, file INTEGER NOT NULL,"
    "  line INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,"
    "  weight INTEGER NOT NULL, digest INTEGER NOT NULL, key INTEGER);"
    "CREATE TABLE IF NOT EXISTS duplicates (id INTEGER PRIMARY KEY, first INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS answers (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
    "  part INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,"
    "  ended_at INTEGER NOT NULL, milliseconds INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,"
    "  completion_tokens INTEGER NOT NULL, attempts INTEGER NOT NULL, cause TEXT);"
    "CREATE TABLE IF NOT EXISTS parts (kind INTEGER NOT NULL, part INTEGER NOT NULL,"
    "  bytes INTEGER NOT NULL, PRIMARY KEY (kind, part));";
// Few rows are ever blamed.
constexpr const char* kBlames =
    "CREATE TABLE blames (id INTEGER PRIMARY KEY, broken INTEGER NOT NULL, lost INTEGER NOT NULL);";
// `half_done` has rows under way only.
constexpr const char* kHalfDone =
    "ALTER TABLE rows ADD COLUMN beginning INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE half_done (id INTEGER PRIMARY KEY, row INTEGER NOT NULL, note TEXT NOT NULL);"
    "CREATE INDEX half_done_rows ON half_done (row);";
constexpr const char* kLayout[] = {kTables, kBlames, kHalfDone};
constexpr const char* kForget =
    "DROP TABLE facts; DROP TABLE files; DROP TABLE rows; DROP TABLE duplicates;"
    "DROP TABLE answers; DROP TABLE parts; DROP TABLE blames; DROP TABLE half_done;";

// An open transaction of the scan is committed after so many rows.
constexpr uint64_t kScanRows = 20'000;

constexpr const char* kRowColumns =
    "SELECT r.id, r.file, r.line, r.offset, r.length, r.weight, r.digest, r.key, "
    "coalesce(d.first, 0), coalesce(b.broken, 0), coalesce(b.lost, 0), r.beginning FROM rows r "
    "LEFT JOIN duplicates d ON d.id = r.id LEFT JOIN blames b ON b.id = r.id ";

InputRow row_of(const Statement& statement) {
  InputRow row{.id = {static_cast<uint64_t>(statement.number(0))},
               .file = static_cast<uint32_t>(statement.number(1)),
               .line = static_cast<uint64_t>(statement.number(2)),
               .offset = static_cast<uint64_t>(statement.number(3)),
               .length = static_cast<uint64_t>(statement.number(4)),
               .weight = static_cast<uint32_t>(statement.number(5)),
               .digest = static_cast<uint64_t>(statement.number(6)),
               .beginning = static_cast<uint64_t>(statement.number(11)),
               .duplicate_of = {static_cast<uint64_t>(statement.number(8))},
               .blame = {.broken = static_cast<uint32_t>(statement.number(9)),
                         .lost = static_cast<uint32_t>(statement.number(10))}};
  if (!statement.is_null(7)) {
    row.key = static_cast<uint64_t>(statement.number(7));
  }
  return row;
}

int64_t signed_of(uint64_t number) { return static_cast<int64_t>(number); }

}  // namespace

struct LedgerFile::Prepared {
  explicit Prepared(Database& database)
      : add_row(database.prepare("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")),
        pending(database.prepare((std::string(kRowColumns) +
                                  "LEFT JOIN answers a ON a.id = r.id "
                                  "WHERE r.id > ? AND a.id IS NULL ORDER BY r.id LIMIT ?")
                                     .c_str())),
        row(database.prepare((std::string(kRowColumns) + "WHERE r.id = ?").c_str())),
        note(database.prepare("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")),
        forget_half_done(database.prepare("DELETE FROM half_done WHERE row = ?")),
        note_part(database.prepare("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)")) {}

  Statement add_row, pending, row, note, forget_half_done, note_part;
  uint64_t rows_scanned = 0;
};

LedgerFile::LedgerFile(std::unique_ptr<Database> database)
    : database_(std::move(database)), prepared_(std::make_unique<Prepared>(*database_)) {}

LedgerFile::~LedgerFile() = default;

Result<std::unique_ptr<LedgerFile>> LedgerFile::open(const std::string& file) {
  PDJOB_TRY(auto database, Database::open(file, kLayout));
  PDJOB_TRY_STATUS(database->run("PRAGMA cache_size = -32768"));  // 32 MiB.
  return std::unique_ptr<LedgerFile>(new LedgerFile(std::move(database)));
}

Result<std::string> LedgerFile::fact(const std::string& name) {
  Statement statement = database_->prepare("SELECT value FROM facts WHERE name = ?");
  PDJOB_TRY(const bool there, statement.bind(name).step());
  return there ? statement.text(0) : std::string();
}

Status LedgerFile::set_fact(const std::string& name, const std::string& value) {
  return database_->prepare("INSERT OR REPLACE INTO facts VALUES (?, ?)")
      .bind(name)
      .bind(value)
      .finish();
}

Status LedgerFile::begin_scan() {
  prepared_.reset();
  const Status forgotten = database_->run_whole([&]() -> Status {
    PDJOB_TRY_STATUS(database_->run(kForget));
    for (const char* tables : kLayout) {
      PDJOB_TRY_STATUS(database_->run(tables));
    }
    return ok();
  });
  if (!forgotten) {
    return forgotten.error();
  }
  prepared_ = std::make_unique<Prepared>(*database_);
  // A scan that a power cut interrupts starts anew.
  PDJOB_TRY_STATUS(database_->run("PRAGMA synchronous = NORMAL"));
  return database_->run("BEGIN");
}

Status LedgerFile::add_file(const InputFile& file) {
  return database_
      ->prepare("INSERT INTO files (name, path, format, digest, header) VALUES (?, ?, ?, ?, ?)")
      .bind(file.name)
      .bind(file.path)
      .bind(file.format)
      .bind(file.digest)
      .bind(file.header)
      .finish();
}

Status LedgerFile::add_row(const InputRow& row) {
  Statement& statement = prepared_->add_row;
  statement.bind(signed_of(row.id.value))
      .bind(int64_t{row.file})
      .bind(signed_of(row.line))
      .bind(signed_of(row.offset))
      .bind(signed_of(row.length))
      .bind(int64_t{row.weight})
      .bind(signed_of(row.digest));
  row.key ? statement.bind(signed_of(*row.key)) : statement.bind_null();
  statement.bind(signed_of(row.beginning));
  PDJOB_TRY_STATUS(statement.finish());
  if (++prepared_->rows_scanned % kScanRows == 0) {
    PDJOB_TRY_STATUS(database_->run("COMMIT"));
    return database_->run("BEGIN");
  }
  return ok();
}

// SQLite sorts in temporary files, so this takes little memory.
Status LedgerFile::find_equal_keys(const std::function<Status(RowId, RowId)>& found) {
  Statement sorted =
      database_->prepare("SELECT key, id FROM rows WHERE key IS NOT NULL ORDER BY key, id");
  std::optional<int64_t> key;
  RowId first;
  while (true) {
    PDJOB_TRY(const bool there, sorted.step());
    if (!there) {
      return ok();
    }
    const RowId id{static_cast<uint64_t>(sorted.number(1))};
    if (key == sorted.number(0)) {
      PDJOB_TRY_STATUS(found(first, id));
    } else {
      key = sorted.number(0);
      first = id;
    }
  }
}

Status LedgerFile::add_duplicate(RowId row, RowId first) {
  return database_->prepare("INSERT INTO duplicates VALUES (?, ?)")
      .bind(signed_of(row.value))
      .bind(signed_of(first.value))
      .finish();
}

Result<std::vector<std::pair<uint64_t, uint64_t>>> LedgerFile::duplicates(size_t limit) {
  Statement found = database_->prepare(
      "SELECT r.line, f.line FROM duplicates d JOIN rows r ON r.id = d.id "
      "JOIN rows f ON f.id = d.first ORDER BY d.id LIMIT ?");
  found.bind(static_cast<int64_t>(limit));
  std::vector<std::pair<uint64_t, uint64_t>> lines;
  while (true) {
    PDJOB_TRY(const bool there, found.step());
    if (!there) {
      return lines;
    }
    lines.emplace_back(static_cast<uint64_t>(found.number(0)),
                       static_cast<uint64_t>(found.number(1)));
  }
}

Status LedgerFile::end_scan() {
  PDJOB_TRY_STATUS(database_->run("COMMIT"));
  PDJOB_TRY_STATUS(database_->run("PRAGMA synchronous = FULL"));
  return set_fact("scanned", "1");
}

Result<bool> LedgerFile::scanned() {
  PDJOB_TRY(const std::string scanned, fact("scanned"));
  return scanned == "1";
}

Result<std::vector<InputFile>> LedgerFile::files() {
  Statement statement =
      database_->prepare("SELECT name, path, format, digest, header FROM files ORDER BY id");
  std::vector<InputFile> files;
  while (true) {
    PDJOB_TRY(const bool there, statement.step());
    if (!there) {
      return files;
    }
    files.push_back({.name = statement.text(0),
                     .path = statement.text(1),
                     .format = statement.number(2),
                     .digest = statement.text(3),
                     .header = statement.text(4)});
  }
}

Result<RowCounts> LedgerFile::counts() {
  PDJOB_TRY(const int64_t total, database_->number("SELECT coalesce(max(id), 0) FROM rows"));
  Statement ended = database_->prepare(
      "SELECT coalesce(sum(kind = 0), 0), coalesce(sum(kind = 1), 0), "
      "coalesce(sum(completion_tokens), 0) FROM answers");
  PDJOB_TRY([[maybe_unused]] const bool there, ended.step());
  return RowCounts{.total = static_cast<uint64_t>(total),
                   .answered = static_cast<uint64_t>(ended.number(0)),
                   .failed = static_cast<uint64_t>(ended.number(1)),
                   .completion_tokens = static_cast<uint64_t>(ended.number(2))};
}

Result<InputRow> LedgerFile::row(RowId id) {
  Statement& statement = prepared_->row;
  const Result<bool> there = statement.bind(signed_of(id.value)).step();
  Result<InputRow> found = Error{ErrorCode::kNotFound, "no such row"};
  if (!there) {
    found = there.error();
  } else if (*there) {
    found = row_of(statement);
  }
  statement.reset();
  return found;
}

Result<std::vector<InputRow>> LedgerFile::pending(RowId after, size_t count) {
  Statement& statement = prepared_->pending;
  statement.bind(signed_of(after.value)).bind(static_cast<int64_t>(count));
  std::vector<InputRow> rows;
  while (true) {
    const Result<bool> there = statement.step();
    if (!there || !*there) {
      statement.reset();
      return there ? Result(std::move(rows)) : Result<std::vector<InputRow>>(there.error());
    }
    rows.push_back(row_of(statement));
  }
}

Result<std::vector<PartSize>> LedgerFile::parts() {
  Statement statement = database_->prepare("SELECT kind, part, bytes FROM parts ORDER BY 1, 2");
  std::vector<PartSize> parts;
  while (true) {
    PDJOB_TRY(const bool there, statement.step());
    if (!there) {
      return parts;
    }
    parts.push_back({.kind = static_cast<RecordKind>(statement.number(0)),
                     .part = static_cast<uint32_t>(statement.number(1)),
                     .bytes = static_cast<uint64_t>(statement.number(2))});
  }
}

Status LedgerFile::note(const std::vector<EndedRow>& rows, const std::vector<PartSize>& parts) {
  return database_->run_whole([&]() -> Status {
    for (const EndedRow& row : rows) {
      Statement& statement = prepared_->note;
      statement.bind(signed_of(row.id.value))
          .bind(static_cast<int64_t>(row.kind))
          .bind(int64_t{row.place.part})
          .bind(signed_of(row.place.offset))
          .bind(signed_of(row.place.length))
          .bind(row.stats.ended_at)
          .bind(int64_t{row.stats.milliseconds})
          .bind(int64_t{row.stats.prompt_tokens})
          .bind(int64_t{row.stats.completion_tokens})
          .bind(int64_t{row.stats.attempts});
      row.stats.cause.empty() ? statement.bind_null() : statement.bind(row.stats.cause);
      PDJOB_TRY_STATUS(statement.finish());
      PDJOB_TRY_STATUS(prepared_->forget_half_done.bind(signed_of(row.id.value)).finish());
    }
    for (const PartSize& part : parts) {
      PDJOB_TRY_STATUS(prepared_->note_part.bind(static_cast<int64_t>(part.kind))
                           .bind(int64_t{part.part})
                           .bind(signed_of(part.bytes))
                           .finish());
    }
    return ok();
  });
}

Status LedgerFile::note_half_done(const HalfDone& notes) {
  return database_->run_whole([&]() -> Status {
    Statement statement = database_->prepare("INSERT INTO half_done (row, note) VALUES (?, ?)");
    for (const auto& [row, note] : notes) {
      PDJOB_TRY_STATUS(statement.bind(signed_of(row.value)).bind(note).finish());
    }
    return ok();
  });
}

Result<std::map<RowId, std::vector<std::string>>> LedgerFile::half_done(RowId first, RowId last) {
  Statement statement =
      database_->prepare("SELECT row, note FROM half_done WHERE row BETWEEN ? AND ? ORDER BY id");
  statement.bind(signed_of(first.value)).bind(signed_of(last.value));
  std::map<RowId, std::vector<std::string>> notes;
  while (true) {
    PDJOB_TRY(const bool there, statement.step());
    if (!there) {
      return notes;
    }
    notes[RowId{static_cast<uint64_t>(statement.number(0))}].push_back(statement.text(1));
  }
}

Status LedgerFile::note_blames(const std::map<RowId, Blame>& blames) {
  return database_->run_whole([&]() -> Status {
    Statement statement = database_->prepare("INSERT OR REPLACE INTO blames VALUES (?, ?, ?)");
    for (const auto& [id, blame] : blames) {
      PDJOB_TRY_STATUS(statement.bind(signed_of(id.value))
                           .bind(int64_t{blame.broken})
                           .bind(int64_t{blame.lost})
                           .finish());
    }
    return ok();
  });
}

Result<uint64_t> LedgerFile::forget_failed() {
  PDJOB_TRY(const int64_t failed, database_->number("SELECT count(*) FROM answers WHERE kind = 1"));
  const Status forgotten = database_->run_whole([&] {
    return database_->run(
        "DELETE FROM blames WHERE id IN (SELECT id FROM answers WHERE kind = 1);"
        "DELETE FROM answers WHERE kind = 1");
  });
  return forgotten ? Result(static_cast<uint64_t>(failed)) : forgotten.error();
}

Status LedgerFile::records(RecordKind kind, Order order,
                           const std::function<Status(const Extent&)>& found) {
  Statement statement = database_->prepare(
      order == Order::kInput ? "SELECT part, offset, length FROM answers WHERE kind = ? ORDER BY id"
                             : "SELECT part, offset, length FROM answers WHERE kind = ? "
                               "ORDER BY part, offset");
  statement.bind(static_cast<int64_t>(kind));
  while (true) {
    PDJOB_TRY(const bool there, statement.step());
    if (!there) {
      return ok();
    }
    PDJOB_TRY_STATUS(found({.part = static_cast<uint32_t>(statement.number(0)),
                            .offset = static_cast<uint64_t>(statement.number(1)),
                            .length = static_cast<uint64_t>(statement.number(2))}));
  }
}

}  // namespace pdjob::batch
