#include "batch/catalog/api_id.h"

#include <algorithm>
#include <cstddef>

namespace pdjob::batch {
namespace {

constexpr size_t kDigits = 32;

bool is_id(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kHex = "0123456789abcdef";
  return name.size() == prefix.size() + kDigits && name.starts_with(prefix) &&
         std::ranges::all_of(name.substr(prefix.size()), [&](char digit) {
           return kHex.find(digit) != std::string_view::npos;
         });
}

}  // namespace

bool is_file_id(std::string_view name) { return is_id(name, kFileIdPrefix); }
bool is_batch_id(std::string_view name) { return is_id(name, kBatchIdPrefix); }

}  // namespace pdjob::batch
