#include "batch/store/records.h"

#include <utility>

namespace pdjob::batch {
namespace {

constexpr RecordKind kKinds[] = {RecordKind::kOutput, RecordKind::kError};

const char* name_of(RecordKind kind) { return kind == RecordKind::kOutput ? "output" : "errors"; }

}  // namespace

std::string Records::part_path(RecordKind kind, uint32_t number, PartState state) const {
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  return folder_ + "/parts/" + name_of(kind) + "-" + digits + ".jsonl" +
         (state == PartState::kOpen ? ".open" : "");
}

Result<std::unique_ptr<Records>> Records::open(Disk& disk, LedgerFile& ledger, std::string folder,
                                               uint64_t part_bytes) {
  std::unique_ptr<Records> records(new Records(disk, ledger, std::move(folder), part_bytes));
  PDJOB_TRY(const std::vector<PartSize> known, ledger.parts());
  for (const RecordKind kind : kKinds) {
    PartSize last{.kind = kind, .part = 1};
    for (const PartSize& part : known) {
      last = part.kind == kind ? part : last;  // In order.
    }
    PDJOB_TRY_STATUS(records->open_part(kind, last.part, last.bytes));
  }
  return records;
}

// A full part may have been renamed just before a crash. Then the ledger knows all its bytes, and
// the next part starts.
Status Records::open_part(RecordKind kind, uint32_t number, uint64_t bytes) {
  Part& part = parts_[static_cast<size_t>(kind)];
  if (bytes >= part_bytes_) {
    PDJOB_TRY_STATUS(disk_.rename(part_path(kind, number, PartState::kOpen),
                                  part_path(kind, number, PartState::kClosed)));
    return open_part(kind, number + 1, 0);
  }
  PDJOB_TRY(auto file, disk_.open(part_path(kind, number, PartState::kOpen), bytes));
  part = {.number = number, .bytes = bytes, .file = std::move(file)};
  return ok();
}

// After a failed sync the part may hold bytes that no row is to have: a later record would be noted
// at their place.
Status Records::note(const std::vector<Record>& records) {
  if (broken_) {
    return Error{ErrorCode::kUnavailable, "an earlier write to " + folder_ + " failed"};
  }
  const Status written = write(records);
  broken_ = !written;
  return written;
}

Status Records::write(const std::vector<Record>& records) {
  std::vector<EndedRow> ended;
  ended.reserve(records.size());
  std::array<std::string, 2> bytes;
  for (const Record& record : records) {
    const Part& part = parts_[static_cast<size_t>(record.kind)];
    std::string& more = bytes[static_cast<size_t>(record.kind)];
    const Extent place{
        .part = part.number, .offset = part.bytes + more.size(), .length = record.line.size() + 1};
    more.append(record.line).push_back('\n');
    ended.push_back({.id = record.id, .kind = record.kind, .place = place, .stats = record.stats});
  }
  std::vector<PartSize> sizes;
  for (const RecordKind kind : kKinds) {
    Part& part = parts_[static_cast<size_t>(kind)];
    const std::string& more = bytes[static_cast<size_t>(kind)];
    if (!more.empty()) {
      PDJOB_TRY_STATUS(part.file->append(more));
      PDJOB_TRY_STATUS(part.file->sync());
      part.bytes += more.size();
      sizes.push_back({.kind = kind, .part = part.number, .bytes = part.bytes});
    }
  }
  if (const Status noted = ledger_.note(ended, sizes); !noted) {
    return noted.error().during("noting rows in " + folder_ + "/ledger.sqlite");
  }
  for (const PartSize& size : sizes) {
    if (size.bytes >= part_bytes_) {
      PDJOB_TRY_STATUS(open_part(size.kind, size.part, size.bytes));
    }
  }
  return ok();
}

Status Records::merge(LedgerFile::Order order) {
  for (const RecordKind kind : kKinds) {
    PDJOB_TRY_STATUS(merge_kind(kind, order));
  }
  return ok();
}

Status Records::merge_kind(RecordKind kind, LedgerFile::Order order) {
  const std::string target = folder_ + "/" + name_of(kind) + ".jsonl";
  const std::string fresh = target + ".new";
  PDJOB_TRY(const auto out, disk_.open(fresh, 0));
  Extent run;  // Records that follow each other are copied as one.
  const auto copy_run = [&]() -> Status {
    const bool open = run.part == parts_[static_cast<size_t>(kind)].number;
    return run.length == 0
               ? ok()
               : disk_.copy(part_path(kind, run.part, open ? PartState::kOpen : PartState::kClosed),
                            run.offset, run.length, *out);
  };
  const Status copied = ledger_.records(kind, order, [&](const Extent& place) -> Status {
    if (place.part == run.part && place.offset == run.offset + run.length) {
      run.length += place.length;
      return ok();
    }
    PDJOB_TRY_STATUS(copy_run());
    run = place;
    return ok();
  });
  if (!copied) {
    return copied.error();
  }
  PDJOB_TRY_STATUS(copy_run());
  PDJOB_TRY_STATUS(out->sync());
  return disk_.rename(fresh, target);
}

}  // namespace pdjob::batch
