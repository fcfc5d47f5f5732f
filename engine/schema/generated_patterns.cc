#include "engine/schema/generated_patterns.h"

#include <optional>
#include <utility>

namespace pdjob::engine {
namespace {

constexpr std::pair<std::string_view, std::string_view> kForms[] = {
    // Zod: duration.
    {R"(^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$)",
     R"(^P(\d+W|\d+Y(\d+M)?(\d+D)?|\d+M(\d+D)?|\d+D(T\d+H(\d+M)?)?|T(\d+H(\d+M)?(\d+S)?|\d+M(\d+S)?|\d+S))$)"},
    // Zod 4.0: email.
    {R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)",
     R"(^[A-Za-z0-9_'+-]+(\.[A-Za-z0-9_'+-]+)*[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z]{2,}$)"},
    // Zod: hostname.
    {R"(^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$)",
     R"(^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?){0,2}$)"},
    // Zod: emoji.
    {R"(^(?=[\s\S]*[\p{Extended_Pictographic}\p{Regional_Indicator}\u20E3])[\p{Extended_Pictographic}\p{Emoji_Component}]+$)",
     R"(^[\u{1F300}-\u{1F320}\u{1F400}-\u{1F4D2}\u{1F600}-\u{1F64F}]+$)"},
    {R"(^(\p{Extended_Pictographic}|\p{Emoji_Component})+$)",
     R"(^[\u{1F300}-\u{1F320}\u{1F400}-\u{1F4D2}\u{1F600}-\u{1F64F}]+$)"},
};

// The number after `before`, such as the 8 of "\d{0,8}".
std::optional<std::string> number_after(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view rest = text.substr(at + before.size());
  const size_t end = rest.find('}');
  if (end == 0 || end > 6 ||
      rest.substr(0, end).find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::string(rest.substr(0, end));
}

// Pydantic's Decimal, with its digits and decimal places.
std::optional<std::string> decimal(std::string_view pattern) {
  constexpr std::string_view kHead = R"(^(?!^[-+.]*$)[+-]?0*)";
  if (!pattern.starts_with(kHead)) {
    return std::nullopt;
  }
  const std::string_view tail = pattern.substr(kHead.size());
  const auto places = number_after(tail, R"(\.\d{0,)");
  const auto loose_places = number_after(tail, R"(\.?\d{0,)");
  const auto digits = number_after(tail, R"((?:\d{0,)");
  if (tail != R"(\d*\.?\d*$)" && !digits && !loose_places) {
    return std::nullopt;
  }
  const std::string whole =
      !digits || *digits != "0" ? R"(\d{1,)" + digits.value_or("20") + "}" : "0";
  const std::string most = loose_places.value_or(digits ? places.value_or("0") : "20");
  return "^-?" + whole + (most == "0" ? "$" : R"((\.\d{1,)" + most + "})?$");
}

}  // namespace

std::string followed_form(std::string_view pattern) {
  for (const auto& [generated, followed] : kForms) {
    if (pattern == generated) {
      return std::string(followed);
    }
  }
  return decimal(pattern).value_or(std::string(pattern));
}

}  // namespace pdjob::engine
