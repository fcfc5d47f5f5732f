#include "router/router_member.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/log.h"
#include "router/core/verdict.h"

namespace pdjob::router {
namespace {

constexpr Duration kCrashWordWait = std::chrono::milliseconds(10);

}  // namespace

RouterConfig in_job(RouterConfig config, const net::ProcessSpec& spec) {
  config.probe_key = spec.probe_key;
  config.batches.key = spec.batch_key;
  config.batches.rows_key = spec.rows_key;
  if (const auto address = net::parse_http_address(spec.batch_address)) {
    config.batches.address = *address;
  }
  config.hears_losses = !spec.control.empty();
  config.own_keys = !spec.control.empty();
  if (!config.tenants.empty() && !spec.probe_key.empty()) {
    config.tenants.push_back(probe_tenant(spec.probe_key));
  }
  return config;
}

RouterMember::RouterMember(net::Loop& loop, HttpApi& api, std::function<void()> end)
    : loop_(loop), api_(api), end_(std::move(end)) {
  api_.relay().on_quiet([this] { tell_admission(); });
}

void RouterMember::begin_closed() { api_.relay().submit(AdmissionSet{.closed = true}); }

void RouterMember::serve(std::unique_ptr<net::JobMember> member, net::WorkerEntry self) {
  engine_id_ = self.engine_id;
  member_ = std::move(member);
  member_->serve(std::move(self));
}

void RouterMember::on_drain(Duration /*within*/) {
  api_.server().stop_accepting();
  api_.drain();
}

net::WorkerLoad RouterMember::current_load() {
  const Router& core = api_.relay().core();
  const Router::Background background = core.background();
  // No worker comes for the background's requests, but the last one stays for them.
  const size_t queued = core.requests_queued() - (core.usable() ? background.queued : 0);
  const size_t running =
      core.requests_alive() - core.requests_queued() - (background.alive - background.queued);
  // Without workers, asynchronous requests wait for them, too. They wake a job that is at zero.
  const size_t stored = core.usable() ? 0 : api_.async_queued();
  return {.requests_running = static_cast<uint32_t>(running + (background.alive > 0 ? 1 : 0)),
          .requests_queued = static_cast<uint32_t>(queued + stored),
          .phases = api_.relay().watch().metrics().phases(loop_.now()),
          .background_requests = static_cast<uint32_t>(background.alive)};
}

void RouterMember::add_to_heartbeat(net::HeartbeatSent& message) {
  const Router& core = api_.relay().core();
  message.unusable = !core.serves(loop_.now());
  for (const auto& [id, worker] : core.workers().all()) {
    if (worker.bad_status != 0 && message.troubles.size() < net::kTroublesMax) {
      message.troubles.push_back(
          {.worker = worker.entry.name, .why = answer_text(worker.bad_status)});
    }
  }
  for (const PairSuspicions::Pair& pair : core.suspicions().pairs(loop_.now())) {
    const Worker* const prefill = core.workers().find(pair.prefill);
    const Worker* const decode = core.workers().find(pair.decode);
    if (prefill != nullptr && decode != nullptr && message.troubles.size() < net::kTroublesMax) {
      message.troubles.push_back({.worker = decode->entry.name,
                                  .why = why_avoided(pair.fault),
                                  .partner = prefill->entry.name,
                                  .lasts = pair.lasts});
    }
  }
}

void RouterMember::on_control(const net::Message& message) {
  if (const auto* membership = std::get_if<net::Membership>(&message)) {
    take(*membership);
  } else if (const auto* load = std::get_if<net::LoadReported>(&message)) {
    api_.relay().submit(LoadChanged{load->name, load->engine_id, load->load});
  } else if (const auto* asked = std::get_if<net::AdmissionAsked>(&message)) {
    take(*asked);
  } else if (const auto* spec = std::get_if<net::SpecAsked>(&message)) {
    take(*spec);
  } else if (const auto* answer = std::get_if<net::OrderAnswered>(&message)) {
    if (on_answer_) {
      on_answer_(*answer);
    }
  }
}

void RouterMember::take(const net::AdmissionAsked& asked) {
  if (asked.epoch < epoch_) {
    return;
  }
  if (asked.epoch > epoch_) {
    log::info(std::string("admission ") + (asked.closed ? "closes, mode " : "opens, was mode ") +
              net::to_string(asked.mode));
  }
  epoch_ = asked.epoch;
  api_.relay().submit(AdmissionSet{.closed = asked.closed, .mode = asked.mode});
  tell_admission();
}

// Without an answer it is asked again.
void RouterMember::take(const net::SpecAsked& asked) {
  const auto config = read_work_ ? read_work_(asked.work)
                                 : Error{ErrorCode::kUnsupported, "it keeps what it was given"};
  if (!config) {
    log::warn("the changed settings are refused: " + config.error().message);
    return;
  }
  log::info("works by the settings with digest " + asked.digest + " from now on");
  api_.relay().take_over(*config);
  member_->tell(net::SpecApplied{.engine_id = engine_id_, .digest = asked.digest});
}

void RouterMember::tell_admission() {
  if (member_) {
    member_->tell(net::AdmissionApplied{.engine_id = engine_id_,
                                        .epoch = epoch_,
                                        .running = api_.relay().core().requests_running()});
  }
}

void RouterMember::take(const net::Membership& membership) {
  if (!list_.take(membership)) {
    return;
  }
  log::info("membership version " + std::to_string(membership.version) + ": " +
            std::to_string(list_.workers().size()) + " workers");
  api_.members().publish({.routers = list_.routers(), .workers = list_.serving()});
  told_.push_back({{.workers = list_.workers(),
                    .left = membership.left,
                    .asleep = membership.asleep,
                    .stores = list_.stores()},
                   membership.version});
  const bool waits =
      told_.size() > 1 || std::ranges::any_of(membership.left, [](const net::Departure& departure) {
        return departure.cause == net::LossCause::kCrash;
      });
  if (!waits) {
    apply();
  } else if (told_.size() == 1) {
    timer_ = loop_.call_at(loop_.now() + kCrashWordWait, [this] { apply(); });
  }
}

void RouterMember::apply() {
  for (; !told_.empty(); told_.pop_front()) {
    api_.relay().end_reconnecting_legs(told_.front().change.left);
    api_.relay().submit(std::move(told_.front().change));
    if (!std::exchange(accepting_, true) && !member_->draining()) {
      api_.server().start_accepting();
    }
    member_->membership_applied(told_.front().version);
  }
}

}  // namespace pdjob::router
