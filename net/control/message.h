// All messages of the control plane: one struct each, one variant. Past-tense facts go up to the
// launcher, imperatives go down. Bytes: wire.h. Values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/time.h"

namespace pdjob::net {

enum class Role : uint8_t {
  kPrefill = 1,
  kDecode = 2,
  kBoth = 3,
  kRouter = 4,
  kBatch = 5,  // The Batch API. It is no member that routers are told of.
  kStore = 6,  // Keeps KV for the workers of its node. It takes no requests.
};
const char* to_string(Role role);  // "prefill", ...
// True if it runs an engine.
constexpr bool is_worker(Role role) {
  return role == Role::kPrefill || role == Role::kDecode || role == Role::kBoth;
}

// The language of an engine for the hand-over of KV (router/core/kv_words.h).
enum class Protocol : uint8_t {
  kAuto = 0,      // pdjob's, if it has a kv_address; otherwise two hops.
  kPdjob = 1,     // Both legs at once; the decode worker fetches from the kv_address.
  kNixl = 2,      // vLLM's NixlConnector: two hops.
  kNixlPush = 3,  // vLLM's NixlPushConnector: both legs at once, after its first reply.
  kMooncake = 4,  // vLLM's MooncakeConnector: both legs at once, by its bootstrap server.
  kSglang = 5,    // Both legs at once; they meet in a room of its bootstrap server.
};

// The launcher decides with it which requests a member gets.
enum class Standing : uint8_t {
  kProving = 1,  // Only the launcher's probes.
  kServing = 2,
  kLeaving = 3,  // No new ones; those that run there go on.
};
const char* to_string(Standing standing);  // "proving", ...

inline constexpr size_t kAdaptersMax = 128;  // Of one worker. Its other ones are not served.
inline constexpr size_t kAdapterNameBytesMax = 128;

// A worker as a router needs to know it. `kv_address` is the JSON object for a decode leg's
// kv_transfer_params (remote_host, remote_port, remote_engine_id, ...). The router reads nothing of
// it but remote_host_id, and that only if the job has stores. Empty: the engine supports only the
// two-hop protocol.
struct WorkerEntry {
  std::string name;       // "prefill-0"; restarts keep it.
  std::string engine_id;  // New for each incarnation.
  Role role = Role::kBoth;
  std::string host;
  uint16_t port = 0;
  std::string model;  // Served model name.
  std::string kv_address;
  std::string key;  // API key of its HTTP port (Authorization: Bearer KEY); empty: none. Secret.
  Protocol protocol = Protocol::kAuto;
  // The call that frees KV which nobody will fetch, such as "DELETE /pdjob/transfers/{transfer}".
  // Empty: there is none; closing the connection ends the request, and a lease frees the KV.
  std::string abort;
  Standing standing = Standing::kServing;
  bool local_links = false;  // It has no keys for KV links: it hands over on its machine only.
  // The digest of its model's file, equal on all workers of a model. Empty: unknown.
  std::string model_digest;
  std::string weight_version;  // WeightSource::version. Empty: the job updates no weights.
  uint32_t context_max = 0;    // Tokens of a prompt and its output; 0: unknown.
  uint64_t created = 0;        // Of its model: when it was loaded, in Unix seconds; 0: unknown.
  // Set by the launcher: its prefill workers compute on the same cores, so a hand-over gains none.
  bool shares_cores = false;
  // The meaning of its KV and tokens. Only workers with the same one exchange KV, and continue each
  // other's streams.
  std::string fingerprint;
  // Of an engine of another make: paths of POSTs that one such worker serves whole, without a
  // hand-over of KV, and that pdjob does not read.
  std::vector<std::string> routes;
  // Names of more models that it serves: its model with an adapter (LoRA). Sorted. Members tell
  // changes of this list by JobMember::change().
  std::vector<std::string> adapters;
  // How a request names an adapter of its model, with {model} and {adapter}. Empty: by the name
  // under which it was loaded.
  std::string adapter_name;
  bool generates = true;  // False: its model only pools or transcribes, which takes its routes.
  // Where an engine of another make publishes its KV events: the ports of its first data-parallel
  // rank. Each further rank has the next port. 0: it publishes none.
  uint16_t kv_events_port = 0;
  uint16_t kv_replay_port = 0;  // Where it repeats past events. 0: nowhere.
  uint32_t kv_ranks = 1;        // Each of them has a cache of its own.
  // An engine of another make that schedules by the requests' member `priority`: the one of those
  // in the background. 0: it does not.
  uint32_t background_priority = 0;
  friend bool operator==(const WorkerEntry&, const WorkerEntry&) = default;
};

// Steps of an engine that can be compared with those of another one: their time, and all that it
// grows with. Totals since the engine started.
struct StepTotals {
  uint64_t us = 0;
  uint64_t steps = 0;
  uint64_t tokens = 0;     // Computed.
  uint64_t rows_read = 0;  // Each token reads the KV rows before it in its sequence.
  uint64_t outputs = 0;    // Rows of logits.

