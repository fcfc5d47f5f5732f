#include "openai/kv_events/kv_stream.h"

#include <optional>
#include <utility>

#include "common/check.h"
#include "common/crypto/job_keys.h"
#include "common/limits.h"
#include "common/log.h"

namespace pdjob::openai {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr Duration kHeadTimeout = std::chrono::seconds(10);
constexpr Duration kIdleTimeout = 3 * kKvPingInterval;
constexpr Duration kRetryAfter = std::chrono::seconds(1);

}  // namespace

void append_kv_frame(std::string& out, std::string_view batch) {
  PDJOB_CHECK(batch.size() <= limits::kKvBatchBytesMax, batch.size());
  for (size_t byte = kLengthBytes; byte-- > 0;) {
    out += static_cast<char>(batch.size() >> (8 * byte));
  }
  out.append(batch);
}

Result<std::optional<std::string_view>> KvFrames::next() {
  const std::string_view left = std::string_view(bytes_).substr(at_);
  size_t length = 0;
  for (size_t byte = 0; byte < std::min(kLengthBytes, left.size()); ++byte) {
    length = length << 8 | static_cast<uint8_t>(left[byte]);
  }
  if (left.size() >= kLengthBytes && length > limits::kKvBatchBytesMax) {
    return Error{ErrorCode::kCorrupt, "a batch of KV events is too long"};
  }
  if (left.size() < kLengthBytes || left.size() - kLengthBytes < length) {
    bytes_.erase(0, std::exchange(at_, 0));
    return std::optional<std::string_view>();
  }
  at_ += kLengthBytes + length;
  return std::optional(left.substr(kLengthBytes, length));
}

KvStream::KvStream(net::Loop& loop, net::HttpClient& client, Handler& handler,
                   net::HttpAddress worker, const std::string& key)
    : loop_(loop),
      client_(client),
      handler_(handler),
      worker_(std::move(worker)),
      header_lines_(authorization_line(key)) {}

KvStream::~KvStream() {
  loop_.cancel(retry_);
  client_.cancel(call_);
}

void KvStream::open() {
  retry_ = {};
  chunks_ = {};
  frames_ = {};
  call_ = client_.start({.to = worker_,
                         .method = "GET",
                         .target = "/pdjob/kv_events",
                         .header_lines = header_lines_,
                         .head_timeout = kHeadTimeout,
                         .idle_timeout = kIdleTimeout},
                        *this);
}

void KvStream::on_head(net::CallId /*id*/, const net::HttpReplyHead& head) {
  connected_ = head.status == 200 && head.framing == net::BodyFraming::kChunked;
  refused_ = head.status == 404 || head.status == 401;  // An older worker, or another job's.
  if (connected_) {
    handler_.on_connected();
  }
}

void KvStream::on_body(net::CallId id, std::string_view raw) {
  if (!connected_) {
    return;
  }
  decoded_.clear();
  chunks_.decode(raw, decoded_);
  frames_.take(decoded_);
  while (true) {
    const auto frame = frames_.next();
    if (frame && !*frame) {
      return;
    }
    if (!frame || !handler_.on_batch(**frame)) {
      client_.cancel(id);
      on_error(id, frame ? Error{ErrorCode::kCorrupt, "a batch cannot be read"} : frame.error());
      return;
    }
  }
}

void KvStream::on_end(net::CallId /*id*/) { end_call(); }

void KvStream::on_error(net::CallId /*id*/, const Error& error) {
  log::debug("KV events of " + worker_.to_string() + ": " + error.message);
  end_call();
}

void KvStream::end_call() {
  call_ = {};
  if (std::exchange(connected_, false)) {
    handler_.on_disconnected();
  }
  if (!refused_) {
    retry_ = loop_.call_at(loop_.now() + kRetryAfter, [this] { open(); });
  }
}

}  // namespace pdjob::openai
