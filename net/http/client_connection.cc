#include "net/http/client_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/epoll.h>

#include "common/check.h"

namespace pdjob::net {
namespace {

// Receives on one connection before others get their turn.
constexpr int kReplyReceivesPerTurn = 16;

}  // namespace

ClientConnection::ClientConnection(Owner& owner, std::unique_ptr<Stream> stream)
    : owner_(owner), stream_(std::move(stream)) {}

bool ClientConnection::watch() { return stream_->watch(*this).has_value(); }

void ClientConnection::start(const Request& request) {
  PDJOB_CHECK(phase_ == Phase::kConnecting || phase_ == Phase::kIdle);
  request_ = request;
  sent_ = 0;
  body_ended_ = false;
  paused_ = false;
  reply_started_ = false;
  head_done_ = false;
  finder_.reset();
  input_.clear();
  if (phase_ == Phase::kIdle) {
    phase_ = Phase::kBusy;
    // Sending at the end of the turn wakes each worker only once for many requests.
    send_waits_ = true;
    ask_attention();
  }
}

void ClientConnection::ask_attention() {
  if (!std::exchange(attention_asked_, true)) {
    owner_.attend_soon(*this);
  }
}

void ClientConnection::on_ready(uint32_t epoll_events) {
  if (phase_ == Phase::kConnecting) {
    on_connect_decided();
    return;
  }
  if ((epoll_events & EPOLLOUT) != 0 && phase_ == Phase::kBusy && !request_sent()) {
    send();
  }
  if ((epoll_events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) {
    receive((epoll_events & ~static_cast<uint32_t>(EPOLLOUT | EPOLLIN)) != 0 ? Ended::kMaybe
                                                                             : Ended::kNo);
  }
}

void ClientConnection::on_connect_decided() {
  if (const int error = stream_->connect_error()) {
    fail(ErrorCode::kUnavailable, std::string("connect: ") + strerror(error));
    return;
  }
  phase_ = Phase::kBusy;
  owner_.on_connected(*this);
  if (phase_ == Phase::kBusy) {
    send();
  }
}

void ClientConnection::attend() {
  attention_asked_ = false;
  if (std::exchange(send_waits_, false) && phase_ == Phase::kBusy) {
    send();
  }
  if (phase_ == Phase::kBusy && (input_waits_ || send_failed_)) {
    receive(Ended::kMaybe);
    if (phase_ == Phase::kBusy && send_failed_) {
      fail(ErrorCode::kUnavailable, "the connection broke while the request was sent");
    }
  }
}

void ClientConnection::pause() { paused_ = true; }

void ClientConnection::resume() {
  paused_ = false;
  ask_attention();
}

void ClientConnection::close() {
  if (phase_ != Phase::kClosed) {
    phase_ = Phase::kClosed;
    stream_.reset();
    ask_attention();
  }
}

void ClientConnection::send() {
  while (!given_sent() && !send_failed_) {
    const std::string_view head = request_.head.substr(std::min(sent_, request_.head.size()));
    const std::string_view body =
        request_.body.substr(sent_ - (request_.head.size() - head.size()));
    const ssize_t count = stream_->write(std::array{head, body});
    if (count == -EAGAIN) {
      return;
    }
    if (count < 0) {
      // The reply may have come before the request was complete (an early refusal). We look for it
      // before giving up.
      send_failed_ = true;
      ask_attention();
      return;
    }
    sent_ += static_cast<size_t>(count);
  }
  if (request_.streams && !send_failed_) {
    send_streamed();
  }
}

void ClientConnection::send_streamed() {
  if (queue_.blocked() && !queue_.flush(*stream_)) {
    send_failed_ = true;
    ask_attention();
  } else if (!queue_.blocked() && !body_ended_) {
    owner_.on_writable(*this);
  }
}

size_t ClientConnection::send_body(std::string_view bytes) {
  PDJOB_CHECK(phase_ == Phase::kBusy && request_.streams && given_sent() && !body_ended_);
  if (!send_failed_ && !queue_.send(*stream_, std::array{bytes})) {
    send_failed_ = true;
    ask_attention();
  }
  return queue_.size();
}

void ClientConnection::receive(Ended ended) {
  const std::span<char> buffer = owner_.receive_buffer();
  input_waits_ = true;
  for (int turn = 0; phase_ != Phase::kClosed && !paused_; ++turn) {
    if (turn == kReplyReceivesPerTurn) {
      ask_attention();
      return;
    }
    const ssize_t count = stream_->read(buffer);
    if (count > 0) {
      take({buffer.data(), static_cast<size_t>(count)});
      // A short read has emptied the socket, and an edge will report more bytes. The end of the
      // stream has no bytes, so it needs one more read.
      if (static_cast<size_t>(count) < buffer.size() && ended == Ended::kNo) {
        break;
      }
    } else if (count == 0) {
      on_stream_end();
    } else if (count == -EAGAIN) {
      break;
    } else {
      fail(ErrorCode::kUnavailable, std::string("receive: ") + strerror(static_cast<int>(-count)));
    }
  }
  input_waits_ = paused_;
}

void ClientConnection::take(std::string_view bytes) {
  if (phase_ == Phase::kIdle) {
    fail(ErrorCode::kCorrupt, "bytes without a request");
    return;
  }
  reply_started_ = true;
  if (head_done_) {
    take_body(bytes);
    return;
  }
  if (!input_.empty()) {
    bytes = input_.append(bytes);
  }
  size_t taken = 0;
  do {
    bytes.remove_prefix(taken);
    taken = take_head(bytes);
  } while (phase_ == Phase::kBusy && !head_done_ && taken > 0);
  if (phase_ != Phase::kBusy) {
    return;
  }
  if (head_done_) {
    take_body(bytes.substr(taken));
  } else {
    input_ = std::string(bytes);
  }
}

// Returns the length of the head, or 0 if more bytes are needed or it failed. An interim response
// (1xx) is none yet.
size_t ClientConnection::take_head(std::string_view bytes) {
  const size_t head_bytes = finder_.find(bytes);
  if (finder_.refusal()) {
    fail(ErrorCode::kCorrupt, std::string("the reply is not HTTP: ") + finder_.refusal()->reason);
    return 0;
  }
  if (head_bytes == 0) {
    return 0;
  }
  finder_.reset();
  const std::string_view raw = bytes.substr(0, head_bytes);
  if (const auto refusal = parse_response_head(raw, request_.is_head ? "HEAD" : "", head_)) {
    fail(ErrorCode::kCorrupt, std::string("the reply is not HTTP: ") + refusal->reason);
    return 0;
  }
  if (head_.status == 101) {
    fail(ErrorCode::kCorrupt, "the reply switches protocols unasked");
    return 0;
  }
  reply_.status = head_.status;
  reply_.headers.swap(head_.headers);
  reply_.raw = raw;
  if (head_.status < 200) {
    reply_.framing = BodyFraming::kNone;
    owner_.on_interim(*this, reply_);
    return head_bytes;
  }
  head_done_ = true;
  body_left_ = head_.content_length;
  chunks_ = {};
  reply_.framing = head_.framing;
  owner_.on_head(*this, reply_);
  return head_bytes;
}

void ClientConnection::take_body(std::string_view bytes) {
  size_t taken = bytes.size();
  bool done = false;
  switch (head_.framing) {
    case BodyFraming::kNone:
      taken = 0;
      done = true;
      break;
    case BodyFraming::kLength:
      taken = static_cast<size_t>(std::min<uint64_t>(body_left_, bytes.size()));
      body_left_ -= taken;
      done = body_left_ == 0;
      break;
    case BodyFraming::kChunked:
      taken = chunks_.feed(bytes);
      done = chunks_.done();
      break;
    case BodyFraming::kUntilClose:
      break;
  }
  if (chunks_.failed()) {
    fail(ErrorCode::kCorrupt, "malformed chunked reply");
    return;
  }
  if (taken > 0) {
    owner_.on_body(*this, bytes.substr(0, taken));
  }
  if (done && phase_ == Phase::kBusy) {
    end(bytes.substr(taken));
  }
}

void ClientConnection::on_stream_end() {
  if (phase_ == Phase::kBusy && head_done_ && head_.framing == BodyFraming::kUntilClose) {
    end({});
  } else {
    fail(ErrorCode::kUnavailable,
         reply_started_ ? "the reply broke off" : "closed without a reply");
  }
}

void ClientConnection::end(std::string_view unexpected) {
  const bool reusable = head_.keep_alive && head_.framing != BodyFraming::kUntilClose &&
                        request_sent() && unexpected.empty();
  if (reusable) {
    phase_ = Phase::kIdle;
    paused_ = false;  // A pause ends with its call; bytes on an idle connection must be noticed.
    request_ = {};
    sent_ = 0;
  } else {
    close();
  }
  owner_.on_end(*this);
}

void ClientConnection::fail(ErrorCode code, const std::string& message) {
  close();
  owner_.on_failed(*this, {code, message});
}

}  // namespace pdjob::net