  void add(const StepTotals& other) {
    us += other.us;
    steps += other.steps;
    tokens += other.tokens;
    rows_read += other.rows_read;
    outputs += other.outputs;
  }
  friend bool operator==(const StepTotals&, const StepTotals&) = default;
};

// Where the time to the first token goes: means in microseconds over the last one or two minutes.
// 0: unknown.
struct PhaseMeans {
  uint64_t queue_us = 0;
  uint64_t prefill_us = 0;
  uint64_t kv_us = 0;
  friend bool operator==(const PhaseMeans&, const PhaseMeans&) = default;
};

// Load of a worker, in tokens and rows rather than in requests.
struct WorkerLoad {
  uint32_t requests_running = 0;
  uint32_t requests_queued = 0;
  uint64_t tokens_queued = 0;  // Prompt tokens not yet prefilled.
  uint64_t kv_rows_used = 0;
  uint64_t kv_rows_max = 0;
  uint64_t standstill_ms = 0;  // For how long a thread has had work without progress.
  // Grows with each prompt whose KV came from another worker, in the engine's own unit. Only an
  // engine of another make counts it.
  uint64_t kv_received = 0;
  // How long the engine may go without progress, judged by its pace so far; 0: unknown.
  uint64_t patience_ms = 0;
  uint64_t starved_ms = 0;  // Of standstill_ms: the time in which it waited for cores.
  // Means over the last minutes; 0: unknown. Of an engine of another make only.
  uint64_t ttft_us = 0;
  uint64_t itl_us = 0;
  // By the metrics of an engine of another make. Of a router: by its own clock.
  PhaseMeans phases;
  // Totals since the engine started, for whoever compares two heartbeats. 0: not counted.
  uint64_t tokens_computed = 0;  // Of prompts, and generated ones.
  uint64_t busy_us = 0;          // Time in steps of the engine.
  uint64_t ttft_sum_us = 0;
  uint64_t ttft_count = 0;
  uint64_t itl_sum_us = 0;
  uint64_t itl_count = 0;
  StepTotals steps;                // Of an embedded engine only.
  uint64_t borrowed_steps = 0;     // With threads that other engines of the machine lent.
  uint64_t lending_rests = 0;      // Times that borrowing was given up, because it did not pay.
  bool lending_rests_now = false;  // As of the last step.
  // Requests in the background, which take what others leave. The counts of requests, of queued
  // tokens and of rows above are without them, so nothing is chosen or scaled by them.
  uint32_t background_requests = 0;  // They run or queue.
  uint64_t background_tokens = 0;    // The part of tokens_computed and busy_us that is theirs.
  uint64_t background_busy_us = 0;
  friend bool operator==(const WorkerLoad&, const WorkerLoad&) = default;
};

// Why a process left the job, as far as its launcher knows.
enum class LossCause : uint8_t {
  kUnknown = 0,  // It sends nothing, and may come back.
  kOutside = 1,  // Ended from outside, or unclear: SIGKILL, SIGTERM, an exit code.
  kCrash = 2,    // It broke at its work: SIGSEGV, SIGABRT and similar.
  kHang = 3,     // It had work and made no progress.
};
const char* to_string(LossCause cause);  // "unknown", ...

// An incarnation that was a member and has left.
struct Departure {
  std::string name;
  std::string engine_id;
  LossCause cause = LossCause::kUnknown;
  friend bool operator==(const Departure&, const Departure&) = default;
};

// A set of weights for the model of a rollout job.
struct WeightSource {
  std::string path;     // Of a GGUF file on the workers' nodes. Empty: the file of the job.
  std::string version;  // The trainer's name for it. Empty: the job is not of mode rollout.
  std::string digest;   // As WorkerEntry::model_digest. Empty: unknown.
  friend bool operator==(const WeightSource&, const WeightSource&) = default;
};

// What happens to the requests that run when admission closes. New ones wait in the router.
enum class PauseMode : uint8_t {
  kWait = 1,     // They finish.
  kAbort = 2,    // They end at once, with the tokens that they have.
  kRetract = 3,  // They leave their workers, and go on from their last token after the pause.
};
const char* to_string(PauseMode mode);  // "wait", ...

// What a trainer wants of the whole fleet.
enum class OrderKind : uint8_t {
  kReport = 1,  // Nothing but the answer.
  kPause = 2,   // Close admission. The answer comes once no request runs.
  kResume = 3,  // Open it.
  kUpdate = 4,  // Serve with the weights of `path`, under the name `version`.
  kRename = 5,  // Give the weights in use the name `version`.
  kFlush = 6,   // Drop all kept prompts.
  kCancel = 7,  // End the order that runs, if nothing has changed yet.
};
const char* to_string(OrderKind kind);  // "report", ...

inline constexpr size_t kTroublesMax = 64;  // Workers that one message names.
// A worker that does not do what it should, and why.
struct WorkerTrouble {
  std::string worker;
  std::string why;
  std::string partner = {};  // A prefill worker: only with this one. Empty: with all.
  bool lasts = false;        // With this partner, for long.
  friend bool operator==(const WorkerTrouble&, const WorkerTrouble&) = default;
};

// --- up: to the launcher
struct Registered {  // "I serve now." Sent until acknowledged, and again after a reconnect.
  WorkerEntry worker;
  int64_t pid = 0;
  uint64_t number = 0;  // Grows when the entry changes.
  friend bool operator==(const Registered&, const Registered&) = default;
};
inline constexpr Duration kHeartbeatInterval = std::chrono::milliseconds(500);
struct HeartbeatSent {  // Every kHeartbeatInterval.
  std::string name;
  std::string engine_id;
  uint64_t sequence = 0;
  // How long its first thread, which runs its loop, has waited for a core since it began.
  // 0: unknown.
  uint64_t waited_us = 0;
  // Of the time since its last heartbeat, the share in which one of its threads waited for a core:
  // the one that waited longest. In thousandths, 0..1000.
  uint16_t starved_permille = 0;
  WorkerLoad load;
  bool unusable = false;  // Of a router: it has no pair of workers that could serve a request.
  // From routers: workers that requests avoid, because of what they answered.
  std::vector<WorkerTrouble> troubles;
  friend bool operator==(const HeartbeatSent&, const HeartbeatSent&) = default;
};

struct MembershipApplied {  // From routers: requests can be pinned to the workers of this version.
  std::string engine_id;    // The router's.
  uint64_t version = 0;
  friend bool operator==(const MembershipApplied&, const MembershipApplied&) = default;
};

// Answer to PrepareWeights, and to each repetition.
struct WeightsPrepared {
  std::string engine_id;  // The worker's.
  uint64_t order = 0;
  std::string path;    // Of the file, without symbolic links.
  std::string digest;  // Of the whole file.
  uint64_t bytes = 0;
  uint64_t took_us = 0;
  std::string error;     // Why these weights cannot be served here; empty: they can.
  bool refused = false;  // The order itself is wrong: no worker could take it.
  friend bool operator==(const WeightsPrepared&, const WeightsPrepared&) = default;
};
// Answer to AdmissionAsked, at once, and again when the last request has left its workers.
struct AdmissionApplied {
  std::string engine_id;  // The router's.
  uint64_t epoch = 0;
  uint64_t running = 0;  // Clients' requests that workers may have.
  friend bool operator==(const AdmissionApplied&, const AdmissionApplied&) = default;
};
// Answer to SpecAsked, and to each repetition.
struct SpecApplied {
  std::string engine_id;  // The router's.
  std::string digest;
  friend bool operator==(const SpecApplied&, const SpecApplied&) = default;
};
// From routers: an order of a trainer. Repeated until it is answered.
struct OrderAsked {
  uint64_t id = 0;  // Chosen at random by the router, so an order may be repeated.
  OrderKind kind = OrderKind::kReport;
  PauseMode mode = PauseMode::kWait;  // Of kPause, and of a kUpdate that is not paused.
  std::string path;                   // Of kUpdate.
  std::string version;                // Of kUpdate and kRename. Empty: the version in use.
  bool keeps_pause = false;           // Of kUpdate: admission stays closed after it.
  friend bool operator==(const OrderAsked&, const OrderAsked&) = default;
};

// --- down: to a worker or router
struct Acknowledge {    // Answer to Registered.
  uint64_t number = 0;  // Registered::number.
  friend bool operator==(const Acknowledge&, const Acknowledge&) = default;
};
// Answer to a heartbeat of a process that the launcher does not know to have registered: register
// again.
struct RegisterAsked {
  friend bool operator==(const RegisterAsked&, const RegisterAsked&) = default;
};
// To routers: at every change, and again until applied (member_list.h). A version lower than one
// already seen is stale.
struct Membership {
  uint64_t version = 0;
  uint64_t since = 0;  // 0: the whole list. Otherwise the changes since this version.
  std::vector<WorkerEntry> workers;
  std::vector<WorkerEntry> routers;  // For clients that subscribe to them; includes the reader.
  std::vector<WorkerEntry> stores;   // Processes that keep KV, by their kv_address.
  // Since the same version. A name that is also in a list above has a new incarnation. In a whole
  // list: only crashes and hangs.
  std::vector<Departure> left;
  bool asleep = false;  // No worker is to run until a request waits in a router.
  friend bool operator==(const Membership&, const Membership&) = default;
};
struct LoadReported {  // To routers: one worker's heartbeat, passed on.
  std::string name;
  std::string engine_id;
  WorkerLoad load;
  friend bool operator==(const LoadReported&, const LoadReported&) = default;
};
// Stop accepting requests, finish the running ones until the deadline, and end (exit 0) when their
// replies have left. With a `next` role, a worker that can registers anew as that engine instead,
// without loading its model again.
struct Drain {
  uint64_t deadline_ms = 0;  // From now.
  struct Next {
    Role role = Role::kPrefill;
    std::string engine_id;  // Empty: there is no next role.
    std::string link_keys;  // As in ProcessSpec. Secret.
    // The order whose prepared weights it serves with; 0: those that it has.
    uint64_t weights_order = 0;
    std::string weight_version;  // Its WorkerEntry::weight_version then.
    friend bool operator==(const Next&, const Next&) = default;
  };
  Next next;
  friend bool operator==(const Drain&, const Drain&) = default;
};

// To workers: read these weights beside those in use, and answer WeightsPrepared. Repeated until
// then. A new order drops what an earlier one prepared; an empty path drops it, too.
struct PrepareWeights {
  uint64_t order = 0;
  std::string path;
  friend bool operator==(const PrepareWeights&, const PrepareWeights&) = default;
};
// To routers: close or open admission, and answer AdmissionApplied. Repeated until then. A lower
// epoch than one already seen is stale.
struct AdmissionAsked {
  uint64_t epoch = 0;
  bool closed = false;
  PauseMode mode = PauseMode::kWait;
  friend bool operator==(const AdmissionAsked&, const AdmissionAsked&) = default;
};
// To routers: work by this spec from now on, and answer SpecApplied. Repeated until then.
struct SpecAsked {
  std::string digest;  // Of `work`.
  std::string work;    // As in ProcessSpec.
  friend bool operator==(const SpecAsked&, const SpecAsked&) = default;
};
// Answer to OrderAsked, once it is carried out or refused.
struct OrderAnswered {
  uint64_t id = 0;
  uint16_t status = 200;  // Of HTTP.
  std::string message;
  WeightSource weights;  // That the fleet serves with.
  bool paused = false;
  PauseMode mode = PauseMode::kWait;    // Of the pause.
  uint32_t workers = 0;                 // That the job should have.
  uint32_t serving = 0;                 // Those that serve with these weights.
  uint64_t updates = 0;                 // Since the job began.
  std::vector<WorkerTrouble> troubles;  // The first kTroublesMax.
  friend bool operator==(const OrderAnswered&, const OrderAnswered&) = default;
};

using Message =
    std::variant<Registered, HeartbeatSent, Acknowledge, Membership, LoadReported, Drain,
                 MembershipApplied, RegisterAsked, WeightsPrepared, AdmissionApplied, OrderAsked,
                 PrepareWeights, AdmissionAsked, OrderAnswered, SpecAsked, SpecApplied>;

}  // namespace pdjob::net
