#include "worker/foreign/weight_calls.h"

#include <array>
#include <string_view>

#include "common/config/words.h"
#include "common/json/json_writer.h"
#include "openai/json/json_edit.h"

namespace pdjob::worker {
namespace {

constexpr size_t kAnswerBytesShown = 300;
constexpr int kStatusOk = 200;
constexpr std::string_view kSuccess = "success";

std::string escaped(const std::string& text) {
  std::string out;
  append_json_escaped(out, text);
  return out;
}

}  // namespace

WeightCalls::WeightCalls(const engine::RecipeWeights& recipe, const std::string& folder,
                         const std::string& version) {
  const Words words = {{"weights_path", escaped(folder)}, {"weights_version", escaped(version)}};
  const auto add = [&](const std::string& call, bool repeats) {
    if (!call.empty()) {
      const size_t space = call.find(' ');
      const std::string body = space == std::string::npos ? "" : call.substr(space + 1);
      calls_.push_back(
          {.path = call.substr(0, space), .body = fill_words(body, words), .repeats = repeats});
    }
  };
  add(recipe.pause, false);
  add(recipe.flush, true);
  if (!folder.empty()) {
    add(recipe.load, false);
  }
  add(recipe.resume, false);
}

const WeightCall* WeightCalls::due() const {
  return error_.empty() && next_ < calls_.size() ? &calls_[next_] : nullptr;
}

void WeightCalls::answered(int status, const std::string& body) {
  const WeightCall* const call = due();
  if (call == nullptr) {
    return;
  }
  if (succeeded(status, body)) {
    ++next_;
  } else if (!call->repeats || status == 0 || status == 404) {
    error_ = "POST " + call->path +
             (status == 0 ? ": no answer"
                          : ": status " + std::to_string(status) + ": " +
                                body.substr(0, kAnswerBytesShown));
  }
}

bool succeeded(int status, const std::string& body) {
  if (status != kStatusOk) {
    return false;
  }
  const std::array<std::string_view, 1> names{kSuccess};
  const auto answer = openai::JsonObject::scan(body, names);
  return !answer || answer->value(kSuccess) != "false";
}

}  // namespace pdjob::worker
