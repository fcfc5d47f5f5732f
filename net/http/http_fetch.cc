// fetch() of http_client.h: one whole small exchange, on top of HttpClient's interface.
#include <algorithm>
#include <memory>
#include <utility>

#include "net/http/http_client.h"
#include "net/http/http_parser.h"

namespace pdjob::net {
namespace {

class Fetch final : public HttpCallHandler {
 public:
  Fetch(Loop& loop, HttpClient& client, size_t body_bytes_max,
        std::function<void(Result<HttpReply>)> then)
      : loop_(loop), client_(client), body_bytes_max_(body_bytes_max), then_(std::move(then)) {}

  // This timer keeps the object until finish().
  void kept_by(TimerId timer) { keeper_ = timer; }

 private:
  void on_head(CallId, const HttpReplyHead& head) override {
    reply_.status = head.status;
    chunked_ = head.framing == BodyFraming::kChunked;
  }

  void on_body(CallId id, std::string_view raw) override {
    if (chunked_) {
      chunks_.decode(raw, reply_.body);
    } else {
      reply_.body.append(raw);
    }
    if (reply_.body.size() > body_bytes_max_) {
      client_.cancel(id);
      finish(Error{ErrorCode::kCorrupt, "the reply is larger than expected"});
    }
  }

  void on_end(CallId) override { finish(std::move(reply_)); }
  void on_error(CallId, const Error& error) override { finish(error); }

  void finish(Result<HttpReply> result) {
    const auto then = std::move(then_);
    loop_.cancel(keeper_);  // Destroys this object.
    then(std::move(result));
  }

  Loop& loop_;
  HttpClient& client_;
  const size_t body_bytes_max_;
  std::function<void(Result<HttpReply>)> then_;
  TimerId keeper_{};
  HttpReply reply_;
  bool chunked_ = false;
  ChunkDecoder chunks_;
};

}  // namespace

void fetch(Loop& loop, HttpClient& client, HttpCall call, size_t body_bytes_max,
           std::function<void(Result<HttpReply>)> then) {
  // A timer that never fires owns the exchange. So it ends with the exchange, or with the loop if
  // the client is destroyed first.
  auto exchange = std::make_shared<Fetch>(loop, client, body_bytes_max, std::move(then));
  exchange->kept_by(loop.call_at(kNever, [exchange] {}));
  call.total_timeout =
      std::min(call.total_timeout, call.connect_timeout + call.head_timeout + call.idle_timeout);
  client.start(std::move(call), *exchange);
}

}  // namespace pdjob::net
