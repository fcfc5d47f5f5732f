// StaticWorkers: membership for a router without a launcher. It polls each given address every
// second. A pdjob worker describes itself. Any other answer comes from a foreign engine (vLLM,
// SGLang and their like), which is used in two hops unless router.protocol says otherwise.
//
// A worker becomes a member with its first answer, a foreign engine once it is healthy. It leaves
// once its address has refused connections for a while, and is a member again when it comes back. A
// worker that connects but fails to answer, or reports that it is unhealthy, stays, because engines
// stop answering while they compute a long prompt. It gets no new requests, and its running
// requests continue. Loop-bound.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/http/http_client.h"
#include "net/loop/event_loop.h"
#include "router/config/static_worker.h"
#include "router/core/router.h"
#include "router/members/worker_description.h"

namespace pdjob::router {

class StaticWorkers {
 public:
  static constexpr Duration kPollInterval = std::chrono::seconds(1);
  static constexpr uint32_t kSilencesMax = 3;  // Failed polls in a row.

  // `key`: the key of all workers; empty: they want none.
  StaticWorkers(net::EventLoop& loop, const std::vector<StaticWorker>& workers,
                const std::string& key, const RouterConfig& config,
                std::function<void(RouterEvent)> submit);
  ~StaticWorkers();
  StaticWorkers(const StaticWorkers&) = delete;
  StaticWorkers& operator=(const StaticWorkers&) = delete;

 private:
  struct Row {
    StaticWorker asked;
    std::optional<net::WorkerEntry> entry;  // Set if it is a member.
    bool foreign = false;
    bool warned = false;  // A warning about it was logged.
    uint32_t silences = 0;
    net::TimerId timer;
  };

  // True if this address may be a pdjob worker, so its description is asked for.
  bool may_describe_itself(const Row& row) const;
  void poll(size_t row);
  using Then = std::function<void(const Result<net::HttpReply>&)>;
  void get(const net::HttpAddress& from, std::string_view target, Then then);
  // True if the worker accepted the connection, but answered late or badly.
  bool is_there(const Result<net::HttpReply>& reply) const;
  void ask(size_t row, std::string_view target,
           void (StaticWorkers::*then)(size_t, const Result<net::HttpReply>&));
  void on_description(size_t row, const Result<net::HttpReply>& reply);
  void on_health(size_t row, const Result<net::HttpReply>& reply);
  void on_models(size_t row, const Result<net::HttpReply>& reply);
  // Adds a healthy engine, once it is known how to fetch KV from it.
  void meet(size_t row, net::WorkerEntry entry);
  void on_query(size_t row, net::WorkerEntry entry, const Result<net::HttpReply>& reply);

  // Warns of each worker that the new one cannot hand over to, or take over from.
  void warn_of_pairs(const net::WorkerEntry& joined) const;
  void refuse(size_t row, const std::string& why);
  void found(size_t row, net::WorkerEntry entry);
  // Handles a failed poll. A worker that is there stays a member.
  void unwell(size_t row, bool is_there);
  void leave(size_t row);
  void poll_later(size_t row);
  void submit_members();
  void note_silence(size_t row);
  std::string unique_name(size_t row, const std::string& name) const;

  net::EventLoop& loop_;
  const Protocol protocol_;
  const std::string key_;
  const std::string key_line_;
  const std::function<void(RouterEvent)> submit_;
  std::vector<Row> rows_;
  bool somebody_answered_ = false;
  const std::unique_ptr<net::HttpClient> client_;
};

}  // namespace pdjob::router
