// RouterMember: a router as a member of its job. Its workers follow what the launcher tells, it
// reports its load, and it drains. Loop-bound.
//
// A crash ends connections, and the core blames the requests on them. So a report of a crash waits
// until the loop has read those ends, and ends the legs that would connect again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "common/result.h"
#include "net/control/job_member.h"
#include "net/control/member_list.h"
#include "net/control/message.h"
#include "net/control/process_spec.h"
#include "net/loop/loop.h"
#include "router/http_api.h"

namespace pdjob::router {

// Adds the settings of a job: its workers have keys, and its launcher reports why workers were
// lost. With tenants, the launcher is one of them.
RouterConfig in_job(RouterConfig config, const net::ProcessSpec& spec);

class RouterMember final : public net::JobMember::Handler {
 public:
  // Calls `end` when the process is to end.
  RouterMember(net::Loop& loop, HttpApi& api, std::function<void()> end);
  ~RouterMember() { loop_.cancel(timer_); }
  RouterMember(const RouterMember&) = delete;
  RouterMember& operator=(const RouterMember&) = delete;

  // The member's handler is this object.
  void serve(std::unique_ptr<net::JobMember> member, net::WorkerEntry self);
  // Admits no request until the launcher's first AdmissionAsked.
  void begin_closed();
  // An order of a trainer. The answer may never come.
  void ask(const net::OrderAsked& order) { member_->tell(order); }
  // Calls `then` with each answer to an order.
  void on_answer(std::function<void(const net::OrderAnswered&)> then) {
    on_answer_ = std::move(then);
  }
  // The router's part of ProcessSpec::work may change while it runs; this reads it.
  void on_work(std::function<Result<RouterConfig>(const std::string& work)> read) {
    read_work_ = std::move(read);
  }
  // The HttpApi has no request any more.
  void drained() { member_->drained(); }

 private:
  void on_drain(Duration within) override;
  size_t replies_alive() override { return api_.server().replies_alive(); }
  void on_shutdown() override { end_(); }
  net::WorkerLoad current_load() override;
  void add_to_heartbeat(net::HeartbeatSent& message) override;
  void on_control(const net::Message& message) override;
  void take(const net::Membership& membership);
  void apply();
  void take(const net::AdmissionAsked& asked);
  void take(const net::SpecAsked& asked);
  void tell_admission();

  struct Told {
    WorkersChanged change;
    uint64_t version = 0;
  };

  net::Loop& loop_;
  HttpApi& api_;
  const std::function<void()> end_;
  std::unique_ptr<net::JobMember> member_;
  net::MemberList list_;
  std::deque<Told> told_;  // Waits for the ends of broken connections.
  net::TimerId timer_;
  bool accepting_ = false;
  std::string engine_id_;
  uint64_t epoch_ = 0;  // Of the last AdmissionAsked.
  std::function<void(const net::OrderAnswered&)> on_answer_;
  std::function<Result<RouterConfig>(const std::string& work)> read_work_;
};

}  // namespace pdjob::router
