// SHA-256, as 64 hexadecimal digits in lower case. Pure.
#pragma once

#include <string>
#include <string_view>

namespace pdjob {

std::string sha256_of(std::string_view text);

}  // namespace pdjob
