#include "batch/input_scan.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "batch/config/batch_config.h"
#include "batch/input/byte_source.h"
#include "batch/input/row_files.h"
#include "batch/input/row_splitter.h"
#include "batch/store/disk.h"
#include "common/crypto/sha256.h"

namespace pdjob::batch {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr uint64_t kTellRows = 100'000;

// The answers depend on these settings. Another value makes another batch.
std::vector<std::pair<std::string, std::string>> settings_of(const BatchOptions& options) {
  return {
      {"job", sha256_of(options.job)},
      {"template",
       sha256_of(options.body_template + '\n' + options.endpoint + '\n' + options.id_column + '\n' +
                 (options.format ? std::to_string(static_cast<int>(*options.format)) : ""))},
      // Without stages, the fact is that of ledgers which know none.
      {"stages", options.stages.empty() ? "" : sha256_of(identity_of(options.stages))}};
}

class Scan {
 public:
  Scan(const BatchOptions& options, const BatchFolder& folder, LedgerFile& ledger,
       const RowReader& reader, const std::function<void(uint64_t)>& tell)
      : options_(options), folder_(folder), ledger_(ledger), reader_(reader), tell_(tell) {}

  Status run() {
    PDJOB_TRY_STATUS(ledger_.begin_scan());
    for (const std::string& input : options_.inputs) {
      PDJOB_TRY_STATUS(scan_file(input));
    }
    PDJOB_TRY_STATUS(find_duplicates());
    for (const auto& [name, value] : settings_of(options_)) {
      PDJOB_TRY_STATUS(ledger_.set_fact(name, value));
    }
    return ledger_.end_scan();
  }

 private:
  Status scan_file(const std::string& name) {
    const Packing packing = packing_of(name);
    const bool copied = packing != Packing::kNone || name == kStandardInput;
    InputFile file{
        .name = name == kStandardInput ? "standard input" : name,
        .path = copied ? folder_.unpacked(files_) : std::filesystem::absolute(name).string(),
        .format = static_cast<int64_t>(
            options_.format.value_or(format_of(name, !options_.body_template.empty())))};
    PDJOB_TRY(const auto source, ByteSource::open(name, packing));
    std::unique_ptr<AppendFile> copy;
    if (copied) {
      PDJOB_TRY(copy, disk_->open(file.path, 0));
    }
    RowSplitter splitter(static_cast<RowFormat>(file.format),
                         [&](const RawRow& row) { return take(row, file); });
    const uint64_t rows_before = rows_;
    std::string buffer(kReadBytes, '\0');
    while (true) {
      PDJOB_TRY(const size_t got, source->read(buffer));
      const std::string_view bytes = std::string_view(buffer).substr(0, got);
      if (got == 0) {
        break;
      }
      PDJOB_TRY_STATUS(copied ? copy->append(bytes) : ok());
      PDJOB_TRY_STATUS(splitter.feed(bytes));
    }
    PDJOB_TRY_STATUS(splitter.finish());
    if (rows_ == rows_before) {
      return Error{ErrorCode::kInvalidArgument, file.name + " has no rows"};
    }
    PDJOB_TRY_STATUS(copied ? copy->sync() : ok());
    file.digest = name == kStandardInput ? "" : source->digest();
    ++files_;
    return ledger_.add_file(file);
  }

  Status take(const RawRow& raw, InputFile& file) {
    const bool whole = raw.length <= kRowBytesMax;
    if (delimiter_of(static_cast<RowFormat>(file.format)) != 0 && file.header.empty()) {
      file.header = *raw.text;
      return whole ? ok()
                   : Status(Error{ErrorCode::kInvalidArgument,
                                  file.name + ": its first record, the header, is too long"});
    }
    InputRow row{.id = {++rows_},
                 .file = files_,
                 .line = raw.line,
                 .offset = raw.offset,
                 .length = raw.length,
                 .digest = whole ? row_digest(*raw.text) : 0};
    if (whole) {
      const auto glance = reader_.glance(
          *raw.text,
          {.format = static_cast<RowFormat>(file.format), .number = rows_, .header = file.header});
      row.weight = glance.weight;
      row.beginning = glance.beginning;
      if (glance.custom_id) {
        row.key = row_digest(*glance.custom_id);
      }
    }
    if (rows_ % kTellRows == 0) {
      tell_(rows_);
    }
    return ledger_.add_row(row);
  }

