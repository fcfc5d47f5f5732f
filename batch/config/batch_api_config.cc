#include "batch/config/batch_api_config.h"

namespace pdjob::batch {

void read(ConfigReader& in, BatchApiConfig& config) {
  using std::chrono::hours;
  using std::chrono::seconds;
  in.path("dir", config.dir,
          {.doc = "Where files, batches and answers are kept: a folder, made where there is none. "
                  "Two running jobs cannot share it. Empty: there is no Batch API."});
  in.field("file_bytes_max", config.file_bytes_max,
           {.doc = "Of one uploaded file; beyond: 413.", .unit = "bytes"},
           {.min = 1024, .max = uint64_t{1} << 40});
  in.field("files_max", config.files_max,
           {.doc = "Files that a tenant has at once, results among them; more uploads are refused.",
            .unit = "files"},
           {.min = 1, .max = 1'000'000});
  in.field("disk_bytes_max", config.disk_bytes_max,
           {.doc = "Of all tenants' files and answers. Beyond, uploads are refused with 503, and "
                   "batches wait. Merging the answers of a batch takes as much again for a moment.",
            .unit = "bytes"},
           {.min = 1 << 20, .max = uint64_t{1} << 50});
  in.field("tenant_bytes_max", config.tenant_bytes_max,
           {.doc = "Of one tenant's files and answers, uploads under way among them. Beyond, its "
                   "uploads are refused with 400, and its batches wait. 0: only disk_bytes_max "
                   "holds.",
            .unit = "bytes"},
           {.min = 0, .max = uint64_t{1} << 50});
  in.field("disk_free_min", config.disk_free_min,
           {.doc = "What the file system of dir keeps free. Below, uploads are refused with 503, "
                   "and batches wait.",
            .unit = "bytes"},
           {.min = 0, .max = uint64_t{1} << 50});
  in.field("rows_max", config.rows_max,
           {.doc = "Rows of one batch; a longer one fails.", .unit = "rows"},
           {.min = 1, .max = 10'000'000});
  in.field("batches_max", config.batches_max,
           {.doc = "Batches of one tenant that have not ended; more are refused with 429.",
            .unit = "batches"},
           {.min = 1, .max = 10'000});
  in.field(
      "running_max", config.running_max,
      {.doc = "Batches whose rows run at the same time; tenants take turns.", .unit = "batches"},
      {.min = 1, .max = 64});
  in.field("in_flight_max", config.in_flight_max,
           {.doc = "Rows of one batch in flight. 0: as many as help.", .unit = "rows"},
           {.min = 0, .max = 16384});
  in.field("window_max", config.window_max,
           {.doc = "The longest completion_window that a batch may ask for."},
           {.min = seconds(1), .max = hours(24 * 365)});
  in.field("keep", config.keep,
           {.doc = "Files without an expires_after, and batches that have ended, are deleted after "
                   "this time."},
           {.min = seconds(1), .max = hours(24 * 3650)});
  if (config.dir.empty() && in.written_keys().size() > 0) {
    in.fail("dir", "is missing: name a folder for files and answers");
  }
}

}  // namespace pdjob::batch
