// What the commands that look at a running job ask its processes, by HTTP.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "net/http_client.h"

namespace pdjob::launcher {

struct AskedProcess {
  net::HttpAddress address;
  std::string key;  // What it wants; empty: nothing.
};

// GET of the same page of all of them at once; the bodies in order. Who does not answer in a few
// seconds, or not with 200, is an error of its own.
std::vector<Result<std::string>> ask_all(const std::vector<AskedProcess>& processes,
                                         const std::string& target);

}  // namespace pdjob::launcher
