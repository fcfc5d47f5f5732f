// Writes a network address as URLs and people do. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace pdjob {

// "10.0.0.1:80". An address of IPv6 gets brackets: "[::1]:80".
std::string address_text(const std::string& host, uint16_t port);
// The same, for a port that is a word: "*", "any".
std::string address_text(const std::string& host, const std::string& port);

}  // namespace pdjob
