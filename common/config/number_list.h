// Lists of numbers in the form that the kernel uses for CPUs: "0-3,8". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdjob {

inline constexpr uint32_t kListedNumbersMax = 1U << 16U;

using NumberList = std::vector<uint32_t>;  // In ascending order, each once.

// Nothing: the text is not of that form, or has a number that is not below kListedNumbersMax.
std::optional<NumberList> parse_number_list(std::string_view text);
std::string number_list_text(const NumberList& numbers);

}  // namespace pdjob
