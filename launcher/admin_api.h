// AdminApi: the launcher's own HTTP server: the dashboard, /status, /nodes, /scale and /rollout
// (text with ?as=text), /links, /requests, /history, /plan, /explain, /metrics, /metrics/all,
// /metrics/process?name=NAME, /sd, /health, /logs?process=NAME&from=BYTE, /apply, and POST /scale,
// /apply and /diff. On loopback it refuses requests that name another host; beyond, it wants a key
// over TLS. Logs and orders want the key that only the job's owner can read; on loopback, all else
// is for everybody on the machine. Loop-bound.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/address_text.h"
#include "common/crypto/job_keys.h"
#include "common/result.h"
#include "net/http/http_server.h"
#include "net/loop/loop.h"
#include "net/tls/server_tls.h"

namespace pdjob::launcher {

// The sources of its answers.
struct AdminPages {
  struct Page {
    const char* type;  // kAdminJson or kAdminText.
    std::function<std::string()> make;
  };
  // Answers that may come later.
  using TextDone = std::function<void(Result<std::string>)>;
  // Takes the body. kInvalidArgument, or kUnavailable: it cannot be done now.
  using Order = std::function<Result<std::string>(std::string_view body)>;

  std::string owner_key;
  // Its paths, for clients that ask for another one.
  const char* here =
      "/ (the dashboard) /status /nodes /scale /apply /rollout /links /requests /history /explain "
      "/plan /metrics /metrics/all /sd /health /logs?process=NAME; /status, /nodes, /scale and "
      "/rollout are text with ?as=text, /explain is JSON with ?as=json\n";
  // In place of the dashboard's, too: "/".
  std::map<std::string, Page, std::less<>> pages;    // "/status", "/status?as=text".
  std::map<std::string, Order, std::less<>> orders;  // "/scale".
  std::function<bool()> ready;
  std::function<std::string()> metrics;
  std::function<void(TextDone)> all_metrics;
  std::function<void(std::string_view process, TextDone)> process_metrics;
  std::function<std::string(const std::string& address, const std::string& scheme)> discovery_json;
  // A piece of a process's log, now or later: the number of its first byte, a line break, and the
  // text. Without `from`: the end of the log.
  std::function<void(const std::string& process, std::optional<uint64_t> from, TextDone)> log;
};
inline constexpr const char* kAdminText = "text/plain; charset=utf-8";
inline constexpr const char* kAdminJson = "application/json";

// An address beyond loopback requires these. The owner's key opens it, too.
struct AdminGuard {
  std::string key;                // Empty: nothing; requests must name this machine.
  net::ServerTls* tls = nullptr;  // Outlives the server. Null: plain HTTP.
};

class AdminApi final : net::HttpHandler {
 public:
  // `listen`: "127.0.0.1:0".
  static Result<std::unique_ptr<AdminApi>> open(net::Loop& loop, const std::string& listen,
                                                AdminPages pages, AdminGuard guard = {});
  ~AdminApi();

  // With its host as in `listen`.
  std::string address() const { return address_text(host_, server_->port()); }

 private:
  AdminApi(net::Loop& loop, std::string host, AdminPages pages, AdminGuard guard);

  // Answers a wrong key, a second later.
  void refuse(net::ExchangeId id);
  void answer_refused();
  bool lets_in(const net::HttpRequest& request) const;

  void answer_log(net::ExchangeId id, const net::HttpRequest& request);
  AdminPages::TextDone reply_with_metrics(net::ExchangeId id);
  void answer_metrics(net::ExchangeId id, const net::HttpRequest& request);
  // False: there is no such order.
  bool take_order(net::ExchangeId id, const net::HttpRequest& request);
  // False: there is no such page.
  bool answer_page(net::ExchangeId id, const net::HttpRequest& request);
  void on_request(net::ExchangeId id, net::HttpRequest& request) override;
  void on_client_gone(net::ExchangeId /*id*/) override {}

  net::Loop& loop_;
  const std::string host_;
  const AdminPages pages_;
  const AdminGuard guard_;
  const KeyCheck owner_;
  const KeyCheck visitors_;
  std::deque<std::pair<Instant, net::ExchangeId>> refused_;  // When to answer whom.
  net::TimerId refusing_{};
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace pdjob::launcher
