// A small world of KV endpoints alone, on virtual time, around the real sessions: one sender, two
// receivers, their memory and the links between them. The seed decides the transfers and the
// faults. Processes die, restart and stop. Links break, pushes stop and fail, rows are damaged.
// Peers lose or repeat their messages.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/id.h"
#include "kvtransfer/session/transfer_session.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_loop.h"
#include "tests/simulation/sim_trace.h"

namespace pdjob::simulation {

using kvtransfer::LinkId;
using kvtransfer::ReceiveSession;
using kvtransfer::RowRange;
using kvtransfer::SendSession;

class KvReceiver;
class KvSender;
class KvWorld;

namespace kv {

constexpr uint32_t kRowsMax = 24;
constexpr uint32_t kRowsPerPush = 6;
constexpr Duration kRenewInterval = std::chrono::milliseconds(50);
constexpr Duration kConnectTimeout = std::chrono::milliseconds(100);
constexpr Duration kSilenceMax = 2 * kConnectTimeout;
constexpr Duration kStallMax = 2 * kConnectTimeout;
constexpr Duration kLease = std::chrono::milliseconds(600);
// An action that is due at an instant has happened by this much later.
constexpr Duration kSlack = std::chrono::milliseconds(1);

// row_value() is the content of row `row` of a transfer. add_to_digest() digests successive rows.
uint64_t row_value(TransferId id, uint32_t row);
inline uint64_t add_to_digest(uint64_t digest, uint64_t row) { return mix(digest ^ row); }

}  // namespace kv

// A canary: changes the events and effects of sessions. The invariants must notice it.
struct KvSabotage {
  // Each returns false to hide the event from the session.
  std::function<bool(ReceiveSession::Event&)> receive_event;
  std::function<bool(SendSession::Event&)> send_event;
  std::function<void(std::vector<ReceiveSession::Effect>&)> receive_effects;
  std::function<void(std::vector<SendSession::Effect>&)> send_effects;
};

struct KvRunOptions {
  uint64_t seed = 1;
  SimTrace::Print print = SimTrace::Print::kNo;
  KvSabotage sabotage;
};

struct KvRunResult {
  std::string violation;
  uint64_t trace_hash = 0;
  uint64_t trace_lines = 0;
  uint64_t done = 0, failed = 0, released_late = 0;
};

KvRunResult simulate_kv(const KvRunOptions& options);

// The chances of faults, while faults last.
struct KvDials {
  double push_fails = 0, push_stalls = 0, row_damaged = 0;
  double message_lost = 0, message_repeated = 0;
  bool peers_lie() const { return message_lost + message_repeated > 0; }
};

// One life of one process. A dead process ignores all its tasks. A stopped process runs its tasks,
// in order, when it continues.
class KvProcess {
 public:
  using Task = std::function<void()>;
  KvProcess(KvWorld& world, std::string name) : world_(world), name_(std::move(name)) {}
  KvProcess(const KvProcess&) = delete;
  KvProcess& operator=(const KvProcess&) = delete;
  virtual ~KvProcess() = default;

  bool alive() const { return alive_; }
  const std::string& name() const { return name_; }
  void post(Instant when, Task task);
  void trace(const std::string& what);
  void die() { alive_ = false; }
  void stop() { stopped_ = true; }
  void go_on();

 protected:
  KvWorld& world_;

 private:
  const std::string name_;
  bool alive_ = true;
  bool stopped_ = false;
  std::deque<Task> held_;
};

// A link has two ends, which close at different times. Messages arrive in the order in which they
// were sent.
struct KvLink {
  KvSender* sender = nullptr;
  KvReceiver* receiver = nullptr;
  SimChannel to_sender, to_receiver;
  bool muted = false;  // tcp: messages vanish and the ends are not notified.
};

class KvWorld {
 public:
  explicit KvWorld(const KvRunOptions& options);
  ~KvWorld();
  KvRunResult run();

  Instant now() const { return loop_.now(); }
  SimLoop& loop() { return loop_; }
  SimNetwork& network() { return network_; }
  Invariants& invariants() { return invariants_; }
  SimTrace& trace() { return trace_; }
  Random& random() { return random_; }
  const KvDials& dials() const { return dials_; }
  const KvSabotage& sabotage() const { return options_.sabotage; }
  KvRunResult& result() { return result_; }
  // True if the sender itself writes the rows.
  bool is_shm() const { return is_shm_; }
  bool fault(double chance) { return now() < faults_end_ && random_.chance(chance); }

  LinkId open_link(KvSender& sender, KvReceiver& receiver);
  void to_sender(LinkId id, const char* what, const std::function<void(KvSender&)>& message);
  void to_receiver(LinkId id, const char* what, const std::function<void(KvReceiver&)>& message);
  // One end has closed. The other end learns it after everything that was sent.
  void close_at_sender(LinkId id);
  void close_at_receiver(LinkId id);

 private:
  void plan_transfers();
  void plan_transfer(TransferId id, Instant start);
  void await(TransferId id, size_t receiver);
  void fetch(TransferId id, size_t receiver, uint32_t rows, int attempts);
  void plan_faults();
  void make_fault();
  void kill_sender();
  void kill_receiver(size_t index);
  void stop(KvProcess& process);
  void break_link();
  bool faultless() const { return options_.seed % 4 == 0; }
  void check_end();

  const KvRunOptions options_;
  Invariants invariants_;
  SimTrace trace_;
  SimLoop loop_;
  Random random_;
  SimNetwork network_;
  const bool is_shm_;
  KvDials dials_;
  const Instant faults_end_;
  KvRunResult result_;
  uint64_t links_made_ = 0;
  uint64_t lives_ = 0;
  std::map<LinkId, KvLink> links_;
  std::vector<std::unique_ptr<KvSender>> senders_;  // Only the last one is alive.
  std::vector<std::unique_ptr<KvReceiver>> dead_receivers_;
  std::vector<std::unique_ptr<KvReceiver>> receivers_;
};

}  // namespace pdjob::simulation
