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
// Retry-After for a client that was refused for lack of memory.
constexpr uint32_t kMemoryRetrySeconds = 1;
// Receives on one connection before others get their turn.
constexpr int kReceivesPerTurn = 16;
// Reserved for a body that is only announced; the buffer grows as it arrives.
constexpr size_t kBodyReserveMax = 256 * limits::kKiB;

}  // namespace

HttpConnection::HttpConnection(Owner& owner, std::unique_ptr<Stream> stream)
    : owner_(owner), stream_(std::move(stream)) {
  wait(owner_.options().idle_timeout);
}

HttpConnection::~HttpConnection() {
  release_body();
  owner_.held_bytes().give_back(0, input_counted_);
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

void HttpConnection::attend() {
  attention_asked_ = false;
  go_on();
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
  if (unparsed().empty()) {
    input_at_ = 0;
    free_text(input_, kTextKeptMax);
  }
  count_input();
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
  const bool enough = unparsed().size() >= kInputHeldMax || owner_.held_bytes().full();
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
  input_.erase(0, std::exchange(input_at_, 0));
  if (phase_ == Phase::kHead) {
    if (const auto refusal = refusal_to_hold(input_.size(), bytes.size())) {
      refuse(*refusal);
      return;
    }
  }
  input_.append(bytes);
  count_input();
  take_requests();
}

std::optional<HttpRefusal> HttpConnection::refusal_to_hold(size_t own, size_t more) const {
  const bool of_body = phase_ == Phase::kBody || phase_ == Phase::kUnpack;
  const HeldBytes::Account account = of_body ? body_account_ : 0;
  switch (owner_.held_bytes().ask(account, own, more)) {
    case HeldBytes::Verdict::kFits:
      return std::nullopt;
    case HeldBytes::Verdict::kTotalIsFull:
      return HttpRefusal{503, "too many bytes of requests are in memory: try again",
                         kMemoryRetrySeconds};
    case HeldBytes::Verdict::kAccountIsFull:
      return HttpRefusal{429, "too many bytes of this tenant's requests are in memory",
                         kMemoryRetrySeconds};
  }
  return std::nullopt;
}

void HttpConnection::hold_body(size_t more) {
  body_held_ += more;
  owner_.held_bytes().take(body_account_, more);
}

void HttpConnection::release_body() {
  owner_.held_bytes().give_back(body_account_, std::exchange(body_held_, 0));
}

void HttpConnection::count_input() {
  HeldBytes& held = owner_.held_bytes();
  held.give_back(0, std::exchange(input_counted_, input_.size()));
  held.take(0, input_counted_);
}

void HttpConnection::take_requests() {
  while (phase_ == Phase::kHead && !close_after_reply_) {
    // The only deadline bounds the next request, or the client that does not read the last reply.
    if (!unparsed().empty()) {
      flush();
    }
    if (broken_ || queue_.blocked() || !start_request()) {
      return;
    }
  }
}

// Returns false if the bytes at hand allow no further step.
bool HttpConnection::start_request() {
  while (unparsed().starts_with("\r\n")) {  // RFC 9112 2.2 asks for this leniency.
    input_at_ += 2;
    finder_.reset();
  }
  if (unparsed().empty()) {
    return false;
  }
  if (!std::exchange(request_started_, true)) {
    wait(owner_.options().request_timeout);
  }
  const size_t head_bytes = finder_.find(unparsed());
  if (finder_.refusal()) {
    refuse(*finder_.refusal());
    return false;
  }
  if (head_bytes == 0) {
    return false;
  }
  cors_.clear();
  head_text_.assign(unparsed().substr(0, head_bytes));
  input_at_ += head_bytes;
  finder_.reset();
  if (const auto refusal = parse_request_head(head_text_, head_)) {
    refuse(*refusal);
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
  const size_t taken = phase_ == Phase::kBody ? take_body(unparsed()) : take_stream(unparsed());
  // A refused request has dropped the input.
  input_at_ = std::min(input_at_ + taken, input_.size());
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
  body_left_ = head_.content_length;
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

// Decodes no body that streams. The handler never learns of a coding. Returns false if the request
// is refused.
bool HttpConnection::take_coding() {
  const auto packing =
      head_.framing == BodyFraming::kNone ? Packing::kNone : body_packing(request_.headers);
  if (!packing || (request_.streams && packing != Packing::kNone)) {
    refuse({.status = 415,
            .reason = request_.streams ? "a body without Content-Encoding is wanted here"
                                       : "Content-Encoding must be gzip, zstd or identity",
            .accept_encoding = request_.streams ? "identity" : kBodyCodings});
    return false;
  }
  packing_ = *packing;
  std::erase_if(request_.headers, [](const HttpHeader& header) {
    return equal_ignoring_case(header.name, "content-encoding");
  });
  return true;
}

// Returns false if the request is refused.
bool HttpConnection::await_body() {
  if (body_left_ > request_.body_bytes_max) {
    refuse({413, "the request body is too large"});
    return false;
  }
  request_.streams = request_.streams && (head_.framing == BodyFraming::kChunked || body_left_ > 0);
  if (!take_coding()) {
    return false;
  }
  if (request_.streams) {
    start_stream();
    return true;
  }
  phase_ = Phase::kBody;
  body_account_ = request_.account;
  // An early check, not a reservation: others may take the room while the body arrives.
  if (const auto refusal = refusal_to_hold(0, static_cast<size_t>(body_left_))) {
    refuse(*refusal);
    return false;
  }
  chunks_ = {};
  if (head_.framing != BodyFraming::kNone) {
    request_.body.reserve(std::min<size_t>(body_left_, kBodyReserveMax) + HttpRequest::kBodySlack);
    if (head_.expects_continue && unparsed().empty()) {
      send({"HTTP/1.1 100 Continue\r\n\r\n"});
    }
  }
  return true;
}

void HttpConnection::start_stream() {
  chunks_ = {};
  streamed_ = 0;
  body_paused_ = false;
  phase_ = Phase::kStream;
  request_started_ = false;
  close_after_reply_ = draining_ || !head_.keep_alive;
  stream_ends_ = owner_.loop().now() + owner_.options().stream_timeout;
  wait_for_stream();
  if (head_.expects_continue && unparsed().empty()) {
    send({"HTTP/1.1 100 Continue\r\n\r\n"});
  }
  owner_.on_request(*this, request_);
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

// The same as take_body(), for a body that the handler gets as it comes. Its end comes before the
// handler's reply to it, so the phase changes first.
size_t HttpConnection::take_stream(std::string_view bytes) {
  std::string_view payload;
  size_t taken = 0;
  bool complete = true;
  if (head_.framing == BodyFraming::kLength) {
    taken = static_cast<size_t>(std::min<uint64_t>(body_left_, bytes.size()));
    payload = bytes.substr(0, taken);
    body_left_ -= taken;
    complete = body_left_ == 0;
  } else if (head_.framing == BodyFraming::kChunked) {
    request_.body.clear();
    taken = chunks_.decode(bytes, request_.body);
    payload = request_.body;
    complete = chunks_.done();
  }
  streamed_ += payload.size();
  if (chunks_.failed() || streamed_ > request_.body_bytes_max) {
    broken_ = true;  // The handler learns that the client is gone.
    ask_attention();
    return taken;
  }
  if (complete) {
    phase_ = Phase::kReply;
    deadline_ = kNever;
  } else {
    wait_for_stream();
  }
  if (complete || !payload.empty()) {
    owner_.on_body(*this, payload, complete ? BodyPart::kLast : BodyPart::kMoreComes);
  }
  return taken;
}

// Returns how many of `bytes` belonged to the body.
size_t HttpConnection::take_body(std::string_view bytes) {
  size_t taken = 0;
  bool complete = true;
  if (skips_body_) {
    taken = static_cast<size_t>(std::min<uint64_t>(body_left_, bytes.size()));
    body_left_ -= taken;
    if (body_left_ == 0) {
      finish_skipping();
    }
    return taken;
  }
  if (head_.framing == BodyFraming::kLength) {
    taken = static_cast<size_t>(std::min<uint64_t>(body_left_, bytes.size()));
    if (const auto refusal = refusal_to_hold(body_held_, taken)) {
      refuse(*refusal);
      return taken;
    }
    hold_body(taken);
    request_.body.append(bytes.substr(0, taken));
    body_left_ -= taken;
    complete = body_left_ == 0;
  } else if (head_.framing == BodyFraming::kChunked) {
    const size_t before = request_.body.size();
    taken = chunks_.decode(bytes, request_.body);
    const size_t payload = request_.body.size() - before;
    if (const auto refusal = refusal_to_hold(body_held_, payload)) {
      refuse(*refusal);
      return taken;
    }
    hold_body(payload);
    complete = chunks_.done();
    if (chunks_.failed()) {
      refuse({400, "malformed chunked body"});
      return taken;
    }
    if (request_.body.size() > request_.body_bytes_max) {
      refuse({413, "the request body is too large"});
      return taken;
    }
  }
  if (complete && packing_ != Packing::kNone && !request_.body.empty()) {
    unpacker_.emplace(packing_, std::exchange(request_.body, std::string()));
    phase_ = Phase::kUnpack;
    unpack();
  } else if (complete) {
    finish_request();
  }
  return taken;
}

// One slice; the next one comes in a later turn. The packed bytes count until all are unpacked.
void HttpConnection::unpack() {
  const size_t before = request_.body.size();
  const Result<bool> whole = unpacker_->step(request_.body);
  if (!whole && whole.error().code == ErrorCode::kCorrupt) {
    return refuse({400, "the body is not what its Content-Encoding says"});
  }
  if (!whole || request_.body.size() > request_.body_bytes_max) {
    return refuse({413, "the request body is too large once it is unpacked"});
  }
  const size_t grown = request_.body.size() - before;
  if (const auto refusal = refusal_to_hold(body_held_, grown)) {
    return refuse(*refusal);
  }
  hold_body(grown);
  if (!*whole) {
    return ask_attention();
  }
  const size_t packed = unpacker_->packed_bytes();
  unpacker_.reset();
  body_held_ -= packed;
  owner_.held_bytes().give_back(body_account_, packed);
  request_.body.reserve(request_.body.size() + HttpRequest::kBodySlack);
  finish_request();
}

void HttpConnection::finish_request() {
  // Some programs write it before their JSON (RFC 8259, 8.1).
  if (constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
      request_.body.starts_with(kByteOrderMark)) {
    request_.body.erase(0, kByteOrderMark.size());
  }
  phase_ = Phase::kReply;
  if (!queue_.blocked()) {  // A "100 Continue" may block it.
    deadline_ = kNever;
  }
  request_started_ = false;
  close_after_reply_ = draining_ || !head_.keep_alive;
  owner_.on_request(*this, request_);
}

void HttpConnection::finish_skipping() {
  skips_body_ = false;
  phase_ = Phase::kHead;
  request_started_ = false;
  wait(owner_.options().idle_timeout);
  ask_attention();
}

void HttpConnection::answer_early(const EarlyReply& reply) {
  // A client that waits for "100 Continue" need not send its body (RFC 9110, 10.1.1). The start of
  // the next request is then unknown.
  const bool may_never_come = head_.expects_continue && body_left_ > 0 && unparsed().empty();
  skips_body_ = head_.framing != BodyFraming::kChunked && !may_never_come &&
                body_left_ <= limits::kHttpDroppedBodyBytesMax;
  close_after_reply_ = draining_ || !head_.keep_alive || !skips_body_;
  send_whole(reply.status, reply.body.empty() ? "" : "application/json", reply.body, reply.headers);
  phase_ = Phase::kBody;
  if (!skips_body_) {
    input_.clear();
    input_at_ = 0;
    finish_skipping();
  }
}

// Refuses a request before it is an exchange: its handler is not called.
void HttpConnection::refuse(const HttpRefusal& refusal) {
  phase_ = Phase::kHead;
  request_started_ = false;
  close_after_reply_ = true;
  input_.clear();
  input_at_ = 0;
  unpacker_.reset();
  free_text(request_.body, kTextKeptMax);
  release_body();
  wait(owner_.options().idle_timeout);
  head_.is_http_1_0 = false;
  const std::string body = refusal_body(refusal);
  start_head(refusal.status, "application/json", refusal_headers(refusal));
  reply_head_.append("Content-Length: ");
  append_number(reply_head_, body.size());
  reply_head_.append("\r\n\r\n");
  send({reply_head_, body});
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
  phase_ = Phase::kHead;
  form_ = ReplyForm::kNone;
  free_text(request_.body, kTextKeptMax);
  release_body();
  wait(owner_.options().idle_timeout);
  owner_.on_reply_ended(*this);
  if (close_after_reply_ || input_waits_ || input_ended_ || !unparsed().empty()) {
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
  unpacker_.reset();
  release_body();
  stream_.reset();
  ask_attention();
}

}  // namespace pdjob::net
