// Text of another process, for a person's terminal. Pure.
#pragma once

#include <string>

namespace pdjob::launcher {

// The same text with `?` for each byte of a character that steers terminals (escape sequences).
// Lines and tabs stay, and so does the text's size.
std::string plain_text(std::string text);

}  // namespace pdjob::launcher
