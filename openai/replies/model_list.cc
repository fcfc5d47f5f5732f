#include "openai/replies/model_list.h"

#include <algorithm>
#include <charconv>
#include <concepts>

#include "common/config/words.h"
#include "net/control/message.h"
#include "openai/json/json_edit.h"

namespace pdjob::openai {
namespace {

void take_count(std::string_view value, std::unsigned_integral auto& number) {
  std::from_chars(value.data(), value.data() + value.size(), number);
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= net::kAdapterNameBytesMax &&
         std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

}  // namespace

ListedModels parse_model_list(const std::string& body, std::string_view naming) {
  static constexpr std::string_view kData = "data";
  static constexpr std::string_view kNames[] = {"id", "parent", "created", "max_model_len"};
  ListedModels listed;
  const auto list = JsonObject::scan(body, {&kData, 1});
  if (!list) {
    return listed;
  }
  size_t models = 0;
  for (const std::string& item : json_array_items(list->value(kData))) {
    const auto model = JsonObject::scan(item, kNames);
    if (!model) {
      return {};
    }
    const std::string id = json_string(model->value("id")).value_or("");
    const std::string parent = json_string(model->value("parent")).value_or("");
    if (!parent.empty() && parent != id) {
      std::string name =
          naming.empty() ? id : fill_words(naming, {{"adapter", id}, {"model", parent}});
      const bool fits = is_name(name) && listed.adapters.size() < net::kAdaptersMax;
      if (fits) {
        listed.adapters.push_back(std::move(name));
      }
      listed.adapters_left_out += fits ? 0 : 1;
      continue;
    }
    listed.id = ++models == 1 ? id : "";
    take_count(model->value("created"), listed.created);
    take_count(model->value("max_model_len"), listed.context_max);
  }
  if (models != 1) {
    listed.created = listed.context_max = 0;
  }
  std::ranges::sort(listed.adapters);
  const auto again = std::ranges::unique(listed.adapters);
  listed.adapters.erase(again.begin(), again.end());
  return listed;
}

}  // namespace pdjob::openai