  // Equal keys are equal custom_ids, or a rare accident: the rows themselves decide.
  Status find_duplicates() {
    std::vector<std::pair<RowId, RowId>> pairs;
    PDJOB_TRY_STATUS(ledger_.find_equal_keys([&](RowId first, RowId second) {
      pairs.emplace_back(first, second);
      return pairs.size() <= kDuplicatesMax
                 ? ok()
                 : Status(Error{ErrorCode::kInvalidArgument,
                                "more than " + std::to_string(kDuplicatesMax) +
                                    " rows have the custom_id of another row: is a file given "
                                    "twice?"});
    }));
    if (pairs.empty()) {
      return ok();
    }
    PDJOB_TRY(const auto files, ledger_.files());
    std::vector<std::string> paths;
    for (const InputFile& file : files) {
      paths.push_back(file.path);
    }
    RowFiles rows(std::move(paths));
    for (const auto& [first, second] : pairs) {
      PDJOB_TRY(const auto one, id_of(first, files, rows));
      PDJOB_TRY(const auto other, id_of(second, files, rows));
      PDJOB_TRY_STATUS(one == other ? ledger_.add_duplicate(second, first) : ok());
    }
    return ok();
  }

  Result<std::optional<std::string>> id_of(RowId id, const std::vector<InputFile>& files,
                                           RowFiles& rows) {
    PDJOB_TRY(const InputRow row, ledger_.row(id));
    std::string text;
    PDJOB_TRY_STATUS(rows.read(row.file, row.offset, row.length, row.digest, text));
    return reader_
        .glance(text, {.format = static_cast<RowFormat>(files[row.file].format),
                       .number = id.value,
                       .header = files[row.file].header})
        .custom_id;
  }

  static constexpr size_t kDuplicatesMax = 1'000'000;

  const BatchOptions& options_;
  const BatchFolder& folder_;
  LedgerFile& ledger_;
  const RowReader& reader_;
  const std::function<void(uint64_t)>& tell_;
  const std::unique_ptr<Disk> disk_ = real_disk();
  uint32_t files_ = 0;
  uint64_t rows_ = 0;
};

Error differs(const BatchFolder& folder, const std::string& what) {
  return {ErrorCode::kInvalidArgument,
          folder.path() + " belongs to another batch: " + what +
              ". Use another folder, or begin anew with --restart, which forgets its results"};
}

Result<std::string> digest_of(const std::string& path) {
  PDJOB_TRY(const auto source, ByteSource::open(path, Packing::kNone));
  std::string buffer(kReadBytes, '\0');
  size_t got = 1;
  while (got > 0) {
    PDJOB_TRY(got, source->read(buffer));
  }
  return source->digest();
}

Status check_same(const BatchOptions& options, const BatchFolder& folder, LedgerFile& ledger) {
  for (const auto& [name, value] : settings_of(options)) {
    PDJOB_TRY(const std::string before, ledger.fact(name));
    if (before != value) {
      return differs(folder, name == "job"      ? "the job file or the server is another one"
                             : name == "stages" ? "its stages are others"
                                                : "the template or its options are others");
    }
  }
  PDJOB_TRY(const auto files, ledger.files());
  if (files.size() != options.inputs.size()) {
    return differs(folder, "it has " + std::to_string(files.size()) + " input files, not " +
                               std::to_string(options.inputs.size()));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].digest.empty() && options.inputs[i] == kStandardInput) {
      continue;  // It is in the folder, whole.
    }
    PDJOB_TRY(const std::string digest, digest_of(options.inputs[i]));
    if (digest != files[i].digest) {
      return differs(folder, options.inputs[i] + " is not the file that it was");
    }
  }
  return ok();
}

}  // namespace

Result<RowReader> row_reader_of(const BatchOptions& options) {
  RowRules rules{.endpoint = options.endpoint, .id_column = options.id_column};
  if (!options.body_template.empty()) {
    PDJOB_TRY(rules.body, BodyTemplate::parse(options.body_template));
  }
  for (const std::string& input : options.inputs) {
    PDJOB_TRY_STATUS(check_template(input, options.format, rules.body.has_value()));
  }
  return RowReader(std::move(rules));
}

Status scan_input(const BatchOptions& options, const BatchFolder& folder, LedgerFile& ledger,
                  const RowReader& reader, const std::function<void(uint64_t)>& tell) {
  PDJOB_TRY(const bool scanned, ledger.scanned());
  if (scanned && options.again != Again::kRestart) {
    return check_same(options, folder, ledger);
  }
  return Scan(options, folder, ledger, reader, tell).run();
}

}  // namespace pdjob::batch
