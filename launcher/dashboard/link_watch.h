// LinkWatch: the KV links of a job's workers, for the dashboard. It asks the workers only while
// somebody looks, at most once a second, and answers with what it has. A worker's answer is read
// field by field, because a worker may lie. Loop-bound.
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

struct WatchedWorker {
  std::string name;
  std::string engine_id;
  net::HttpAddress address;
  std::string key;
};

// What a worker said on /pdjob/links, written anew: the known fields only. Empty: it is no such
// answer. Pure.
std::string links_of_answer(const std::string& body);

class LinkWatch {
 public:
  // `workers` returns those that can be asked now.
  LinkWatch(net::Loop& loop, std::function<std::vector<WatchedWorker>()> workers);

  // {"workers": [{"name": ..., "engine_id": ..., "links": [...]}, ...]}, from the answers of the
  // last second or so. Asks again if they are older.
  std::string look();

 private:
  void ask_next();

  net::Loop& loop_;
  const std::function<std::vector<WatchedWorker>()> workers_;
  std::unique_ptr<net::HttpClient> client_;
  Instant asked_{};
  std::deque<WatchedWorker> to_ask_;
  size_t asking_ = 0;
  std::map<std::string, std::string> links_;  // By engine id: a JSON list.
};

}  // namespace pdjob::launcher
