#include "router/members/static_workers.h"

#include <utility>

#include "common/crypto/job_keys.h"
#include "common/limits.h"
#include "common/log.h"

namespace pdjob::router {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(2);
constexpr size_t kAnswerBytesMax = 64 * limits::kKiB;

}  // namespace

StaticWorkers::StaticWorkers(net::Loop& loop, const std::vector<StaticWorker>& workers,
                             const std::string& key, const RouterConfig& config,
                             std::function<void(RouterEvent)> submit)
    : loop_(loop),
      key_line_(authorization_line(key)),
      submit_(std::move(submit)),
      client_(net::HttpClient::create(loop)),
      core_(workers, key, config) {
  runner_.submit(TimePassed{});
}

void StaticWorkers::carry_out(const StaticMembers::Ask& effect) {
  net::fetch(
      loop_, *client_,
      {.to = effect.address,
       .method = "GET",
       .target = effect.path,
       .header_lines = key_line_,
       .connect_timeout = kAnswerTimeout,
       .head_timeout = kAnswerTimeout,
       .idle_timeout = kAnswerTimeout},
      kAnswerBytesMax,
      [this, worker = effect.worker, question = effect.question](Result<net::HttpReply> reply) {
        StaticMembers::Answered answer{.worker = worker, .question = question, .how = how(reply)};
        if (reply) {
          answer.status = reply->status;
          answer.body = std::move(reply->body);
        }
        runner_.submit(std::move(answer));
      });
}

void StaticWorkers::carry_out(const StaticMembers::Note& effect) {
  effect.is_warning ? log::warn(effect.text) : log::info(effect.text);
}

StaticMembers::Answered::How StaticWorkers::how(const Result<net::HttpReply>& reply) const {
  using How = StaticMembers::Answered::How;
  if (reply) {
    return How::kReply;
  }
  if (reply.error().code == ErrorCode::kCorrupt) {
    return How::kGarbage;
  }
  return reply.error().code == ErrorCode::kTimeout && client_->reached() ? How::kSilence
                                                                         : How::kFailure;
}

}  // namespace pdjob::router
