// JsonFields: reads the fields of one flat JSON object that pdjob wrote (a process spec, a state
// file), by name and type. It keeps the first error: a field that is missing or wrong. Value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"

namespace pdjob {

class JsonFields {
 public:
  // `what` names the text in errors.
  JsonFields(const std::string& what, const std::string& text);
  ~JsonFields();
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  void take(const char* key, std::string& value);
  void take(const char* key, int& value);
  void take(const char* key, int64_t& value);

  // kInvalidArgument names the first error.
  Status status() const;

 private:
  struct State;
  template <class T>
  void take_integer(const char* key, T& value);

  std::unique_ptr<State> state_;
};

}  // namespace pdjob
