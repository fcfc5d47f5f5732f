#include "common/json/json_fields.h"

#include <limits>

#include <nlohmann/json.hpp>

namespace pdjob {

using Json = nlohmann::json;

struct JsonFields::State {
  std::string what;
  Json json;
  std::string wrong;

  const Json* find(const char* key, bool (Json::*is)() const noexcept) {
    const auto found = json.find(key);
    if (found != json.end() && ((*found).*is)()) {
      return &*found;
    }
    fail(key);
    return nullptr;
  }
  void fail(const char* key) {
    if (wrong.empty()) {
      wrong = std::string("bad or missing ") + key;
    }
  }
};

JsonFields::JsonFields(const std::string& what, const std::string& text)
    : state_(std::make_unique<State>()) {
  state_->what = what;
  state_->json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state_->json.is_object()) {
    state_->wrong = "not a JSON object";
    state_->json = Json::object();
  }
}

JsonFields::~JsonFields() = default;

void JsonFields::take(const char* key, std::string& value) {
  if (const Json* found = state_->find(key, &Json::is_string)) {
    value = *found->get_ptr<const std::string*>();
  }
}

template <class T>
void JsonFields::take_integer(const char* key, T& value) {
  const Json* found = state_->find(key, &Json::is_number_integer);
  if (found == nullptr) {
    return;
  }
  const auto wide = found->get<int64_t>();
  if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max()) {
    state_->fail(key);
    return;
  }
  value = static_cast<T>(wide);
}

void JsonFields::take(const char* key, int& value) { take_integer(key, value); }
void JsonFields::take(const char* key, int64_t& value) { take_integer(key, value); }

Status JsonFields::status() const {
  if (state_->wrong.empty()) {
    return ok();
  }
  return Error{ErrorCode::kInvalidArgument, state_->what + ": " + state_->wrong};
}

}  // namespace pdjob
