// A shared library that is found when the program runs: so that one build serves machines with and
// without GPUs. It stays loaded for good, for such libraries have threads of their own. Value.
#pragma once

#include <string>

#include "common/result.h"

namespace pdjob {

class DynamicLibrary {
 public:
  // `path` is what dlopen takes: a path, or a name that is searched for. kUnsupported: not there.
  static Result<DynamicLibrary> open(const std::string& path);

  // nullptr: there is no such symbol.
  void* find(const char* symbol) const;
  const std::string& path() const { return path_; }

  // Sets a pointer to the function of that name. False: it is not there.
  template <class Function>
  bool load(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(find(symbol));
    return function != nullptr;
  }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
};

}  // namespace pdjob
