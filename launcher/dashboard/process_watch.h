// ProcessWatch: a page that processes of a job serve to its launcher, for the dashboard: the KV
// links of its workers, the timings of its routers. It asks them only while somebody looks, at most
// once a second, and answers with what it has. An answer is read field by field, because a process
// may lie. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/time.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"

namespace pdjob::launcher {

struct WatchedProcess {
  std::string name;
  std::string engine_id;
  net::HttpAddress address;
  std::string key;
};

// Writes a worker's answer on /pdjob/links anew, with the known fields only. Returns an empty text
// if `body` is no such answer. Pure.
std::string links_of_answer(const std::string& body);
// The same of a router's answer on /pdjob/timings.
std::string requests_of_answer(const std::string& body);

// The question to each process, and the words of the page that is made of the answers.
struct WatchedPage {
  const char* target;
  std::string (*read)(const std::string& body);
  const char* processes;
  const char* items;
};
inline constexpr WatchedPage kLinksPage{"/pdjob/links", links_of_answer, "workers", "links"};
inline constexpr WatchedPage kRequestsPage{"/pdjob/timings", requests_of_answer, "routers",
                                           "requests"};

class ProcessWatch {
 public:
  // `processes` returns those that can be asked now.
  ProcessWatch(net::Loop& loop, const WatchedPage& page,
               std::function<std::vector<WatchedProcess>()> processes);

  // {"workers": [{"name": ..., "engine_id": ..., "links": [...]}, ...]}, from the answers of the
  // last second or so. Asks again if they are older.
  std::string look();

 private:
  void ask_next();

  net::Loop& loop_;
  const WatchedPage page_;
  const std::function<std::vector<WatchedProcess>()> processes_;
  std::unique_ptr<net::HttpClient> client_;
  Instant asked_{};
  std::deque<WatchedProcess> to_ask_;
  size_t asking_ = 0;
  std::map<std::string, std::string> answers_;  // By engine id: a JSON list.
};

}  // namespace pdjob::launcher
