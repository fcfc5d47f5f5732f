#include "net/http/http_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include <sys/epoll.h>

#include "common/check.h"
#include "common/limits.h"
#include "net/http/reply_head.h"
#include "net/loop/free_text.h"

namespace pdjob::net {
namespace {

// How long a client may take to close after our last byte.
constexpr Duration kLingerMax = std::chrono::seconds(2);
// A source that ignores bytes_queued() is cut off here.
constexpr size_t kQueueBytesCut = 16 * limits::kHttpSendQueueBytesMax;
// Up to this many bytes wait for the end of a turn.
constexpr size_t kHeldBytes = 16 * limits::kKiB;
// Pipelined bytes held while a reply is in progress.
constexpr size_t kInputHeldMax = limits::kHttpHeadBytesMax;
// Buffer bytes that a connection keeps after its request.
constexpr size_t kTextKeptMax = 16 * limits::kKiB;
// Receives on one connection before others get their turn.
constexpr int kReceivesPerTurn = 16;
// Reserved for a body that is only announced; the buffer grows as it arrives.
constexpr size_t kBodyReserveMax = 256 * limits::kKiB;

}  // namespace

HttpConnection::HttpConnection(Owner& owner, std::unique_ptr<Stream> stream)
    : owner_(owner),
      stream_(std::move(stream)),
      input_(owner.held_bytes()),
      body_(owner.held_bytes()) {
  wait(owner_.options().idle_timeout);
}

bool HttpConnection::watch() { return stream_->watch(*this).has_value(); }

void HttpConnection::on_ready(uint32_t epoll_events) {
  if ((epoll_events & EPOLLOUT) != 0 && queue_.blocked()) {
    broken_ = broken_ || !queue_.flush(*stream_);
    on_flushed();
  }
  broken_ = broken_ || (epoll_events & (EPOLLHUP | EPOLLERR)) != 0;
  if ((epoll_events & (EPOLLIN | EPOLLRDHUP)) != 0) {
    const bool ended = (epoll_events & EPOLLRDHUP) != 0;
    // Notices a leaving client, even behind pipelined bytes that are not read now.
    input_ended_ = input_ended_ || (ended && phase_ != Phase::kStream && !may_receive());
    receive(ended ? Ended::kMaybe : Ended::kNo);
  }
  go_on();
}

void HttpConnection::ask_attention() {
  if (!std::exchange(attention_asked_, true)) {
    owner_.attend_soon(*this);
  }
}

void HttpConnection::go_on() {
  if (phase_ == Phase::kClosed) {
    return;
  }
  if (input_waits_ && may_receive()) {
    receive(Ended::kMaybe);
  }
  if (phase_ == Phase::kUnpack) {
    unpack();
  }
  take_requests();
  flush();
  if (phase_ == Phase::kClosed) {
    return;
  }
  if (phase_ == Phase::kHead) {
    queue_.shrink();
  }
  input_.shrink();
  if (broken_ || (input_ended_ && (phase_ != Phase::kHead || queue_.empty()))) {
    client_gone();
  } else if (phase_ == Phase::kHead && close_after_reply_ && queue_.empty()) {
    linger();
  }
}

void HttpConnection::check_deadline(Instant now) {
  if (now < deadline_ || phase_ == Phase::kClosed) {
    return;
  }
  const bool amid_request =
      (phase_ == Phase::kBody && !skips_body_) || (phase_ == Phase::kHead && request_started_);
  if (amid_request && !queue_.blocked()) {
    refuse({408, "the request took too long to arrive"});
  } else {
    client_gone();
  }
}

void HttpConnection::drain() {
  draining_ = true;
  if (phase_ == Phase::kReply || phase_ == Phase::kStream) {
    close_after_reply_ = true;
  } else if (phase_ == Phase::kHead && !request_started_) {
    close_after_reply_ = true;
    go_on();
  }
}

bool HttpConnection::may_be_closed() {
  if (phase_ == Phase::kHead) {
    receive(Ended::kNo);
    go_on();
  }
  return phase_ == Phase::kLinger || (phase_ == Phase::kHead && queue_.empty());
}

void HttpConnection::evict() {
  PDJOB_CHECK(phase_ != Phase::kReply && phase_ != Phase::kStream);
  close();
}

void HttpConnection::wait(Duration timeout) { deadline_ = owner_.loop().now() + timeout; }

// --- requests

// Pipelined requests are read during a reply or behind a slow reader, up to a limit.
bool HttpConnection::may_receive() const {
  const bool busy = phase_ == Phase::kReply || phase_ == Phase::kUnpack || queue_.blocked();
  const bool enough = input_.bytes().size() >= kInputHeldMax || owner_.held_bytes().full();
  return phase_ != Phase::kClosed && !(busy && enough) &&
         !(phase_ == Phase::kStream && body_paused_);
}

bool HttpConnection::discards_input() const {
  return phase_ == Phase::kLinger || (phase_ == Phase::kHead && close_after_reply_);
}

void HttpConnection::receive(Ended ended) {
  const std::span<char> buffer = owner_.receive_buffer();
  for (int turn = 0; !broken_ && !input_ended_; ++turn) {
    input_waits_ = true;
    if (turn == kReceivesPerTurn) {
      ask_attention();
      return;
    }
    if (!may_receive()) {
      return;
    }
    const ssize_t count = stream_->read(buffer);
    input_waits_ = false;
    if (count < 0) {
      broken_ = count != -EAGAIN;
      return;
    }
    input_ended_ = count == 0;
    take({buffer.data(), static_cast<size_t>(count)});
    // A short read has emptied the socket, and an edge will report more bytes. The end of the
    // stream has no bytes, so it needs one more read.
    if (static_cast<size_t>(count) < buffer.size() && ended == Ended::kNo) {
      return;
    }
  }
}

void HttpConnection::take(std::string_view bytes) {
  if (phase_ == Phase::kBody) {
    bytes.remove_prefix(take_body(bytes));
  } else if (phase_ == Phase::kStream) {
    bytes.remove_prefix(take_stream(bytes));
  }
  if (discards_input()) {
    return;
  }
  if (phase_ == Phase::kHead) {
    if (const auto refusal = input_.refusal_to_add(bytes.size())) {
      return refuse(*refusal);
    }
  }
  input_.add(bytes);
  take_requests();
}

void HttpConnection::take_requests() {
  while (phase_ == Phase::kHead && !close_after_reply_) {
    // The only deadline bounds the next request, or the client that does not read the last reply.
    if (!input_.bytes().empty()) {
      flush();
    }
    if (broken_ || queue_.blocked() || !start_request()) {
      return;
    }
  }
}

// Returns false if the bytes at hand allow no further step.
bool HttpConnection::start_request() {
  if (!input_.head_begun()) {
    return false;
  }
  if (!std::exchange(request_started_, true)) {
    wait(owner_.options().request_timeout);
  }
  cors_.clear();
  if (!input_.take_head(head_)) {
    if (input_.refusal()) {
      refuse(*input_.refusal());
    }
    return false;
  }
  take_head();
  if (const auto reply = answer_to_head()) {
    answer_early(*reply);
  } else if (!await_body()) {
    return false;
  }
  if (phase_ != Phase::kBody && phase_ != Phase::kStream) {
    return false;  // It closes after its reply.
  }
  input_.take(phase_ == Phase::kBody ? take_body(input_.bytes()) : take_stream(input_.bytes()));
  return true;
}

void HttpConnection::take_head() {
  request_.is_head = head_.method == "HEAD";
  request_.method = request_.is_head ? "GET" : head_.method;
  request_.path = without_empty_segments(head_.path, path_);
  request_.query = head_.query;
  request_.headers.swap(head_.headers);
  request_.body.clear();
  request_.account = 0;
  request_.streams = false;
  request_.body_bytes_max = owner_.options().body_bytes_max;
  body_.begin(head_);
}

std::optional<EarlyReply> HttpConnection::answer_to_head() {
  if (const CorsOptions& cors = owner_.options().cors; cors.on()) {
    cors_ = cors_lines(cors, request_.headers);
    if (auto headers = preflight_headers(cors, request_.method, request_.headers)) {
      return EarlyReply{.status = 204, .body = {}, .headers = std::move(*headers)};
    }
  }
  return owner_.on_head(request_);
}

// Returns false if the request is refused.
bool HttpConnection::await_body() {
  const bool has_body = head_.framing != BodyFraming::kNone;
  request_.streams = request_.streams && has_body;
  if (const auto refusal = body_.admit(request_)) {
    refuse(*refusal);
    return false;
  }
  if (has_body && head_.expects_continue && input_.bytes().empty()) {
    send({"HTTP/1.1 100 Continue\r\n\r\n"});
  }
  if (request_.streams) {
    body_paused_ = false;
    stream_ends_ = owner_.loop().now() + owner_.options().stream_timeout;
    wait_for_stream();
    hand_over(Phase::kStream);
    return true;
  }
  phase_ = Phase::kBody;
  if (has_body) {
    request_.body.reserve(std::min<size_t>(head_.content_length, kBodyReserveMax) +
                          HttpRequest::kBodySlack);
  }
  return true;
}

void HttpConnection::wait_for_stream() {
  deadline_ = body_paused_
                  ? kNever
                  : std::min(owner_.loop().now() + owner_.options().idle_timeout, stream_ends_);
}

void HttpConnection::pause_body() {
  if (phase_ == Phase::kStream) {
    body_paused_ = true;
    wait_for_stream();
  }
}

void HttpConnection::resume_body() {
  if (phase_ == Phase::kStream && std::exchange(body_paused_, false)) {
    wait_for_stream();
    ask_attention();
  }
}

// The end of a body that streams comes before the handler's reply to it, so the phase changes
// first.
size_t HttpConnection::take_stream(std::string_view bytes) {
  request_.body.clear();
  const BodyIntake::Piece piece = body_.pass(bytes, request_.body);
  if (body_.refusal()) {
    broken_ = true;  // The handler learns that the client is gone.
    ask_attention();
    return piece.taken;
  }
  if (body_.whole()) {
    phase_ = Phase::kReply;
    deadline_ = kNever;
  } else {
    wait_for_stream();
  }
  if (body_.whole() || !piece.payload.empty()) {
    owner_.on_body(*this, piece.payload, body_.whole() ? BodyPart::kLast : BodyPart::kMoreComes);
  }
  return piece.taken;
}

// Returns how many of `bytes` belonged to the body.
size_t HttpConnection::take_body(std::string_view bytes) {
  if (skips_body_) {
    const size_t taken = body_.pass(bytes, request_.body).taken;
    if (body_.whole()) {
      finish_skipping();
    }
    return taken;
  }
  const size_t taken = body_.take(bytes, request_.body);
  if (body_.refusal()) {
    refuse(*body_.refusal());
  } else if (body_.whole() && body_.packed()) {
    phase_ = Phase::kUnpack;
    unpack();
  } else if (body_.whole()) {
    finish_request();
  }
  return taken;
}

// One slice; the next one comes in a later turn.
void HttpConnection::unpack() {
  if (body_.unpack(request_.body)) {
    finish_request();
  } else if (body_.refusal()) {
    refuse(*body_.refusal());
  } else {
    ask_attention();
  }
}

void HttpConnection::finish_request() {
  if (!queue_.blocked()) {  // A "100 Continue" may block it.
    deadline_ = kNever;
  }
  hand_over(Phase::kReply);
}

void HttpConnection::hand_over(Phase phase) {
  phase_ = phase;
  close_after_reply_ = draining_ || !head_.keep_alive;
  owner_.on_request(*this, request_);
}

void HttpConnection::finish_skipping() {
  skips_body_ = false;
  await_request();
  ask_attention();
}

void HttpConnection::await_request() {
  phase_ = Phase::kHead;
  request_started_ = false;
  free_text(request_.body, kTextKeptMax);
  body_.release();
  wait(owner_.options().idle_timeout);
}

void HttpConnection::answer_early(const EarlyReply& reply) {
  // A client that waits for "100 Continue" need not send its body (RFC 9110, 10.1.1). The start of
  // the next request is then unknown.
  const bool may_never_come =
      head_.expects_continue && head_.content_length > 0 && input_.bytes().empty();
  skips_body_ = head_.framing != BodyFraming::kChunked && !may_never_come &&
                head_.content_length <= limits::kHttpDroppedBodyBytesMax;
  close_after_reply_ = draining_ || !head_.keep_alive || !skips_body_;
  send_whole(reply.status, reply.body.empty() ? "" : "application/json", reply.body, reply.headers);
  phase_ = Phase::kBody;
  if (!skips_body_) {
    input_.drop();
    finish_skipping();
  }
}

// Refuses a request before it is an exchange: its handler is not called.
void HttpConnection::refuse(const HttpRefusal& refusal) {
  await_request();
  close_after_reply_ = true;
  input_.drop();
  head_.is_http_1_0 = false;
  request_.is_head = false;
  send_whole(refusal.status, "application/json", refusal_body(refusal), refusal_headers(refusal));
  ask_attention();
}

// --- replies

// A reply may come before the end of a body that streams. The rest of the body is not read then.
void HttpConnection::begin_reply() {
  PDJOB_CHECK(phase_ == Phase::kReply || phase_ == Phase::kStream);
  PDJOB_CHECK(form_ == ReplyForm::kNone);
  if (phase_ == Phase::kStream) {
    phase_ = Phase::kReply;
    close_after_reply_ = true;
    deadline_ = kNever;
  }
}

// Everything except the framing and the empty line.
void HttpConnection::start_head(int status, std::string_view content_type, const Headers& headers) {
  reply_head_.clear();
  append_reply_head(reply_head_, status, content_type, headers);
  reply_head_.append(cors_);
  if (close_after_reply_) {
    reply_head_.append("Connection: close\r\n");
  } else if (head_.is_http_1_0) {
    reply_head_.append("Connection: keep-alive\r\n");
  }
}

void HttpConnection::reply(int status, std::string_view content_type, std::string_view body,
                           const Headers& headers) {
  begin_reply();
  send_whole(status, content_type, body, headers);
  end_reply();
}

void HttpConnection::send_whole(int status, std::string_view content_type, std::string_view body,
                                const Headers& headers) {
  start_head(status, content_type, headers);
  if (status != 204 && status != 304) {
    reply_head_.append("Content-Length: ");
    append_number(reply_head_, body.size());
    reply_head_.append("\r\n");
  } else {
    body = {};
  }
  reply_head_.append("\r\n");
  send({reply_head_, request_.is_head ? std::string_view() : body});
}

void HttpConnection::begin(int status, std::string_view content_type, const Headers& headers) {
  begin_reply();
  form_ = request_.is_head    ? ReplyForm::kBodiless
          : head_.is_http_1_0 ? ReplyForm::kUntilClose
                              : ReplyForm::kChunked;
  close_after_reply_ = close_after_reply_ || form_ == ReplyForm::kUntilClose;
  start_head(status, content_type, headers);
  reply_head_.append(form_ == ReplyForm::kChunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
  send({reply_head_});
}

void HttpConnection::write(std::string_view bytes, std::string_view extension) {
  PDJOB_CHECK(form_ != ReplyForm::kNone && form_ != ReplyForm::kRaw);
  if (bytes.empty() || form_ == ReplyForm::kBodiless) {
    return;  // An empty chunk would end the reply.
  }
  if (form_ == ReplyForm::kUntilClose) {
    send({bytes});
    return;
  }
  std::array<char, 16> size;
  char* end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
  send({{size.data(), end}, extension.empty() ? "" : ";", extension, "\r\n", bytes, "\r\n"});
}

void HttpConnection::end() {
  PDJOB_CHECK(form_ != ReplyForm::kNone && form_ != ReplyForm::kRaw);
  send({form_ == ReplyForm::kChunked ? std::string_view("0\r\n\r\n") : std::string_view()});
  end_reply();
}

void HttpConnection::begin_raw(std::string_view head) {
  begin_reply();
  form_ = ReplyForm::kRaw;
  raw_ends_by_closing_ = head.find("\r\nConnection: close\r\n") != std::string_view::npos;
  head.remove_suffix(std::min<size_t>(head.size(), 2));  // The empty line.
  send({head, cors_, "\r\n"});
}

void HttpConnection::write_raw(std::string_view bytes) {
  PDJOB_CHECK(form_ == ReplyForm::kRaw);
  send({request_.is_head ? std::string_view() : bytes});
}

void HttpConnection::end_raw(bool keep_alive) {
  PDJOB_CHECK(form_ == ReplyForm::kRaw);
  close_after_reply_ = close_after_reply_ || !keep_alive;
  send({});
  end_reply();
}

void HttpConnection::abort() {
  flush();
  if (form_ == ReplyForm::kUntilClose || head_.is_http_1_0 ||
      (form_ == ReplyForm::kRaw && raw_ends_by_closing_)) {
    // An orderly close would look like the reply's end.
    stream_->reset_when_closed();
  }
  close();
  owner_.on_reply_ended(*this);
}

// Few bytes wait for the end of the turn. Several pieces then leave as one, and each reader wakes
// once for the sends of many connections.
void HttpConnection::send(std::initializer_list<std::string_view> pieces) {
  size_t total = queue_.size();
  for (const std::string_view piece : pieces) {
    total += piece.size();
  }
  if (total <= kHeldBytes && !queue_.blocked()) {
    for (const std::string_view piece : pieces) {
      queue_.hold(piece);
    }
    ask_attention();
    return;
  }
  const bool was_blocked = queue_.blocked();
  broken_ = broken_ || queue_.size() > kQueueBytesCut || !queue_.send(*stream_, pieces);
  after_send(was_blocked);
}

void HttpConnection::flush() {
  if (!broken_ && !queue_.empty() && !queue_.blocked()) {
    broken_ = !queue_.flush(*stream_);
    after_send(false);
  }
}

void HttpConnection::after_send(bool was_blocked) {
  if (broken_) {
    ask_attention();
    return;
  }
  over_limit_ = over_limit_ || queue_.size() > limits::kHttpSendQueueBytesMax;
  if (queue_.blocked() && !was_blocked) {
    wait(owner_.options().idle_timeout);
  }
}

// The client has taken bytes of a blocked queue.
void HttpConnection::on_flushed() {
  if (queue_.blocked() || phase_ != Phase::kReply) {
    wait(owner_.options().idle_timeout);
  } else {
    deadline_ = kNever;
  }
  if (over_limit_ && queue_.size() < limits::kHttpSendQueueBytesMax / 2) {
    over_limit_ = false;
    if (phase_ == Phase::kReply) {
      owner_.on_writable(*this);
    }
  }
}

void HttpConnection::end_reply() {
  await_request();
  form_ = ReplyForm::kNone;
  owner_.on_reply_ended(*this);
  if (close_after_reply_ || input_waits_ || input_ended_ || !input_.bytes().empty()) {
    ask_attention();
  }
}

void HttpConnection::client_gone() {
  const bool amid_reply = phase_ == Phase::kReply || phase_ == Phase::kStream;
  close();
  if (amid_reply) {
    owner_.on_client_gone(*this);
  }
}

void HttpConnection::linger() {
  stream_->finish_writing();
  phase_ = Phase::kLinger;
  wait(kLingerMax);
}

void HttpConnection::close() {
  phase_ = Phase::kClosed;
  body_.release();
  stream_.reset();
  ask_attention();
}

}  // namespace pdjob::net
