// Records: the answers and errors of a batch on disk. A record is appended to a part file, and the
// part is synced before the ledger notes the row. A part that is opened may be longer than the
// ledger knows. The rest is cut off, and its rows run again. At the end the parts are merged to one
// file.
//
// Part files are `parts/output-00001.jsonl` and so on. The last one of each kind is being written:
// its name ends in `.open`. Calls block. Any thread may call, but only one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "batch/store/disk.h"
#include "batch/store/ledger_file.h"

namespace pdjob::batch {

// A row that has ended, and its line without '\n'.
struct Record {
  RowId id;
  RecordKind kind = RecordKind::kOutput;
  std::string line;
  RowStats stats;
};

class Records {
 public:
  // `folder`: of the batch. All three must outlive it. `part_bytes`: a part is closed beyond.
  static Result<std::unique_ptr<Records>> open(Disk& disk, LedgerFile& ledger, std::string folder,
                                               uint64_t part_bytes = uint64_t{256} << 20);

  // Afterwards the records are on disk and noted. After an error every later call fails, too: only
  // open() knows again how long the parts are.
  Status note(const std::vector<Record>& records);
  // Writes output.jsonl and errors.jsonl anew.
  Status merge(LedgerFile::Order order);

 private:
  struct Part {
    uint32_t number = 0;
    uint64_t bytes = 0;
    std::unique_ptr<AppendFile> file;
  };

  Records(Disk& disk, LedgerFile& ledger, std::string folder, uint64_t part_bytes)
      : disk_(disk), ledger_(ledger), folder_(std::move(folder)), part_bytes_(part_bytes) {}

  enum class PartState { kOpen, kClosed };
  std::string part_path(RecordKind kind, uint32_t number, PartState state) const;
  Status write(const std::vector<Record>& records);
  Status open_part(RecordKind kind, uint32_t number, uint64_t bytes);
  Status merge_kind(RecordKind kind, LedgerFile::Order order);

  Disk& disk_;
  LedgerFile& ledger_;
  const std::string folder_;
  const uint64_t part_bytes_;
  std::array<Part, 2> parts_;  // By RecordKind.
  bool broken_ = false;        // A note() has failed.
};

}  // namespace pdjob::batch
