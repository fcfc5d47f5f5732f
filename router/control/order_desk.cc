#include "router/control/order_desk.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pdjob::router {
namespace {

constexpr Duration kRepeatAfter = std::chrono::seconds(1);
constexpr size_t kWaitingMax = 64;  // Of reports, and of orders that do something.
// A launcher that lives answers a report at once.
constexpr Duration kReportPatience = std::chrono::seconds(5);

bool is_report(const net::OrderAsked& order) { return order.kind == net::OrderKind::kReport; }

}  // namespace

OrderDesk::OrderDesk(net::Loop& loop, std::function<void(const net::OrderAsked&)> send,
                     Duration patience)
    : loop_(loop), send_(std::move(send)), patience_(patience) {}

OrderDesk::~OrderDesk() { loop_.cancel(timer_); }

void OrderDesk::ask(net::OrderAsked order, Done done) {
  const auto alike = std::ranges::count_if(waiting_, [&order](const auto& each) {
    return is_report(each.second.order) == is_report(order);
  });
  if (static_cast<size_t>(alike) >= kWaitingMax) {
    done({.status = 503, .message = "too many orders wait for the launcher"});
    return;
  }
  order.id = loop_.entropy();
  send_(order);
  const Duration patience = is_report(order) ? std::min(patience_, kReportPatience) : patience_;
  waiting_[order.id] = {
      .order = order, .done = std::move(done), .deadline = loop_.now() + patience};
  if (!std::exchange(repeats_, true)) {
    timer_ = loop_.call_at(loop_.now() + kRepeatAfter, [this] { repeat(); });
  }
}

void OrderDesk::take(const net::OrderAnswered& answer) {
  if (auto found = waiting_.extract(answer.id)) {
    found.mapped().done(answer);
  }
}

void OrderDesk::repeat() {
  std::vector<uint64_t> overdue;
  for (const auto& [id, waiting] : waiting_) {
    if (loop_.now() >= waiting.deadline) {
      overdue.push_back(id);
    } else {
      send_(waiting.order);
    }
  }
  for (const uint64_t id : overdue) {
    take({.id = id, .status = 504, .message = "the launcher does not answer"});
  }
  repeats_ = !waiting_.empty();
  if (repeats_) {
    timer_ = loop_.call_at(loop_.now() + kRepeatAfter, [this] { repeat(); });
  }
}

}  // namespace pdjob::router
