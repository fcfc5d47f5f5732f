#include "launcher/report/job_log.h"

#include <string>

#include "common/log.h"
#include "launcher/view/table.h"

namespace pdjob::launcher {

namespace {

struct MessageText {
  std::string operator()(const net::Registered& m) const {
    return "Registered pid=" + std::to_string(m.pid);
  }
  std::string operator()(const net::HeartbeatSent&) const { return ""; }
  std::string operator()(const net::Acknowledge&) const { return "Acknowledge"; }
  std::string operator()(const net::Membership& m) const {
    std::string names;
    for (const net::WorkerEntry& worker : m.workers) {
      names += (names.empty() ? "" : ",") + worker.engine_id;
    }
    std::string left;
    for (const net::Departure& gone : m.left) {
      left += (left.empty() ? " left=" : ",") + gone.engine_id + "(" + to_string(gone.cause) + ")";
    }
    const std::string since = m.since == 0 ? "" : " since=" + std::to_string(m.since);
    return "Membership version=" + std::to_string(m.version) + since + " workers=" + names + left +
           (m.asleep ? " asleep" : "");
  }
  std::string operator()(const net::LoadReported&) const { return ""; }
  std::string operator()(const net::Drain& m) const {
    return "Drain deadline_ms=" + std::to_string(m.deadline_ms);
  }
  std::string operator()(const net::RegisterAsked&) const { return "RegisterAsked"; }
  std::string operator()(const net::MembershipApplied& m) const {
    return "MembershipApplied version=" + std::to_string(m.version);
  }
  std::string operator()(const net::WeightsPrepared& m) const {
    return "WeightsPrepared order=" + std::to_string(m.order) + " digest=" + m.digest +
           (m.error.empty() ? "" : " error=" + m.error);
  }
  std::string operator()(const net::AdmissionApplied& m) const {
    return "AdmissionApplied epoch=" + std::to_string(m.epoch) +
           " running=" + std::to_string(m.running);
  }
  std::string operator()(const net::OrderAsked& m) const {
    return std::string("OrderAsked ") + to_string(m.kind) + " id=" + std::to_string(m.id);
  }
  std::string operator()(const net::PrepareWeights& m) const {
    return "PrepareWeights order=" + std::to_string(m.order) + " path=" + m.path;
  }
  std::string operator()(const net::AdmissionAsked& m) const {
    return "AdmissionAsked epoch=" + std::to_string(m.epoch) + (m.closed ? " closed" : " open");
  }
  std::string operator()(const net::OrderAnswered& m) const {
    return "OrderAnswered id=" + std::to_string(m.id) + " status=" + std::to_string(m.status);
  }
  std::string operator()(const net::SpecAsked& m) const { return "SpecAsked digest=" + m.digest; }
  std::string operator()(const net::SpecApplied& m) const {
    return "SpecApplied digest=" + m.digest;
  }
};

std::string id(Incarnation incarnation) {
  return " incarnation=" + std::to_string(incarnation.value);
}

std::string at(const std::string& node) { return node.empty() ? "" : " node=" + node; }

std::string with_peer(const std::string& peer, const net::Message& message, const char* direction) {
  const std::string text = std::visit(MessageText(), message);
  return text.empty() ? "" : direction + peer + " " + text;
}

struct EventText {
  std::string operator()(const Started&) const { return "Started"; }
  std::string operator()(const Spawned& e) const {
    return "Spawned" + id(e.incarnation) + at(e.node) + " pid=" + std::to_string(e.pid);
  }
  std::string operator()(const SpawnFailed& e) const {
    return "SpawnFailed" + id(e.incarnation) + at(e.node) + ": " + e.reason;
  }
  std::string operator()(const ProcessExited& e) const {
    return "ProcessExited" + id(e.incarnation) + at(e.node) + ": " + e.how +
           (e.crashed ? ", a crash" : "");
  }
  std::string operator()(const MessageArrived& e) const {
    return with_peer(e.peer, e.message, "from ");
  }
  std::string operator()(const ProbeSucceeded& e) const {
    return "ProbeSucceeded probe=" + std::to_string(e.probe) +
           " kv_bytes=" + std::to_string(e.kv_bytes);
  }
  std::string operator()(const ProbeFailed& e) const {
    return "ProbeFailed probe=" + std::to_string(e.probe) + ": " + e.reason;
  }
  std::string operator()(const StopAsked& e) const {
    return "StopAsked exit_code=" + std::to_string(e.exit_code);
  }
  std::string operator()(const TimePassed&) const { return ""; }
  std::string operator()(const ReplaceAsked& e) const { return "ReplaceAsked " + e.name; }
  std::string operator()(const GroupsChanged& e) const {
    std::string text = "GroupsChanged";
    for (const JobGroup& group : e.groups) {
      text += " " + group.name + "=" + std::to_string(group.wanted);
    }
    return text;
  }
  std::string operator()(const NodeBlamed& e) const { return "NodeBlamed " + e.name; }
  std::string operator()(const NodeJoined& e) const {
    return "NodeJoined " + e.node.name + " running=" + std::to_string(e.running.size());
  }
  std::string operator()(const ProcessSeen& e) const {
    return "ProcessSeen" + id(e.incarnation) + at(e.node) +
           (e.signs.stopped  ? " stopped"
            : e.signs.asleep ? " asleep"
                             : " runs or waits to run") +
           " turns=" + std::to_string(e.signs.turns) +
           " waited_ms=" + std::to_string(e.signs.waited_us / 1000);
  }
  std::string operator()(const WeightsChosen& e) const {
    return "WeightsChosen version=" + e.weights.version + " path=" + e.weights.path +
           " digest=" + e.weights.digest + " prepared=" + std::to_string(e.prepared.size());
  }
  std::string operator()(const NodeLost& e) const { return "NodeLost " + e.name + ": " + e.why; }
};

struct EffectText {
  std::string operator()(const Spawn& e) const {
    return "Spawn " + e.name + id(e.incarnation) + " engine_id=" + e.engine_id + at(e.place.node);
  }
  std::string operator()(const SendSignal& e) const {
    return to_string(e.signal) + id(e.incarnation) + at(e.node);
  }
  std::string operator()(const LookAt& e) const {
    return "LookAt" + id(e.incarnation) + at(e.node);
  }
  std::string operator()(const Send& e) const { return with_peer(e.peer, e.message, "to "); }
  std::string operator()(const Probe& e) const {
    return "Probe probe=" + std::to_string(e.probe) + " model=" + e.model + " router=" + e.router +
           " prefill=" + e.prefill + " decode=" + e.decode;
  }
  std::string operator()(const ReportStarved& e) const {
    return "ReportStarved " +
           (e.ended ? e.name + " is starved no more, after " + duration_text(e.lasted)
                    : starved_text(e.name, e.share));
  }
  std::string operator()(const ReportReady&) const { return "ReportReady"; }
  std::string operator()(const ReportAdopted& e) const {
    return "ReportAdopted " + std::to_string(e.adopted) + " of " + std::to_string(e.processes);
  }
  std::string operator()(const CloseDoors&) const { return "CloseDoors"; }
  std::string operator()(const Finish& e) const {
    return "Finish exit_code=" + std::to_string(e.exit_code) + " " + e.reason;
  }
};

void log_unless_empty(const char* kind, const std::string& text) {
  if (!text.empty()) {
    log::info(kind + text);
  }
}

}  // namespace

void log_event(const Event& event) { log_unless_empty("event ", std::visit(EventText(), event)); }
void log_effect(const Effect& effect) {
  log_unless_empty("effect ", std::visit(EffectText(), effect));
}

}  // namespace pdjob::launcher
