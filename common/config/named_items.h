// named_items(): a mapping of a file whose keys the user chooses, as a list of values that have a
// `name`. The values that are in the list already are defaults for those of the same name, and what
// a writing reader writes. Loop-bound.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/config_reader.h"

namespace pdjob {

// `body(item, section)` declares the keys of each; the list has the ones before it, and it.
template <class Item, class Body>
void named_items(ConfigReader& in, std::string_view key, FieldText text, std::vector<Item>& items,
                 const Body& body) {
  std::vector<std::string> names;
  std::map<std::string, Item> known;
  for (Item& item : std::exchange(items, {})) {
    names.push_back(item.name);
    known.emplace(names.back(), std::move(item));
  }
  in.named_sections(
      key, text,
      [&](const std::string& name, ConfigReader& section) {
        const auto there = known.find(name);
        Item& item = items.emplace_back(there == known.end() ? Item{} : there->second);
        item.name = name;
        body(item, section);
      },
      names);
}

}  // namespace pdjob
