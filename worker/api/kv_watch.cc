#include "worker/api/kv_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/os/real_clock.h"
#include "openai/kv_events/kv_stream.h"
#include "openai/reply_error.h"

namespace pdjob::worker {
namespace {

// One batch per event, so that none is too long for its reader.
std::string frames_of(std::span<const openai::KvEvent> events) {
  std::string frames;
  for (const openai::KvEvent& event : events) {
    openai::append_kv_frame(
        frames, openai::encode_kv_events({&event, 1}, static_cast<double>(unix_seconds())));
  }
  return frames;
}

}  // namespace

KvWatch::KvWatch(net::Loop& loop, net::HttpServer& server) : loop_(loop), server_(server) {
  timer_ = loop_.call_at(loop_.now() + openai::kKvPingInterval, [this] { ping(); });
}

void KvWatch::subscribe(net::ExchangeId id, bool head_only) {
  if (closed_ || subscribers_.size() == kSubscribersMax) {
    const openai::ApiError error =
        openai::to_api_error({ErrorCode::kOverloaded, closed_ ? "this worker is shutting down"
                                                              : "too many routers listen"});
    openai::reply_error(server_, id, error, {{"Retry-After", "1"}});
    return;
  }
  server_.begin(id, 200, "application/octet-stream", {{"Cache-Control", "no-store"}});
  if (head_only) {
    return server_.end(id);
  }
  std::string frames = frames_of(blocks_.all());
  openai::append_kv_frame(frames, "");
  subscribers_[id] = frames.size();
  server_.write(id, frames);
}

void KvWatch::take(std::span<const ReportKept> changes) {
  for (const ReportKept& change : changes) {
    blocks_.set(change.sequence, change.kept);
  }
  const std::vector<openai::KvEvent> events = blocks_.take_changes();
  if (!events.empty() && !subscribers_.empty()) {
    tell_all(frames_of(events));
  }
}

// Disconnects a subscriber that reads too slowly.
void KvWatch::tell_all(const std::string& frames) {
  for (auto next = subscribers_.begin(); next != subscribers_.end();) {
    const auto subscriber = next++;
    auto& [id, at_first] = *subscriber;
    const size_t queued = server_.bytes_queued(id);
    at_first = std::min(at_first, queued);
    if (queued > at_first + limits::kKvStreamQueueBytesMax) {
      server_.abort(id);
      subscribers_.erase(subscriber);
    } else {
      server_.write(id, frames);
    }
  }
}

void KvWatch::ping() {
  std::string nothing;
  openai::append_kv_frame(nothing, "");
  tell_all(nothing);
  timer_ = loop_.call_at(loop_.now() + openai::kKvPingInterval, [this] { ping(); });
}

void KvWatch::close() {
  closed_ = true;
  for (const auto& [id, at_first] : std::exchange(subscribers_, {})) {
    server_.end(id);
  }
}

}  // namespace pdjob::worker
