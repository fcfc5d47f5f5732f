// WeightCalls: the calls that an engine of another make gets when its weights change, one after the
// other: pause, flush, load, resume (engine::RecipeWeights). Nothing of the old weights is left
// when the new ones are loaded: no request, and no kept prompt. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/recipes/engine_recipe.h"

namespace pdjob::worker {

struct WeightCall {
  std::string path;      // Of a POST.
  std::string body;      // JSON; empty: none.
  bool repeats = false;  // It is repeated until it succeeds.
  friend bool operator==(const WeightCall&, const WeightCall&) = default;
};

class WeightCalls {
 public:
  // An empty `folder`: the engine keeps its weights, and drops its kept prompts.
  WeightCalls(const engine::RecipeWeights& recipe, const std::string& folder,
              const std::string& version);

  // The call that is due. Null: all are done, or one has failed.
  const WeightCall* due() const;
  // Its answer. `status` 0: there is none.
  void answered(int status, const std::string& body);
  // Why the engine must not serve. Empty: no call has failed.
  const std::string& error() const { return error_; }

 private:
  std::vector<WeightCall> calls_;
  size_t next_ = 0;
  std::string error_;
};

// An answer without a member `success`, or with one that is true.
bool succeeded(int status, const std::string& body);

}  // namespace pdjob::worker
