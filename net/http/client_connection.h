// ClientConnection: one connection of an HttpClient to a worker, with at most one call at a time.
// It sends the request, follows the reply's framing and hands over raw bytes. Pool, retries and
// deadlines are the client's. Loop-bound.
//
//   kConnecting ──> kBusy ──> kIdle ──> kBusy ...      and kClosed from anywhere
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "net/http/http_client.h"
#include "net/http/http_parser.h"
#include "net/loop/loop.h"
#include "net/loop/socket.h"

namespace pdjob::net {

class ClientConnection final : public FdHandler {
 public:
  class Owner {
   public:
    virtual void on_connected(ClientConnection& connection) = 0;
    // As HttpCallHandler::on_writable().
    virtual void on_writable(ClientConnection& connection) = 0;
    // As HttpCallHandler::on_interim().
    virtual void on_interim(ClientConnection& connection, const HttpReplyHead& head) = 0;
    virtual void on_head(ClientConnection& connection, const HttpReplyHead& head) = 0;
    virtual void on_body(ClientConnection& connection, std::string_view raw) = 0;
    // The reply is complete. The connection is idle, or closed if it cannot be reused.
    virtual void on_end(ClientConnection& connection) = 0;
    // The connection is closed, with or without a call on it.
    virtual void on_failed(ClientConnection& connection, const Error& error) = 0;

    // Calls attend() at the end of this turn. The connection asks again only after that. The owner
    // may then destroy a closed connection.
    virtual void attend_soon(ClientConnection& connection) = 0;

    virtual Loop& loop() = 0;
    // For one receive at a time; shared by all connections.
    virtual std::span<char> receive_buffer() = 0;

   protected:
    ~Owner() = default;
  };

  struct Request {
    std::string_view head;  // With its empty line; a short body may follow.
    std::string_view body;
    bool is_head = false;  // The reply has no body.
    bool streams = false;  // More of the body follows by send_body().
  };

  // `stream` is connecting.
  ClientConnection(Owner& owner, std::unique_ptr<Stream> stream);
  ~ClientConnection() = default;
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // False: the connection is unusable.
  bool watch();
  // The views must outlive the call. Never calls the owner's on_...().
  void start(const Request& request);
  // Returns how many bytes wait.
  size_t send_body(std::string_view bytes);
  void end_body() { body_ended_ = true; }
  void pause();
  void resume();
  void attend();
  void close();

  bool connecting() const { return phase_ == Phase::kConnecting; }
  bool idle() const { return phase_ == Phase::kIdle; }
  bool closed() const { return phase_ == Phase::kClosed; }
  // A byte of the reply has arrived, so the request must not be retried.
  bool reply_started() const { return reply_started_; }
  bool nothing_sent() const { return sent_ == 0; }
  bool request_sent() const {
    return given_sent() && (!request_.streams || (body_ended_ && queue_.empty()));
  }

 private:
  enum class Phase { kConnecting, kBusy, kIdle, kClosed };

  void on_ready(uint32_t epoll_events) override;
  void on_connect_decided();
  void ask_attention();
  bool given_sent() const { return sent_ == request_.head.size() + request_.body.size(); }
  void send();
  void send_streamed();
  enum class Ended { kNo, kMaybe };
  void receive(Ended ended);
  void take(std::string_view bytes);
  size_t take_head(std::string_view bytes);
  void take_body(std::string_view bytes);
  void on_stream_end();
  void end(std::string_view unexpected);
  void fail(ErrorCode code, const std::string& message);

  Owner& owner_;
  std::unique_ptr<Stream> stream_;  // Null: closed.
  Phase phase_ = Phase::kConnecting;

  Request request_;
  size_t sent_ = 0;
  SendQueue queue_;  // Of a body that streams.
  bool body_ended_ = false;
  bool send_waits_ = false;  // For the end of the turn.
  bool send_failed_ = false;
  bool attention_asked_ = false;

  bool paused_ = false;
  bool input_waits_ = false;  // The socket may hold bytes that we have not read yet.
  bool reply_started_ = false;
  bool head_done_ = false;
  std::string input_;  // The part of an incomplete head.
  HeadFinder finder_;
  ResponseHead head_;
  HttpReplyHead reply_;
  uint64_t body_left_ = 0;
  ChunkScanner chunks_;
};

}  // namespace pdjob::net
