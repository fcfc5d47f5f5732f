// The words after the status of a reply. Pure.
#pragma once

#include <string_view>

namespace pdjob::net {

std::string_view reason_phrase(int status);

}  // namespace pdjob::net
