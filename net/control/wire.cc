#include "net/control/wire.h"

#include <array>
#include <cstdint>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/config/http_paths.h"
#include "common/limits.h"
#include "net/control/wire_fields.h"

namespace pdjob::net {

namespace {

constexpr uint32_t kMagic = 0x626a6470;  // "pdjb" as bytes on the wire.
constexpr size_t kHeadBytes = 8;         // Magic, version, type.

template <class Codec>
void text(Codec& codec, typename Codec::template Ref<std::string> text) {
  codec.text(text, limits::kControlStringBytesMax);
}

// A Membership of all workers fits, whatever engines they have, and one with as many stores.
static_assert(limits::kControlMessageBytesMax >
              limits::kWorkersMax * (12 * limits::kControlStringBytesMax +
                                     kEnginePathsMax * (kEnginePathBytesMax + 4) +
                                     kAdaptersMax * (kAdapterNameBytesMax + 4)));

// The fields of each message in wire order, once for both directions.

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WorkerEntry> worker) {
  text(codec, worker.name);
  text(codec, worker.engine_id);
  codec.word(worker.role, Role::kPrefill, Role::kStore);
  text(codec, worker.host);
  codec.value(worker.port);
  text(codec, worker.model);
  text(codec, worker.kv_address);
  text(codec, worker.key);
  codec.word(worker.protocol, Protocol::kAuto, Protocol::kSglang);
  text(codec, worker.abort);
  codec.word(worker.standing, Standing::kProving, Standing::kLeaving);
  codec.value(worker.local_links);
  text(codec, worker.model_digest);
  text(codec, worker.weight_version);
  codec.value(worker.context_max);
  codec.value(worker.created);
  codec.value(worker.shares_cores);
  text(codec, worker.fingerprint);
  codec.list(worker.routes, kEnginePathsMax,
             [](Codec& in, auto& route) { in.text(route, kEnginePathBytesMax); });
  codec.list(worker.adapters, kAdaptersMax,
             [](Codec& in, auto& name) { in.text(name, kAdapterNameBytesMax); });
  text(codec, worker.adapter_name);
  codec.value(worker.generates);
  codec.value(worker.kv_events_port);
  codec.value(worker.kv_replay_port);
  codec.value(worker.kv_ranks);
  codec.value(worker.background_priority);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WorkerLoad> load) {
  codec.value(load.requests_running);
  codec.value(load.requests_queued);
  codec.value(load.tokens_queued);
  codec.value(load.kv_rows_used);
  codec.value(load.kv_rows_max);
  codec.value(load.standstill_ms);
  codec.value(load.kv_received);
  codec.value(load.patience_ms);
  codec.value(load.starved_ms);
  codec.value(load.ttft_us);
  codec.value(load.itl_us);
  codec.value(load.phases.queue_us);
  codec.value(load.phases.prefill_us);
  codec.value(load.phases.kv_us);
  codec.value(load.tokens_computed);
  codec.value(load.busy_us);
  codec.value(load.ttft_sum_us);
  codec.value(load.ttft_count);
  codec.value(load.itl_sum_us);
  codec.value(load.itl_count);
  codec.value(load.steps.us);
  codec.value(load.steps.steps);
  codec.value(load.steps.tokens);
  codec.value(load.steps.rows_read);
  codec.value(load.steps.outputs);
  codec.value(load.borrowed_steps);
  codec.value(load.lending_rests);
  codec.value(load.lending_rests_now);
  codec.value(load.background_requests);
  codec.value(load.background_tokens);
  codec.value(load.background_busy_us);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Departure> departure) {
  text(codec, departure.name);
  text(codec, departure.engine_id);
  codec.word(departure.cause, LossCause::kUnknown, LossCause::kHang);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Registered> message) {
  fields(codec, message.worker);
  codec.value(message.pid);
  codec.value(message.number);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WorkerTrouble> trouble) {
  text(codec, trouble.worker);
  text(codec, trouble.why);
  text(codec, trouble.partner);
  codec.value(trouble.lasts);
}

template <class Codec>
void troubles(Codec& codec, auto& items) {
  codec.list(items, kTroublesMax, [](Codec& in, auto& trouble) { fields(in, trouble); });
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<HeartbeatSent> message) {
  text(codec, message.name);
  text(codec, message.engine_id);
  codec.value(message.sequence);
  codec.value(message.waited_us);
  codec.value(message.starved_permille);
  fields(codec, message.load);
  codec.value(message.unusable);
  troubles(codec, message.troubles);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Acknowledge> message) {
  codec.value(message.number);
}

template <class Codec, class Items>
void list(Codec& codec, Items& items) {
  codec.list(items, limits::kWorkersMax, [](Codec& in, auto& item) { fields(in, item); });
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Membership> message) {
  codec.value(message.version);
  codec.value(message.since);
  list(codec, message.workers);
  list(codec, message.routers);
  list(codec, message.stores);
  list(codec, message.left);
  codec.value(message.asleep);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<LoadReported> message) {
  text(codec, message.name);
  text(codec, message.engine_id);
  fields(codec, message.load);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<Drain> message) {
  codec.value(message.deadline_ms);
  codec.word(message.next.role, Role::kPrefill, Role::kBoth);
  text(codec, message.next.engine_id);
  text(codec, message.next.link_keys);
  codec.value(message.next.weights_order);
  text(codec, message.next.weight_version);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<MembershipApplied> message) {
  text(codec, message.engine_id);
  codec.value(message.version);
}

template <class Codec>
void fields(Codec&, typename Codec::template Ref<RegisterAsked>) {}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WeightsPrepared> message) {
  text(codec, message.engine_id);
  codec.value(message.order);
  text(codec, message.path);
  text(codec, message.digest);
  codec.value(message.bytes);
  codec.value(message.took_us);
  text(codec, message.error);
  codec.value(message.refused);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<AdmissionApplied> message) {
  text(codec, message.engine_id);
  codec.value(message.epoch);
  codec.value(message.running);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<OrderAsked> message) {
  codec.value(message.id);
  codec.word(message.kind, OrderKind::kReport, OrderKind::kCancel);
  codec.word(message.mode, PauseMode::kWait, PauseMode::kRetract);
  text(codec, message.path);
  text(codec, message.version);
  codec.value(message.keeps_pause);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<PrepareWeights> message) {
  codec.value(message.order);
  text(codec, message.path);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<AdmissionAsked> message) {
  codec.value(message.epoch);
  codec.value(message.closed);
  codec.word(message.mode, PauseMode::kWait, PauseMode::kRetract);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<WeightSource> source) {
  text(codec, source.path);
  text(codec, source.version);
  text(codec, source.digest);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<OrderAnswered> message) {
  codec.value(message.id);
  codec.value(message.status);
  text(codec, message.message);
  fields(codec, message.weights);
  codec.value(message.paused);
  codec.word(message.mode, PauseMode::kWait, PauseMode::kRetract);
  codec.value(message.workers);
  codec.value(message.serving);
  codec.value(message.updates);
  troubles(codec, message.troubles);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<SpecAsked> message) {
  text(codec, message.digest);
  codec.text(message.work, limits::kConfigBytesMax);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<SpecApplied> message) {
  text(codec, message.engine_id);
  text(codec, message.digest);
}

