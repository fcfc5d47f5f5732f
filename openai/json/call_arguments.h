// The arguments of a call in a chat's history. Models and clients write some that are not JSON, but
// chat templates read them as an object. Pure.
#pragma once

#include <string>

namespace pdjob::openai {

// Returns JSON of an object: `arguments` as they are, if they are one. Blank ones become "{}". If
// they were cut, open strings and brackets are closed, and a last member that is not whole goes.
// Other text becomes the member "arguments".
std::string readable_arguments(std::string arguments);

}  // namespace pdjob::openai
