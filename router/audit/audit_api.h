// AuditApi copies the answers that are audited, computes them again when there is time, and says
// what came of it. Loop-bound.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "router/audit/audits.h"
#include "router/relay/relay_api.h"
#include "router/relay/reply_sink.h"

namespace pdjob::router {

class AuditApi {
 public:
  AuditApi(net::Loop& loop, RelayApi& relay, const AuditConfig& config);
  ~AuditApi();
  AuditApi(const AuditApi&) = delete;
  AuditApi& operator=(const AuditApi&) = delete;

  // Returns the sink of the request: another one before `sink`, if its answer is to be audited.
  std::unique_ptr<ReplySink> watch(const net::HttpRequest& request, const RequestBody& body,
                                   std::unique_ptr<ReplySink> sink);

 private:
  void take(Audited audited);
  void run_next();
  void run(Audited audited);
  void end(const Audited& audited, int status, const std::string& answer);

  net::Loop& loop_;
  RelayApi& relay_;
  Audits audits_;
  std::vector<PairAccused> accused_;  // To be told to the core.
  net::TimerId timer_{};
};

}  // namespace pdjob::router
