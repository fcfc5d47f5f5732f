// WorkerMember: a worker as a member of its job: it reports its load, and it drains. Loop-bound.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "net/control/job_member.h"
#include "net/http/http_server.h"
#include "worker/api/openai_api.h"

namespace pdjob::worker {

class WorkerMember final : public net::JobMember::Handler {
 public:
  // All must outlive it.
  struct Parts {
    OpenaiApi& api;
    net::HttpServer& server;
    std::function<void()> drain_engine;
    std::function<void()> end;  // The process is to end.
    // It is to serve as another engine. The member must be released, for the one that follows.
    // Empty: it ends, and its launcher starts a new process.
    std::function<void(const net::Drain::Next&)> change_role;
    // Reads other weights. Empty: the job updates no weights.
    std::function<void(const net::PrepareWeights&)> prepare;
  };
  explicit WorkerMember(Parts parts) : parts_(std::move(parts)) {}

  // The member's handler is this object.
  void serve(std::unique_ptr<net::JobMember> member, net::WorkerEntry self) {
    member_ = std::move(member);
    member_->serve(std::move(self));
  }

  // The same, with the member of an earlier role.
  void serve_on(std::unique_ptr<net::JobMember> member, net::WorkerEntry self) {
    member_ = std::move(member);
    member_->rejoin(*this, std::move(self));
  }
  std::unique_ptr<net::JobMember> release() { return std::move(member_); }

  // To the launcher.
  void tell(const net::Message& message) {
    if (member_) {
      member_->tell(message);
    }
  }

  // What the engine thread has put out.
  void take(OutputBatch batch) {
    if (parts_.api.take(std::move(batch)) && member_ && member_->draining()) {
      parts_.server.stop_accepting();
      member_->drained();
    }
  }

 private:
  void on_drain(Duration /*within*/) override { parts_.api.start_draining(parts_.drain_engine); }
  size_t replies_alive() override { return parts_.server.replies_alive(); }
  void on_shutdown() override { parts_.end(); }
  void on_next_role(const net::Drain::Next& next) override {
    parts_.change_role ? parts_.change_role(next) : parts_.end();
  }
  void on_control(const net::Message& message) override {
    const auto* order = std::get_if<net::PrepareWeights>(&message);
    if (order != nullptr && parts_.prepare) {
      parts_.prepare(*order);
    }
  }
  net::WorkerLoad current_load() override { return parts_.api.load(); }

  const Parts parts_;
  std::unique_ptr<net::JobMember> member_;
};

}  // namespace pdjob::worker
