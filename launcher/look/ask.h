// HTTP requests of the commands that look at a running job.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {

struct AskedProcess {
  net::HttpAddress address;
  std::string key;  // Its API key; empty: it needs none.
};

// GETs the same page from all processes at once, and returns the bodies in order. A process gets an
// error in its place if its answer takes more than a few seconds, or is not a 200.
std::vector<Result<std::string>> ask_all(const std::vector<AskedProcess>& processes,
                                         const std::string& target);

// Sends one request. The answer may have any status. kUnavailable, kTimeout: there was none.
struct Order {
  const char* method = "GET";
  std::string target;
  std::string body;
};
Result<net::HttpReply> send_order(const AskedProcess& process, const Order& order);

}  // namespace pdjob::launcher
