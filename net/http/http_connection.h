// HttpConnection: one client of an HttpServer. It reads requests from its socket, handles one
// exchange at a time in order, and sends the replies. It reports everything to its owner, which
// knows the ids and handlers. Loop-bound.
//
//   kHead ──> kBody ─┬──────────────> kReply ──> kHead (keep-alive) ... ──> kLinger ──> kClosed
//     ├──────────────│────────────────^
//     │              └─> kUnpack ─────┤
//     └───> kStream ──────────────────┘
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/time.h"
#include "net/http/held_bytes.h"
#include "net/http/http_parser.h"
#include "net/http/http_server.h"
#include "net/http/request_intake.h"
#include "net/loop/loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

class HttpConnection final : public FdHandler {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  class Owner {
   public:
    // These five may run a handler's code. reply(), write() and similar functions never call them.
    virtual std::optional<EarlyReply> on_head(HttpRequest& request) = 0;
    virtual void on_request(HttpConnection& connection, HttpRequest& request) = 0;
    virtual void on_body(HttpConnection& connection, std::string_view bytes, BodyPart part) = 0;
    virtual void on_client_gone(HttpConnection& connection) = 0;
    virtual void on_writable(HttpConnection& connection) = 0;
    // The reply is complete, or abort() cut it.
    virtual void on_reply_ended(HttpConnection& connection) = 0;

    // Calls attend() at the end of this turn. The connection asks again only after that.
    virtual void attend_soon(HttpConnection& connection) = 0;

    virtual Loop& loop() = 0;
    virtual const HttpServerOptions& options() const = 0;
    // For one receive at a time; shared by all connections.
    virtual std::span<char> receive_buffer() = 0;
    virtual HeldBytes& held_bytes() = 0;

   protected:
    ~Owner() = default;
  };

  HttpConnection(Owner& owner, std::unique_ptr<Stream> stream);
  ~HttpConnection() = default;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // False: the connection is unusable.
  bool watch();
  void on_ready(uint32_t epoll_events) override;
  // The call that attend_soon() asked for.
  void attend() {
    attention_asked_ = false;
    go_on();
  }
  // Ends an exchange or a connection that took too long.
  void check_deadline(Instant now);
  // Closes after the current exchange, or now if there is none.
  void drain();
  bool closed() const { return phase_ == Phase::kClosed; }
  // It has no request, also after a look at what has arrived, or only a part of a head. Then it may
  // be closed to make room.
  bool may_be_closed();
  bool amid_body() const { return phase_ == Phase::kBody; }
  // Requires: there is no exchange.
  void evict();

  // For the current exchange, as in HttpServer.
  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers);
  void begin(int status, std::string_view content_type, const Headers& headers);
  void write(std::string_view bytes, std::string_view extension);
  void end();
  void interim(std::string_view header_lines) {
    if (phase_ == Phase::kReply && form_ == ReplyForm::kNone && !head_.is_http_1_0) {
      send({"HTTP/1.1 103 Early Hints\r\n", header_lines, "\r\n"});
    }
  }
  void begin_raw(std::string_view head);
  void write_raw(std::string_view bytes);
  void end_raw(bool keep_alive);
  void abort();
  void pause_body();
  void resume_body();
  bool is_http_1_0() const { return head_.is_http_1_0; }
  size_t bytes_queued() const { return queue_.size(); }
  void hold_more(size_t bytes) { body_.hold(bytes); }
  void body_freed() { body_.release(); }

 private:
  enum class Phase {
    kHead,    // Waiting for a request, or inside its head.
    kBody,    // Inside its body, which may be skipped.
    kUnpack,  // The body is whole, and is being decoded.
    kStream,  // The handler has the request, and the body still arrives.
    kReply,   // The handler has the whole request.
    // Our last byte is sent. We read until the client closes, because a reset could destroy what it
    // has not read yet.
    kLinger,
    kClosed,
  };
  enum class ReplyForm { kNone, kChunked, kUntilClose, kBodiless, kRaw };

  enum class Ended { kNo, kMaybe };
  void receive(Ended ended);
  void take(std::string_view bytes);
  void take_requests();
  bool start_request();
  void take_head();
  std::optional<EarlyReply> answer_to_head();
  bool await_body();
  size_t take_body(std::string_view bytes);
  size_t take_stream(std::string_view bytes);
  void wait_for_stream();
  void unpack();
  void finish_request();
  void finish_skipping();
  void hand_over(Phase phase);
  void await_request();
  void refuse(const HttpRefusal& refusal);
  // The request ends here: the handler has answered its head.
  void answer_early(const EarlyReply& reply);
  bool may_receive() const;
  bool discards_input() const;

  void begin_reply();
  void start_head(int status, std::string_view content_type, const Headers& headers);
  void send_whole(int status, std::string_view content_type, std::string_view body,
                  const Headers& headers);
  void ask_attention();
  // Does the work that was put off: sending, pipelined requests, reporting a broken connection.
  void go_on();
  void send(std::initializer_list<std::string_view> pieces);
  void flush();
  void after_send(bool was_blocked);
  void on_flushed();
  void end_reply();
  void client_gone();
  void linger();
  void close();
  void wait(Duration timeout);

  Owner& owner_;
  std::unique_ptr<Stream> stream_;  // Null: closed.
  Phase phase_ = Phase::kHead;
  Instant deadline_ = kNever;
  bool attention_asked_ = false;

  HeadIntake input_;
  bool input_waits_ = false;  // The socket may hold bytes that we have not read yet.
  bool input_ended_ = false;
  bool request_started_ = false;
  RequestHead head_;  // It and request_ point into input_.
  HttpRequest request_;
  std::string path_;  // The request's path, if its head has another text.
  std::string cors_;  // Lines of its reply.
  BodyIntake body_;
  bool skips_body_ = false;   // Its request is already answered.
  bool body_paused_ = false;  // kStream.
  Instant stream_ends_{};     // When such a body has taken too long.

  SendQueue queue_;
  ReplyForm form_ = ReplyForm::kNone;
  std::string reply_head_;            // Reused.
  bool raw_ends_by_closing_ = false;  // According to its head.
  bool close_after_reply_ = false;
  bool draining_ = false;
  bool broken_ = false;      // Sending failed.
  bool over_limit_ = false;  // The handler still waits for on_writable().
};

}  // namespace pdjob::net
