// The ids of files and batches: a prefix and 32 hexadecimal digits. They are also names on disk, so
// a start can tell its own files from those of strangers. Pure.
#pragma once

#include <string_view>

namespace pdjob::batch {

inline constexpr std::string_view kFileIdPrefix = "file-";
inline constexpr std::string_view kBatchIdPrefix = "batch_";

bool is_file_id(std::string_view name);
bool is_batch_id(std::string_view name);

}  // namespace pdjob::batch
