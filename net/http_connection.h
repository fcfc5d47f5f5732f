// HttpConnection: one client of an HttpServer. Takes requests off its socket, one exchange at a
// time in order, and sends the replies. It knows no ids and no handlers: what it finds it tells its
// owner. Loop-bound.
//
//   kHead ──> kBody ──> kReply ──> kHead (keep-alive) ... ──> kLinger ──> kClosed
//     └────────────────────^
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/time.h"
#include "net/event_loop.h"
#include "net/held_bytes.h"
#include "net/http_parser.h"
#include "net/http_server.h"
#include "net/socket.h"

namespace pdjob::net {

class HttpConnection final : public FdHandler {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  class Owner {
   public:
    // These four may run a handler's code, so they are never called from within reply(), write()
    // and their like.
    virtual std::optional<EarlyReply> on_head(HttpRequest& request) = 0;
    virtual void on_request(HttpConnection& connection, HttpRequest& request) = 0;
    virtual void on_client_gone(HttpConnection& connection) = 0;
    virtual void on_writable(HttpConnection& connection) = 0;
    // The reply is complete, or cut by abort().
    virtual void on_reply_ended(HttpConnection& connection) = 0;

    // Calls attend() at the end of this turn. Not called again before that.
    virtual void attend_soon(HttpConnection& connection) = 0;

    virtual EventLoop& loop() = 0;
    virtual const HttpServerOptions& options() const = 0;
    // For one receive at a time; shared by all connections.
    virtual std::span<char> receive_buffer() = 0;
    virtual HeldBytes& held_bytes() = 0;

   protected:
    ~Owner() = default;
  };

  HttpConnection(Owner& owner, Fd fd);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // False: the connection is of no use.
  bool watch();
  void on_ready(uint32_t epoll_events) override;
  // As asked of the owner.
  void attend();
  // Ends what took too long.
  void check_deadline(Instant now);
  // Closes after the current exchange, or now if there is none.
  void drain();
  bool closed() const { return phase_ == Phase::kClosed; }

  // Of the exchange under way; as in HttpServer.
  void reply(int status, std::string_view content_type, std::string_view body,
             const Headers& headers);
  void begin(int status, std::string_view content_type, const Headers& headers);
  void write(std::string_view bytes, std::string_view extension);
  void end();
  void begin_raw(std::string_view head);
  void write_raw(std::string_view bytes);
  void end_raw(bool keep_alive);
  void abort();
  bool is_http_1_0() const { return head_.is_http_1_0; }
  size_t bytes_queued() const { return queue_.size(); }
  void hold_more(size_t bytes) { hold_body(bytes); }
  void body_freed() { release_body(); }

 private:
  enum class Phase {
    kHead,    // Waiting for a request, or amid its head.
    kBody,    // Amid its body, which may be skipped.
    kReply,   // The handler has it.
    kLinger,  // Our last byte is sent; reading until the client closes, lest a reset destroy what
              // it has not read yet.
    kClosed,
  };
  enum class ReplyForm { kNone, kChunked, kUntilClose, kBodiless, kRaw };

  enum class Ended { kNo, kMaybe };
  void receive(Ended ended);
  void take(std::string_view bytes);
  void take_requests();
  bool start_request();
  bool await_body();
  size_t take_body(std::string_view bytes);
  void finish_request();
  void finish_skipping();
  void refuse(const HttpRefusal& refusal);
  // The request ends here: the handler has answered its head.
  void answer_early(const EarlyReply& reply);
  // Nothing: a body of `own` bytes may grow by `more`.
  std::optional<HttpRefusal> refusal_to_hold(size_t own, size_t more) const;
  void hold_body(size_t more);
  void release_body();
  // Of input_, after it has changed.
  void count_input();
  bool may_receive() const;
  std::string_view unparsed() const { return std::string_view(input_).substr(input_at_); }
  bool discards_input() const;

  void start_head(int status, std::string_view content_type, const Headers& headers);
  void send_whole(int status, std::string_view content_type, std::string_view body,
                  const Headers& headers);
  void ask_attention();
  // What is not done where it is noticed: sending, pipelined requests, telling of a broken
  // connection.
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
  Fd fd_;
  Phase phase_ = Phase::kHead;
  Instant deadline_ = kNever;
  bool attention_asked_ = false;

  std::string input_;  // Received, not yet taken: a partial head, pipelined requests.
  size_t input_at_ = 0;
  bool input_waits_ = false;  // The socket may hold more that we did not read yet.
  bool input_ended_ = false;
  bool request_started_ = false;
  HeadFinder finder_;
  std::string head_text_;  // What head_ and request_ point into.
  RequestHead head_;
  HttpRequest request_;
  ChunkDecoder chunks_;
  uint64_t body_left_ = 0;
  bool skips_body_ = false;  // Its request is answered already.

  // What HeldBytes has of this connection.
  size_t input_counted_ = 0;
  size_t body_held_ = 0;
  HeldBytes::Account body_account_ = 0;

  SendQueue queue_;
  ReplyForm form_ = ReplyForm::kNone;
  std::string reply_head_;            // Reused.
  bool raw_ends_by_closing_ = false;  // As its head says.
  bool close_after_reply_ = false;
  bool draining_ = false;
  bool broken_ = false;      // Sending failed.
  bool over_limit_ = false;  // The handler was not told yet that the queue is short again.
};

}  // namespace pdjob::net
