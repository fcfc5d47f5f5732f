// Files whose texts are part of the program, because one binary travels to every node. Their rows
// are made by cmake/shipped_recipes.cmake and cmake/shipped_texts.cmake. Pure.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob {

struct ShippedFile {
  std::string_view name;
  std::string_view text;
};

// Null: there is no such file.
inline const ShippedFile* find_shipped(std::span<const ShippedFile> files, std::string_view name) {
  const auto found = std::ranges::find(files, name, &ShippedFile::name);
  return found == files.end() ? nullptr : &*found;
}

inline std::vector<std::string> shipped_names(std::span<const ShippedFile> files) {
  std::vector<std::string> names;
  for (const ShippedFile& file : files) {
    names.emplace_back(file.name);
  }
  return names;
}

}  // namespace pdjob
