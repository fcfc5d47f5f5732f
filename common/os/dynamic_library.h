// A shared library that is loaded at run time, so that one build serves machines with and without
// GPUs. It is never unloaded, because such libraries have threads of their own. Value.
#pragma once

#include <string>

#include "common/result.h"

namespace pdjob {

class DynamicLibrary {
 public:
  // `path` is what dlopen takes: a path, or a name to search for. kUnsupported: it cannot be
  // loaded.
  static Result<DynamicLibrary> open(const std::string& path);

  // Returns nullptr if there is no such symbol.
  void* find(const char* symbol) const;
  const std::string& path() const { return path_; }

  // Points `function` at the function of that name. Returns false if there is none.
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
