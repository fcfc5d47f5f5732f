// The scan: reads all input once, before anything runs. It puts the place of each row into the
// ledger, and finds rows with the same custom_id. Packed files and standard input cannot be read at
// any place, so it unpacks them into the batch's folder. Its memory is bounded. Calls block.
#pragma once

#include <functional>

#include "batch/batch_folder.h"
#include "batch/batch_options.h"
#include "batch/input/row_reader.h"
#include "batch/store/ledger_file.h"

namespace pdjob::batch {

// kInvalidArgument: the template is wrong, or missing.
Result<RowReader> row_reader_of(const BatchOptions& options);

// Scans the input, unless the ledger has scanned the same input for the same job already.
// kInvalidArgument: input, job or template have changed since the ledger began. `tell` gets the
// number of rows so far, now and then.
Status scan_input(const BatchOptions& options, const BatchFolder& folder, LedgerFile& ledger,
                  const RowReader& reader, const std::function<void(uint64_t rows)>& tell);

}  // namespace pdjob::batch
