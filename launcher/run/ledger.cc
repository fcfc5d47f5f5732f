#include "launcher/run/ledger.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "common/limits.h"
#include "launcher/job/time_fields.h"
#include "launcher/run/sealed_bytes.h"
#include "net/control/process_spec.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

namespace {

constexpr SealKind kSeal = {.magic = 0x6c6a6470,  // "pdjl" as bytes on disk.
                            .version = 12,
                            .purpose = "pdjob ledger",
                            .name = "the ledger"};
constexpr size_t kTextBytesMax = 64 * limits::kKiB;
constexpr size_t kConfigBytesMax = size_t{4} * 1024 * 1024;
constexpr size_t kGroupsMax = 2 * limits::kWorkersMax;  // A model has two, and a worker.
constexpr Duration kLongAgo = std::chrono::hours(24);   // Nobody remembers it.

template <class Codec>
void head_fields(Codec& codec, typename Codec::template Ref<JobLedger> ledger) {
  codec.text(ledger.build, kTextBytesMax);
  codec.value(ledger.launcher);
  duration(codec, ledger.clock);
  codec.text(ledger.root, kTextBytesMax);
  codec.text(ledger.nonce, kTextBytesMax);
  codec.value(ledger.control_port);
  codec.value(ledger.agent_port);
  codec.value(ledger.door_port);
  codec.value(ledger.batch_door_port);
  codec.text(ledger.config_source, kTextBytesMax);
  codec.text(ledger.config_text, kConfigBytesMax);
  codec.value(ledger.stopping);
  codec.value(ledger.planned);
  codec.value(ledger.rollout.paused);
  codec.word(ledger.rollout.mode, net::PauseMode::kWait, net::PauseMode::kRetract);
  codec.value(ledger.rollout.updates);
  codec.text(ledger.rollout.asked_path, kTextBytesMax);
  codec.value(ledger.rollout.applying);
  codec.value(ledger.rollout.keeps_pause);
  codec.list(ledger.stragglers.groups, kGroupsMax, [](Codec& fields, auto& group) {
    fields.text(group.name, kTextBytesMax);
    instant(fields, group.next);
    duration(fields, group.wait);
  });
  codec.list(ledger.stragglers.replaced, limits::kWorkersMax, [](Codec& fields, auto& replaced) {
    fields.text(replaced.worker, kTextBytesMax);
    fields.text(replaced.node, kTextBytesMax);
    instant(fields, replaced.at);
  });
  codec.list(ledger.scaling.notes, ScalingRecord::kNotesMax, [](Codec& fields, auto& note) {
    instant(fields, note.at);
    fields.text(note.text, Note::kTextBytesMax);
  });
  codec.list(ledger.scaling.by_hand, kGroupsMax,
             [](Codec& fields, auto& group) { fields.text(group, kTextBytesMax); });
  codec.value(ledger.applies);
  codec.text(ledger.earlier_source, kTextBytesMax);
  codec.text(ledger.earlier_text, kConfigBytesMax);
  codec.list(ledger.rollout.versions, kVersionsKept, [](auto& fields, auto& named) {
    fields.text(named.first, kTextBytesMax);
    fields.text(named.second, kTextBytesMax);
  });
}

struct Work {
  net::Role role = net::Role::kBoth;
  std::string model;
  std::string text;
};

template <class Codec>
void work_fields(Codec& codec, typename Codec::template Ref<std::vector<Work>> work) {
  codec.list(work, kGroupsMax, [](Codec& fields, auto& each) {
    fields.word(each.role, net::Role::kPrefill, net::Role::kStore);
    fields.text(each.model, kTextBytesMax);
    fields.text(each.text, net::kWorkBytesMax);
  });
}

void fields(net::WireWriter& out, const JobSpecs& specs) {
  std::vector<Work> work;
  for (const auto& [key, text] : specs.work) {
    work.push_back({.role = key.first, .model = key.second, .text = text});
  }
  out.text(specs.launcher, kConfigBytesMax);
  work_fields(out, work);
}

void fields(net::WireReader& in, JobSpecs& specs) {
  std::vector<Work> work;
  in.text(specs.launcher, kConfigBytesMax);
  work_fields(in, work);
  for (Work& each : work) {
    specs.work.emplace(SpecKey(each.role, std::move(each.model)), std::move(each.text));
  }
}

uint64_t bits_of(Duration duration) { return static_cast<uint64_t>(duration.count()); }

// The same time by another clock. The numbers may be any, so they wrap.
Instant moved(Instant when, Duration from, Duration to) {
  const uint64_t count = bits_of(when.time_since_epoch()) + bits_of(from) - bits_of(to);
  return Instant(Duration(static_cast<int64_t>(count)));
}

// Somebody then has an engine id, or has left, although another launcher would take it for a member
// that serves.
bool makes_or_ends_an_engine(const Effect& effect) {
  const auto* send = std::get_if<Send>(&effect);
  return std::holds_alternative<Spawn>(effect) ||
         (send != nullptr && std::holds_alternative<net::Drain>(send->message));
}

}  // namespace

