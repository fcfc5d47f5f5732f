#include "net/outbound/outbound_client.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <curl/curl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/check.h"
#include "net/loop/socket.h"

namespace pdjob::net {
namespace {

struct EasyDelete {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct MultiDelete {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

long in_ms(Duration duration) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return static_cast<long>(std::max<int64_t>(ms, 1));  // 0 means the default.
}

// libcurl wants to be told of a socket for as long as it is ready, but EventLoop is edge-triggered.
// So its sockets are in an epoll of their own, which EventLoop watches.
class Sockets {
 public:
  Sockets() : epoll_(epoll_create1(EPOLL_CLOEXEC)) { PDJOB_CHECK(epoll_.valid()); }

  int fd() const { return epoll_.get(); }
  void want(int socket, uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = socket}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event) != 0) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event);
    }
  }
  void drop(int socket) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr); }
  // Returns how many of `ready` are set.
  template <size_t N>
  int wait(std::array<epoll_event, N>& ready) const {
    return epoll_wait(epoll_.get(), ready.data(), N, 0);
  }

 private:
  Fd epoll_;
};

class CurlClient final : public OutboundClient, FdHandler {
 public:
  CurlClient(EventLoop& loop, std::string ca_file)
      : loop_(loop), ca_file_(std::move(ca_file)), multi_(curl_multi_init()) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    PDJOB_CHECK(ready == CURLE_OK && multi_ != nullptr);
    curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETFUNCTION, &CurlClient::socket_changed);
    curl_multi_setopt(multi_.get(), CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_.get(), CURLMOPT_TIMERFUNCTION, &CurlClient::timer_changed);
    curl_multi_setopt(multi_.get(), CURLMOPT_TIMERDATA, this);
    PDJOB_CHECK(loop_.watch(sockets_.fd(), EPOLLIN, *this).has_value());
  }
  ~CurlClient() override {
    loop_.cancel(timer_);
    loop_.cancel(again_);
    loop_.unwatch(sockets_.fd());
    for (auto& [easy, running] : running_) {
      curl_multi_remove_handle(multi_.get(), easy);
    }
  }
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;

  OutboundId post(OutboundCall call, Then then) override {
    auto running = std::make_unique<Running>();
    running->id = OutboundId{++calls_made_};
    running->call = std::move(call);
    running->then = std::move(then);
    running->easy.reset(curl_easy_init());
    CURL* const easy = running->easy.get();
    PDJOB_CHECK(easy != nullptr);
    set_up(*running);
    const OutboundId id = running->id;
    easy_of_.emplace(id, easy);
    running_.emplace(easy, std::move(running));
    // Everything else happens in later turns: libcurl asks for a timer.
    PDJOB_CHECK(curl_multi_add_handle(multi_.get(), easy) == CURLM_OK);
    return id;
  }

  void cancel(OutboundId id) override {
    if (const auto found = easy_of_.find(id); found != easy_of_.end()) {
      curl_multi_remove_handle(multi_.get(), found->second);
      running_.erase(found->second);
      easy_of_.erase(found);
    }
  }

 private:
  struct Running {
    OutboundId id;
    OutboundCall call;
    Then then;
    std::unique_ptr<CURL, EasyDelete> easy;
    std::unique_ptr<curl_slist, ListDelete> headers;
    std::string url;
    std::string body;
    std::array<char, CURL_ERROR_SIZE> error{};
    bool refused = false;   // By may_connect.
    bool too_long = false;  // The reply.
  };

  void set_up(Running& running) const {
    CURL* const easy = running.easy.get();
    running.url = running.call.to.to_string();
    // Without "Expect", which costs a round trip.
    curl_slist* list = curl_slist_append(nullptr, "Expect:");
    for (const std::string& header : running.call.headers) {
      list = curl_slist_append(list, header.c_str());
    }
    running.headers.reset(list);
    const auto set = [easy](CURLoption option, auto value) {
      PDJOB_CHECK(curl_easy_setopt(easy, option, value) == CURLE_OK, static_cast<int>(option));
    };
    set(CURLOPT_URL, running.url.c_str());
    set(CURLOPT_ERRORBUFFER, running.error.data());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROXY, "");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDS, running.call.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(running.call.body.size()));
    set(CURLOPT_HTTPHEADER, running.headers.get());
    set(CURLOPT_CONNECTTIMEOUT_MS, in_ms(running.call.connect_timeout));
    set(CURLOPT_TIMEOUT_MS, in_ms(running.call.timeout));
    set(CURLOPT_WRITEFUNCTION, &CurlClient::body_arrived);
    set(CURLOPT_WRITEDATA, &running);
    set(CURLOPT_OPENSOCKETFUNCTION, &CurlClient::open_socket);
    set(CURLOPT_OPENSOCKETDATA, &running);
    if (running.call.peer == Peer::kOfThisMachine) {
      set(CURLOPT_SSL_VERIFYPEER, 0L);
      set(CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (!ca_file_.empty()) {
      set(CURLOPT_CAINFO, ca_file_.c_str());
    }
  }

  // --- called by libcurl

  static size_t body_arrived(char* data, size_t /*one*/, size_t size, void* of) {
    Running& running = *static_cast<Running*>(of);
    const size_t room = running.call.reply_bytes_max - running.body.size();
    running.body.append(data, std::min(size, room));
    running.too_long = size > room;
    return running.too_long ? 0 : size;  // 0 ends the call.
  }

  static curl_socket_t open_socket(void* of, curlsocktype /*purpose*/, curl_sockaddr* address) {
    Running& running = *static_cast<Running*>(of);
    if (running.call.may_connect) {
      const auto ip = ip_of(address->addr);
      if (!ip || !running.call.may_connect(*ip)) {
        running.refused = true;
        return CURL_SOCKET_BAD;
      }
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  static int socket_changed(CURL* /*easy*/, curl_socket_t socket, int what, void* of,
                            void* /*socket_data*/) {
    CurlClient& client = *static_cast<CurlClient*>(of);
    if (what == CURL_POLL_REMOVE) {
      client.sockets_.drop(socket);
    } else {
      client.sockets_.want(socket, ((what & CURL_POLL_IN) != 0 ? uint32_t{EPOLLIN} : 0U) |
                                       ((what & CURL_POLL_OUT) != 0 ? uint32_t{EPOLLOUT} : 0U));
    }
    return 0;
  }

  static int timer_changed(CURLM* /*multi*/, long timeout_ms, void* of) {
    CurlClient& client = *static_cast<CurlClient*>(of);
    client.loop_.cancel(client.timer_);
    if (timeout_ms >= 0) {
      client.timer_ =
          client.loop_.call_at(client.loop_.now() + std::chrono::milliseconds(timeout_ms),
                               [&client] { client.act(CURL_SOCKET_TIMEOUT, 0); });
    }
    return 0;
  }

  // --- called by the loop

  void on_ready(uint32_t /*epoll_events*/) override {
    constexpr int kRoundsMax = 16;  // So that a fast peer does not keep the loop.
    std::array<epoll_event, 16> ready;
    for (int round = 0; round < kRoundsMax; ++round) {
      const int count = sockets_.wait(ready);
      if (count <= 0) {
        return;
      }
      for (int i = 0; i < count; ++i) {
        const uint32_t events = ready[static_cast<size_t>(i)].events;
        const int what = ((events & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                         ((events & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                         ((events & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        act(ready[static_cast<size_t>(i)].data.fd, what);
      }
    }
    loop_.cancel(again_);
    again_ = loop_.call_at(loop_.now(), [this] { on_ready(EPOLLIN); });
  }

  void act(curl_socket_t socket, int what) {
    int left = 0;
    curl_multi_socket_action(multi_.get(), socket, what, &left);
    int queued = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &queued)) {
      if (message->msg == CURLMSG_DONE) {
        end(message->easy_handle, message->data.result);
      }
    }
  }

  void end(CURL* easy, CURLcode code) {
    curl_multi_remove_handle(multi_.get(), easy);
    const auto running = std::move(running_.extract(easy).mapped());
    easy_of_.erase(running->id);
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK || status > 0) {
      running->then(OutboundReply{.status = static_cast<int>(status),
                                  .headers = headers_of(easy),
                                  .body = std::move(running->body),
                                  .complete = code == CURLE_OK,
                                  .fault = fault_of(*running, code)});
    } else {
      running->then(fault_of(*running, code));
    }
  }

  static std::vector<std::pair<std::string, std::string>> headers_of(CURL* easy) {
    std::vector<std::pair<std::string, std::string>> headers;
    curl_header* at = nullptr;
    while ((at = curl_easy_nextheader(easy, CURLH_HEADER, -1, at)) != nullptr) {
      headers.emplace_back(at->name, at->value);
    }
    return headers;
  }

  static Error fault_of(const Running& running, CURLcode code) {
    if (running.refused) {
      return {ErrorCode::kUnavailable,
              "the address of " + running.call.to.address.host + " is not allowed"};
    }
    if (running.too_long) {
      return {ErrorCode::kUnsupported, "the reply is longer than " +
                                           std::to_string(running.call.reply_bytes_max) + " bytes"};
    }
    return {code_of(running.easy.get(), code), running.error.front() != 0
                                                   ? std::string(running.error.data())
                                                   : curl_easy_strerror(code)};
  }

  static ErrorCode code_of(CURL* easy, CURLcode code) {
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
      return ErrorCode::kUnsupported;
    }
    long sent = 0;
    curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
    return code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout
           : sent == 0                      ? ErrorCode::kUnavailable
                                            : ErrorCode::kPeerFailed;
  }

  EventLoop& loop_;
  const std::string ca_file_;
  Sockets sockets_;
  std::unique_ptr<CURLM, MultiDelete> multi_;
  std::map<CURL*, std::unique_ptr<Running>> running_;
  std::map<OutboundId, CURL*> easy_of_;
  uint64_t calls_made_ = 0;
  TimerId timer_;
  TimerId again_;
};

}  // namespace

std::string_view OutboundReply::header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [&](const auto& header) {
    return std::ranges::equal(header.first, name, {}, &lower, &lower);
  });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::unique_ptr<OutboundClient> OutboundClient::create(EventLoop& loop,
                                                       const std::string& ca_file) {
  return std::make_unique<CurlClient>(loop, ca_file);
}

}  // namespace pdjob::net