// A message's type on the wire is its place in the variant plus one. The order is fixed within a
// version.
static_assert(std::variant_size_v<Message> == 16);

template <size_t... I>
Message blank(size_t index, std::index_sequence<I...>) {
  using Make = Message (*)();
  constexpr std::array<Make, sizeof...(I)> kMake = {
      +[] { return Message(std::in_place_index<I>); }...};
  return kMake[index]();
}

Error corrupt(std::string what) {
  return {ErrorCode::kCorrupt, "control message: " + std::move(what)};
}

void append(std::string& bytes, const Message& message) {
  WireWriter writer(bytes);
  writer.value(kMagic);
  writer.value(kWireVersion);
  writer.value(static_cast<uint16_t>(message.index() + 1));
  std::visit([&writer](const auto& body) { fields(writer, body); }, message);
  PDJOB_CHECK(bytes.size() <= limits::kControlMessageBytesMax, bytes.size());
}

}  // namespace

std::string encode(const Message& message) {
  std::string bytes;
  append(bytes, message);
  return bytes;
}

std::string encode_order(uint64_t launcher, const Message& message) {
  std::string bytes;
  WireWriter(bytes).value(launcher);
  append(bytes, message);
  return bytes;
}

Result<Order> decode_order(std::span<const std::byte> bytes) {
  constexpr size_t kNumberBytes = 8;
  if (bytes.size() < kNumberBytes) {
    return corrupt(std::to_string(bytes.size()) + " bytes");
  }
  WireReader reader(bytes.first(kNumberBytes));
  Order order;
  reader.value(order.launcher);
  PDJOB_TRY(order.message, decode(bytes.subspan(kNumberBytes)));
  return order;
}

Result<Message> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || bytes.size() > limits::kControlMessageBytesMax) {
    return corrupt(std::to_string(bytes.size()) + " bytes");
  }
  WireReader reader(bytes);
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t type = 0;
  reader.value(magic);
  reader.value(version);
  reader.value(type);
  if (magic != kMagic) {
    return corrupt("wrong magic");
  }
  if (version != kWireVersion) {
    return Error{ErrorCode::kUnsupported, "control message: version " + std::to_string(version) +
                                              ", here is " + std::to_string(kWireVersion)};
  }
  constexpr size_t kTypes = std::variant_size_v<Message>;
  if (type < 1 || type > kTypes) {
    return corrupt("type " + std::to_string(type));
  }
  Message message = blank(type - 1U, std::make_index_sequence<kTypes>());
  std::visit([&reader](auto& body) { fields(reader, body); }, message);
  if (reader.failed() || !reader.at_end()) {
    return corrupt("type " + std::to_string(type) + " with wrong fields");
  }
  return message;
}

}  // namespace pdjob::net
