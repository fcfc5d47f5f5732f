// Folders and files that hold what clients sent. Only their owner may read them, and nobody else
// may have put them there, or a link in their place.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace pdjob {

// Makes the folder, and those above it, for the owner only. kInvalidArgument: it is another user's,
// or others may write to it. A folder that was there keeps its rights.
Status make_own_folder(const std::string& path);
// Makes an empty file of a database for the owner only, unless it is there. kInvalidArgument: it,
// or one that SQLite keeps beside it, is a link, another user's or not a regular file; or others
// may exchange files in its folder.
Status make_own_file(const std::string& path);

// Writes the whole file for the owner only, or nothing. kYes: it survives a power cut.
enum class Durable { kNo, kYes };
Status write_own_text(const std::string& path, std::string_view text,
                      Durable durable = Durable::kNo);

}  // namespace pdjob
