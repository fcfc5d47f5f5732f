#include "router/relay/client_sinks.h"

#include "common/limits.h"
#include "net/http/http_parser.h"

namespace pdjob::router {

class ClientSinks::Sink final : public ReplySink {
 public:
  Sink(ClientSinks& sinks, net::ExchangeId client)
      : sinks_(sinks), server_(sinks.server_), client_(client) {}
  ~Sink() override { sinks_.requests_.erase(client_); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers) override {
    server_.reply(client_, status, content_type, body, headers);
  }

  void interim(std::string_view header_lines) override {
    if (server_.bytes_queued(client_) <= limits::kHttpSendQueueBytesMax) {
      server_.interim(client_, header_lines);
    }
  }

  void begin(const net::HttpReplyHead& head, WorkerId /*writer*/,
             const ReplyMarks& marks) override {
    const bool old_client = server_.is_http_1_0(client_);
    dechunk_ = old_client && head.framing == net::BodyFraming::kChunked;
    keep_alive_ = !old_client && head.framing != net::BodyFraming::kUntilClose;
    server_.begin_raw(
        client_, reply_head(head, marks,
                            keep_alive_ ? ReplyFraming::kAsReceived : ReplyFraming::kUntilClose));
  }

  bool write(std::string_view raw) override {
    if (dechunk_) {
      sinks_.dechunked_.clear();
      decoder_.decode(raw, sinks_.dechunked_);
      raw = sinks_.dechunked_;
    }
    server_.write_raw(client_, raw);
    return server_.bytes_queued(client_) <= limits::kHttpSendQueueBytesMax;
  }

  void change_writer() override {}
  void end() override { server_.end_raw(client_, keep_alive_); }
  void abort() override { server_.abort(client_); }
  bool takes_chunks() const override { return !server_.is_http_1_0(client_); }
  void hold_more(size_t bytes) override { server_.hold_more(client_, bytes); }
  void body_freed() override { server_.body_freed(client_); }

 private:
  ClientSinks& sinks_;
  net::HttpServer& server_;
  const net::ExchangeId client_;
  bool keep_alive_ = true;
  bool dechunk_ = false;
  net::ChunkDecoder decoder_;
};

std::unique_ptr<ReplySink> ClientSinks::open(net::ExchangeId client, RequestId request) {
  requests_[client] = request;
  return std::make_unique<Sink>(*this, client);
}

std::optional<RequestId> ClientSinks::find(net::ExchangeId client) const {
  const auto found = requests_.find(client);
  return found == requests_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace pdjob::router
