// JsonFields: the fields of one flat JSON object of our own making (a process spec, a state file),
// taken by name and type. The first that is missing or wrong is remembered. Value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"

namespace pdjob::net {

class JsonFields {
 public:
  // `what` is what errors call the text.
  JsonFields(const std::string& what, const std::string& text);
  ~JsonFields();
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;

  void take(const char* key, std::string& value);
  void take(const char* key, int& value);
  void take(const char* key, int64_t& value);
  void take(const char* key, uint16_t& value);

  // kInvalidArgument, naming what was wrong first.
  Status status() const;

 private:
  struct State;
  template <class T>
  void take_integer(const char* key, T& value);

  std::unique_ptr<State> state_;
};

}  // namespace pdjob::net