LedgerDue ledger_due(const Job& job, const Event& event, const std::vector<Effect>& effects) {
  if (std::holds_alternative<WeightsChosen>(event) ||
      std::holds_alternative<GroupsChanged>(event) || std::holds_alternative<ReplaceAsked>(event) ||
      std::ranges::any_of(effects, makes_or_ends_an_engine)) {
    return LedgerDue::kBefore;
  }
  return is_heartbeat(event)                  ? LedgerDue::kNever
         : job.state() == JobState::kDraining ? LedgerDue::kBefore
                                              : LedgerDue::kSoon;
}

void change_clock(JobLedger& ledger, Duration clock, Instant now) {
  const Duration old = std::exchange(ledger.clock, clock);
  const auto past = [&](Instant& when) {
    when = std::clamp(moved(when, old, clock), now - kLongAgo, now);
  };
  for (NodeFaults& known : ledger.job.trust) {
    past(known.at);
  }
  for (auto& replaced : ledger.stragglers.replaced) {
    past(replaced.at);
  }
  for (Note& note : ledger.scaling.notes) {
    past(note.at);
  }
  for (auto& group : ledger.stragglers.groups) {
    group.next =
        std::clamp(moved(group.next, old, clock), now - kLongAgo, now + ReplacementPace::kWaitMax);
  }
}

void take(JobLedger& ledger, const Job& job) {
  ledger.job = job.record();
  ledger.planned = true;
  ledger.stopping =
      !ledger.job.warm && (job.state() == JobState::kDraining || job.state() == JobState::kDone);
}

// Magic, version, fields, digest of all before.
std::string encode(const JobLedger& ledger) {
  std::string bytes;
  net::WireWriter writer(bytes);
  head_fields(writer, ledger);
  fields(writer, ledger.specs);
  fields(writer, ledger.earlier_specs);
  writer.list(ledger.plan_nodes, kNodesMax,
              [](net::WireWriter& out, const Node& node) { write_fields(out, node); });
  write_fields(writer, ledger.job);
  return seal(kSeal, bytes);
}

Result<JobLedger> decode_ledger(const std::string& bytes) {
  PDJOB_TRY(const std::string_view body, unseal(kSeal, bytes));
  net::WireReader reader(std::as_bytes(std::span(body.data(), body.size())));
  JobLedger ledger;
  head_fields(reader, ledger);
  fields(reader, ledger.specs);
  fields(reader, ledger.earlier_specs);
  reader.list(ledger.plan_nodes, kNodesMax,
              [](net::WireReader& in, Node& node) { read_fields(in, node); });
  read_fields(reader, ledger.job);
  if (reader.failed() || !reader.at_end()) {
    return damaged(kSeal);
  }
  return ledger;
}

}  // namespace pdjob::launcher
