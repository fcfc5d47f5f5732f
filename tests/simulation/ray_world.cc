#include "tests/simulation/ray_world.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "common/random.h"
#include "launcher/ray/ray_session.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_ray.h"

namespace pdjob::simulation {
namespace {

using namespace launcher;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFaultsLast = seconds(300);
constexpr Duration kConvergesWithin = seconds(3000);  // Several gatherings of 180 s, and pauses.
// A gathering, a reservation, a pause, and slow answers.
constexpr Duration kHoldsPartMax = seconds(300);
constexpr Duration kWatch = milliseconds(500);  // The shim's, and the keepers'.
constexpr Duration kLateWork = seconds(20);     // LATE_SECONDS of ray_shim.py.
constexpr Duration kHomeSilent = seconds(5);    // The shim says so then.

// What a shim and a session share with Ray and with the faults.
struct Scene {
  SimLoop& loop;
  SimRay& ray;
  Invariants& invariants;
  Random& random;
  SimTrace& trace;
  Instant home_away_until{};  // Its control store.
  Instant home_cut_until{};   // From the shims: keepers go on.
  Instant slow_until{};
  Instant agents_fail_until{};
  std::map<std::string, Instant> refusing_until;  // By guest.
  uint64_t agents_started = 0;

  Instant home_answers_from() const { return std::max(home_away_until, home_cut_until); }
  bool home_answers() const { return loop.now() >= home_answers_from(); }
};

// One launcher: a RaySession, its shim and its agents. A shim's number tells its lives apart.
class Launcher {
 public:
  Launcher(Scene& scene, RaySetting setting)
      : scene_(scene), setting_(std::move(setting)), session_(setting_) {
    submit(TimePassed{});
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() { ++*life_; }

  const std::string& job() const { return setting_.job; }
  const RaySession& session() const { return session_; }
  bool closed() const { return closed_; }
  bool required_up() const {
    return std::ranges::all_of(session_.slots(), [this](const RaySlot& slot) {
      return !slot.required || (slot.state == SlotState::kUp && agents_.contains(slot.name));
    });
  }
  // It had all required nodes, and now others have what it lacks.
  bool goes_on_with_less() const {
    return scene_.ray.was_granted(job()) &&
           std::ranges::all_of(session_.slots(), [this](const RaySlot& slot) {
             const bool up = slot.state == SlotState::kUp && agents_.contains(slot.name);
             const bool has_room =
                 slot.guest ? scene_.ray.has_room(slot.cluster) : scene_.ray.has_home_room();
             return !slot.required || up || (slot.node.empty() && !has_room);
           });
  }
  std::string states() const {
    std::string text = session_.trouble();
    for (const RaySlot& slot : session_.slots()) {
      text += " " + slot.name + " " + std::to_string(static_cast<int>(slot.state)) + " " +
              slot.trouble + ";";
    }
    return text;
  }
  void close() { submit(RayCloseAsked{}); }
  void kill_shim() {
    if (shim_ > 0) {
      end_shim();
      later(0, [this] { submit(ShimGone{"signal 9 (Killed)"}); });
    }
  }
  void kill_agent(uint64_t target) {
    if (!agents_.empty()) {
      auto agent = agents_.begin();
      std::advance(agent, static_cast<ptrdiff_t>(target % agents_.size()));
      lose_agent(std::string(agent->first));
    }
  }

  // Ray has changed: agents whose place is gone end.
  void look_at_agents() {
    for (auto agent = agents_.begin(); agent != agents_.end();) {
      const auto [slot, place] = *agent++;
      const auto group = scene_.ray.groups().find({job(), place.reservation});
      if (group == scene_.ray.groups().end() || group->second.nodes[place.bundle] != place.node) {
        lose_agent(slot);
      }
    }
  }

 private:
  struct Place {
    std::string reservation;
    uint32_t bundle = 0;
    std::string node;
    uint64_t number = 0;
  };

  // --- the session
  void submit(const RayEvent& event) {
    std::vector<RayEffect> effects;
    session_.step(event, scene_.loop.now(), effects);
    for (const RayEffect& effect : effects) {
      std::visit([this](const auto& one) { carry_out(one); }, effect);
    }
    check();
    const Instant due = session_.next_wakeup();
    if (due != kNever && due < wakes_) {
      wakes_ = due;
      at(due, [this, due] {
        if (wakes_ == due) {
          wakes_ = kNever;
          submit(TimePassed{});
        }
      });
    }
  }
  void check() {
    std::map<std::string, int> of_slot;
    for (const auto& [key, group] : scene_.ray.groups()) {
      if (key.first == job() && group.placed) {
        for (const RayBundle& bundle : group.bundles) {
          ++of_slot[bundle.slot];
        }
      }
    }
    for (const auto& [slot, place] : agents_) {
      scene_.invariants.expect(of_slot.contains(slot), "an agent has a reservation, but not", slot);
    }
  }

  void carry_out(const StartShim& /*effect*/) {
    scene_.invariants.expect(shim_ == 0, "there is one shim at a time, but");
    shim_ = ++shims_;
    told_.clear();
    told_groups_.clear();
    watched_.clear();
    reachable_.reset();
    home_closed_ = false;
    answer(ShimHello{.protocol = kShimProtocol, .ray = "2", .python = "3"});
  }
  void carry_out(const EndShim& /*effect*/) { end_shim(); }
  void carry_out(const SayOfRay& effect) {
    scene_.trace.line(scene_.loop.now(), job(), effect.text);
  }
  void carry_out(const RayClosed& effect) {
    scene_.trace.line(scene_.loop.now(), job(), effect.clean ? "closed" : "closed, not clean");
    closed_ = true;
  }
  void carry_out(const AskShim& effect) {
    scene_.invariants.expect(shim_ > 0, "a request has a shim, but not", effect.id);
    std::visit([&](const auto& request) { run(effect.id, request); }, effect.request);
  }
  void carry_out(const StartSlotAgent& effect) {
    with_home(effect.id, [this, effect] {
      const auto group = scene_.ray.groups().find({job(), effect.reservation});
      if (group == scene_.ray.groups().end() || group->second.nodes[effect.bundle].empty()) {
        return answer(ShimRefused{effect.id, "failed", "there is no place"});
      }
      lose_agent(effect.slot);
      const Place place{.reservation = effect.reservation,
                        .bundle = effect.bundle,
                        .node = group->second.nodes[effect.bundle],
                        .number = ++scene_.agents_started};
      agents_[effect.slot] = place;
      answer(ShimDone{effect.id, "agent.log"});
      if (scene_.loop.now() >= scene_.agents_fail_until) {
        later(3000, [this, slot = effect.slot, place] {
          if (agents_.contains(slot) && agents_.at(slot).number == place.number) {
            came_.insert(slot);
            submit(AgentCame{slot});
          }
        });
      }
    });
  }
  void lose_agent(const std::string& slot) {
    agents_.erase(slot);
    if (came_.erase(slot) > 0) {
      later(5000, [this, slot] {
        if (!came_.contains(slot)) {
          submit(AgentLost{slot});
        }
      });
    }
  }

  // --- the shim: what each request does, and when.
  void end_shim() { shim_ = 0; }
  // Runs only if this shim still lives then.
  void in_shim(Instant when, std::function<void()> task) {
    at(when, [this, shim = shim_, task = std::move(task)] {
      if (shim == shim_ && shim_ > 0) {
        task();
      }
    });
  }
  Instant soon() {
    const bool slow = scene_.loop.now() < scene_.slow_until;
    return scene_.loop.now() + milliseconds(1 + scene_.random.below(slow ? 90'000 : 300));
  }
  // A call to the home hangs while that does not answer.
  void with_home(uint64_t id, const std::function<void()>& task) {
    in_shim(soon(), [this, id, task] {
      if (scene_.home_answers()) {
        task();
      } else {
        in_shim(scene_.home_answers_from(), [this, id, task] { with_home(id, task); });
      }
    });
  }
  void answer(ShimLine line) {
    in_shim(soon(), [this, line = std::move(line)] { submit(ShimSaid{line}); });
  }
  // Lines that keep their order.
  void emit(ShimLine line) {
    last_line_ = std::max(last_line_, scene_.loop.now()) + milliseconds(1);
    in_shim(last_line_, [this, line = std::move(line)] { submit(ShimSaid{line}); });
  }

  void run(uint64_t id, const OpenHome& request) {
    with_home(id, [this, id, lease = request.lease] {
      scene_.ray.find_keeper(job(), lease);
      scene_.ray.renew(job(), lease);
      std::string names;
      for (const auto& [key, group] : scene_.ray.groups()) {
        if (key.first == job()) {
          names += (names.empty() ? "" : ",") + key.second;
          watched_.insert(key.second);
        }
      }
      home_seen_ = Instant();
      emit(ShimDone{id, names});
      watch(lease);
    });
  }
  void watch(Duration lease) {
    in_shim(scene_.loop.now() + kWatch, [this, lease] {
      if (home_closed_) {
        return;
      }
      if (scene_.loop.now() >= scene_.home_cut_until) {
        scene_.ray.renew(job(), lease);
      }
      if (scene_.home_answers()) {
        scene_.ray.find_keeper(job(), lease);
        home_seen_ = scene_.loop.now();
        tell_news();
      }
      const bool reachable = scene_.loop.now() - home_seen_ < kHomeSilent;
      if (reachable_ != reachable && home_seen_ != Instant()) {
        reachable_ = reachable;
        emit(HomeSeen{reachable});
      }
      watch(lease);
    });
  }
  void tell_news() {
    std::map<std::string, std::string> now = scene_.ray.nodes_for(job());
    for (const auto& [node, slot] : told_) {
      if (!now.contains(node)) {
        emit(RayNodeSeen{.node = node, .alive = false, .slot = slot});
      }
    }
    for (const auto& [node, slot] : now) {
      if (!told_.contains(node)) {
        emit(RayNodeSeen{.node = node, .alive = true, .address = "10.0.0.2", .slot = slot});
      }
    }
    told_ = std::move(now);
    for (const std::string& name : watched_) {
      const auto group = scene_.ray.groups().find({job(), name});
      const bool there = group != scene_.ray.groups().end();
      const std::string words = there ? nodes_of(group->second) : "removed";
      if (std::exchange(told_groups_[name], words) != words) {
        emit(ReservationSeen{
            .name = name, .removed = !there, .nodes = there ? group->second.nodes : Names{}});
      }
    }
  }
  using Names = std::vector<std::string>;
  static std::string nodes_of(const SimRay::Group& group) {
    std::string text;
    for (const std::string& node : group.nodes) {
      text += (&node == &group.nodes.front() ? "" : ",") + node;
    }
    return text;
  }

  void run(uint64_t id, const JoinHome& request) {
    // Its calls to a guest take at most 10 s each.
    in_shim(scene_.loop.now() + milliseconds(1 + scene_.random.below(9'000)), [this, id, request] {
      if (scene_.loop.now() < scene_.refusing_until[request.cluster]) {
        return answer(ShimRefused{id, "version_mismatch", "another Ray"});
      }
      scene_.ray.submit(request.submission,
                        {.slot = {job(), request.slot}, .cluster = request.cluster, .node = ""});
      answer(ShimDone{id, ""});
      follow(request.slot, request.submission);
    });
  }
  void follow(const std::string& slot, const std::string& submission) {
    in_shim(scene_.loop.now() + seconds(1), [this, slot, submission] {
      if (!scene_.ray.jobs().contains(submission)) {
        return emit(GuestEnded{.slot = slot, .submission = submission, .reason = "it ended"});
      }
      follow(slot, submission);
    });
  }
  void run(uint64_t id, const LeaveHome& request) {
    in_shim(scene_.loop.now() + milliseconds(1 + scene_.random.below(9'000)), [this, id, request] {
      scene_.ray.stop(request.submission);
      answer(ShimDone{id, ""});
    });
  }
  void run(uint64_t id, const Reserve& request) {
    std::set<std::string> asked;
    for (const RayBundle& bundle : request.bundles) {
      asked.insert(bundle.slot);
    }
    for (const RaySlot& slot : session_.slots()) {
      scene_.invariants.expect(
          scene_.ray.was_granted(job()) || !slot.required || asked.contains(slot.name),
          "required slots are reserved together, but not", slot.name);
    }
    with_home(id, [this, id, request] {
      scene_.ray.reserve({job(), request.name}, request.bundles);
      await_place(id, request.name, scene_.loop.now() + request.timeout);
    });
  }
  void await_place(uint64_t id, const std::string& name, Instant until) {
    in_shim(scene_.loop.now() + milliseconds(100), [this, id, name, until] {
      const auto group = scene_.ray.groups().find({job(), name});
      if (!scene_.home_answers()) {
        return await_place(id, name, until);
      }
      if (group != scene_.ray.groups().end() && group->second.placed) {
        watched_.insert(name);
        return answer(ShimDone{id, nodes_of(group->second)});
      }
      if (scene_.loop.now() >= until) {
        scene_.ray.remove({job(), name});
        return answer(ShimRefused{id, "no_room", "no room"});
      }
      await_place(id, name, until);
    });
  }
  void run(uint64_t id, const Release& request) {
    with_home(id, [this, id, name = request.name] {
      watched_.erase(name);
      told_groups_.erase(name);
      scene_.ray.remove({job(), name});
      answer(ShimDone{id, ""});
    });
  }
  void run(uint64_t id, const CloseHome& /*request*/) {
    with_home(id, [this, id] {
      home_closed_ = true;
      scene_.ray.free_everything(job());
      scene_.ray.expire(job(), kLateWork);
      answer(ShimDone{id, ""});
    });
  }
  void run(uint64_t /*id*/, const StartAgent& /*request*/) {}  // The real shell makes these.

  void at(Instant when, std::function<void()> task) {
    scene_.loop.at(when, [life = life_, born = *life_, task = std::move(task)] {
      if (*life == born) {
        task();
      }
    });
  }
  void later(uint64_t milliseconds_max, std::function<void()> task) {
    at(scene_.loop.now() + milliseconds(1 + scene_.random.below(milliseconds_max + 1)),
       std::move(task));
  }

  Scene& scene_;
  const RaySetting setting_;
  RaySession session_;
  const std::shared_ptr<uint64_t> life_ = std::make_shared<uint64_t>(0);
  Instant wakes_ = kNever;
  bool closed_ = false;
  std::map<std::string, Place> agents_;  // Those that run, by slot.
  std::set<std::string> came_;           // Those that have joined.

  uint64_t shim_ = 0;  // 0: there is none.
  uint64_t shims_ = 0;
  std::optional<bool> reachable_;
  bool home_closed_ = false;
  Instant home_seen_{};
  Instant last_line_{};
  std::map<std::string, std::string> told_;
  std::map<std::string, std::string> told_groups_;
  std::set<std::string> watched_;
};

class RayWorld {
 public:
  explicit RayWorld(const SimCall& call)
      : call_(call),
        random_(mix(call.seed)),
        trace_(call.print),
        ray_(loop_, invariants_),
        scene_{.loop = loop_,
               .ray = ray_,
               .invariants = invariants_,
               .random = random_,
               .trace = trace_,
               .refusing_until = {}} {
    ray_.changed = [this] {
      for (const auto& launcher : launchers_) {
        launcher->look_at_agents();
      }
    };
  }

  SimRun run() {
    begin();
    draw_faults();
    run_until(loop_.now() + kFaultsLast, [] { return false; });
    scene_.home_away_until = scene_.home_cut_until = scene_.slow_until = loop_.now();
    scene_.agents_fail_until = loop_.now();
    faults_ended_ = true;
    scene_.refusing_until.clear();
    have_room();
    // Who has what it needs gives it to the next.
    while (!launchers_.empty() && !invariants_.broken()) {
      finish_one();
    }
    for (const std::string& job : jobs_) {
      run_until(loop_.now() + seconds(60), [&] { return ray_.holds(job).empty(); });
      invariants_.expect(ray_.holds(job).empty(), "everything is given back, but not",
                         ray_.holds(job));
    }
    return {.violation = invariants_.violation(),
            .trace_hash = trace_.hash(),
            .trace_lines = trace_.lines(),
            .events = events_,
            .counts = {{"jobs", jobs_.size()}, {"agents", scene_.agents_started}}};
  }

 private:
  void begin() {
    home_nodes_ = 1 + static_cast<uint32_t>(random_.below(3));
    guests_ = static_cast<uint32_t>(random_.below(3));
    for (uint64_t i = 0, jobs = 1 + random_.below(2); i < jobs; ++i) {
      add_job();
    }
    have_room();
  }
  // As much as each job needs by itself.
  void have_room() {
    for (uint32_t i = 0; i < home_nodes_; ++i) {
      ray_.set_home("home" + std::to_string(i), 1);
    }
    for (uint32_t guest = 0; guest < guests_; ++guest) {
      ray_.set_room(name_of(guest), 2);
    }
  }
  static std::string name_of(uint32_t guest) {
    return std::string(1, static_cast<char>('b' + guest));
  }
  void add_job() {
    RaySetting setting{.job = "job" + std::to_string(jobs_.size()),
                       .address = "10.0.0.1:6379",
                       .clusters = {{.name = "a", .nodes = home_nodes_}},
                       .seed = random_.next()};
    setting.clusters[0].nodes_min = 1 + static_cast<uint32_t>(random_.below(home_nodes_));
    for (uint32_t guest = 0; guest < guests_; ++guest) {
      const auto nodes = 1 + static_cast<uint32_t>(random_.below(2));
      setting.clusters.push_back({.name = name_of(guest),
                                  .nodes = nodes,
                                  .nodes_min = static_cast<uint32_t>(random_.below(nodes + 1)),
                                  .dashboard = "http://" + name_of(guest),
                                  .python = "python3"});
    }
    jobs_.push_back(setting.job);
    launchers_.push_back(std::make_unique<Launcher>(scene_, std::move(setting)));
  }

  void draw_faults() {
    const uint64_t faults = random_.below(14);
    for (uint64_t i = 0; i < faults; ++i) {
      const Instant when = loop_.now() + milliseconds(random_.below(280'000));
      const uint64_t kind = random_.below(kFaults.size());
      const uint64_t target = random_.next();
      const Duration duration = milliseconds(random_.below(random_.chance(0.3) ? 120'000 : 15'000));
      const uint32_t number = events_++;
      if (!call_.only || call_.only->contains(number)) {
        loop_.at(when, [this, number, kind, target, duration] {
          trace_.line(loop_.now(), "",
                      "event " + std::to_string(number) + ": " + kFaults.at(kind).first);
          (this->*kFaults.at(kind).second)(target, loop_.now() + duration);
        });
      }
    }
  }
  Launcher* choose(uint64_t target) {
    return launchers_.empty() ? nullptr : launchers_[target % launchers_.size()].get();
  }
  void shim_dies(uint64_t target, Instant /*until*/) { choose(target)->kill_shim(); }
  void home_is_away(uint64_t /*target*/, Instant until) {
    scene_.home_away_until = std::max(scene_.home_away_until, until);
  }
  void home_is_cut_off(uint64_t /*target*/, Instant until) {
    scene_.home_cut_until = std::max(scene_.home_cut_until, until);
  }
  void ray_is_slow(uint64_t /*target*/, Instant until) { scene_.slow_until = until; }
  void guest_is_lost(uint64_t target, Instant /*until*/) { ray_.lose_guest_node(target); }
  void home_node_is_lost(uint64_t target, Instant until) {
    const std::string node = "home" + std::to_string(target % home_nodes_);
    ray_.set_home(node, 0);
    loop_.at(until, [this, node] { ray_.set_home(node, 1); });
  }
  void guest_is_full(uint64_t target, Instant until) {
    if (guests_ > 0) {
      const std::string guest = name_of(static_cast<uint32_t>(target % guests_));
      ray_.set_room(guest, 0);
      loop_.at(until, [this, guest] { ray_.set_room(guest, 2); });
    }
  }
  void guest_refuses(uint64_t target, Instant until) {
    scene_.refusing_until[name_of(static_cast<uint32_t>(target % 2))] = until;
  }
  void agent_dies(uint64_t target, Instant /*until*/) {
    choose(target)->kill_agent(target / launchers_.size());
  }
  void agents_do_not_join(uint64_t /*target*/, Instant until) { scene_.agents_fail_until = until; }
  // Its keeper gives everything back. The user starts the job again.
  void launcher_is_killed(uint64_t target, Instant /*until*/) {
    launchers_.erase(launchers_.begin() + static_cast<ptrdiff_t>(target % launchers_.size()));
    add_job();
  }

  void finish_one() {
    Launcher* ready = nullptr;
    const auto one_is_up = [&] {
      for (const auto& launcher : launchers_) {
        if (launcher->required_up()) {
          ready = launcher.get();
        }
      }
      // A job that had all its nodes once goes on with what is left of them, so two such jobs may
      // each have what the other one lacks.
      if (ready == nullptr && launchers_.size() > 1 &&
          std::ranges::all_of(launchers_, &Launcher::goes_on_with_less)) {
        ready = launchers_.front().get();
      }
      return ready != nullptr;
    };
    run_until(loop_.now() + kConvergesWithin, one_is_up);
    invariants_.expect(ready != nullptr, "some job gets its nodes once faults have ended, but",
                       launchers_.front()->states(), launchers_.back()->states());
    if (ready == nullptr) {
      return;
    }
    check_reservations(*ready);
    ready->close();
    run_until(loop_.now() + seconds(30), [&] { return ready->closed(); });
    invariants_.expect(ready->closed(), "a session closes in time, but not", ready->job());
    std::erase_if(launchers_, [&](const auto& each) { return each.get() == ready; });
  }
  // After a while, what Ray holds for a job is what its session knows.
  void check_reservations(const Launcher& launcher) {
    const auto same = [&] {
      std::set<std::string> known;
      for (const RaySlot& slot : launcher.session().slots()) {
        known.insert(slot.reservation);
      }
      return std::ranges::all_of(ray_.groups(), [&](const auto& each) {
        return each.first.first != launcher.job() || known.contains(each.first.second);
      });
    };
    run_until(loop_.now() + seconds(180), same);
    invariants_.expect(same(), "no reservation is forgotten, but one of",
                       ray_.holds(launcher.job()), launcher.states());
  }

  template <class Done>
  void run_until(Instant when, const Done& done) {
    while (!invariants_.broken() && loop_.now() < when && !done()) {
      const Instant step = std::min(when, loop_.now() + kWatch);
      loop_.at(step, [] {});
      while (!invariants_.broken() && loop_.run_next(step)) {
      }
      ray_.look_at_leases();
      if (loop_.now() >= scene_.home_away_until) {
        ray_.keep();
      }
      check_waiting();
    }
  }

  // A job that still waits for its reservation does not keep any of its nodes from the others for
  // long. Checked once faults have ended, because a job can give back only to a cluster that
  // answers.
  void check_waiting() {
    std::map<std::string, Instant> held;
    for (const auto& launcher : launchers_) {
      for (const auto& [submission, job] : ray_.jobs()) {
        if (faults_ended_ && !ray_.was_granted(launcher->job()) &&
            job.slot.first == launcher->job() && !job.node.empty()) {
          const auto before = held_.find(submission);
          const Instant since = before == held_.end() ? loop_.now() : before->second;
          held[submission] = since;
          invariants_.expect(loop_.now() < since + kHoldsPartMax,
                             "a job that waits gives back its part, but not", submission,
                             launcher->states());
        }
      }
    }
    held_ = std::move(held);
  }

  using Strike = void (RayWorld::*)(uint64_t target, Instant until);
  static constexpr std::array<std::pair<const char*, Strike>, 11> kFaults = {
      {{"a shim dies", &RayWorld::shim_dies},
       {"the home is away", &RayWorld::home_is_away},
       {"the home is cut off", &RayWorld::home_is_cut_off},
       {"Ray is slow", &RayWorld::ray_is_slow},
       {"a guest's node is lost", &RayWorld::guest_is_lost},
       {"a home's node is lost", &RayWorld::home_node_is_lost},
       {"a guest is full", &RayWorld::guest_is_full},
       {"a guest refuses", &RayWorld::guest_refuses},
       {"an agent dies", &RayWorld::agent_dies},
       {"agents do not join", &RayWorld::agents_do_not_join},
       {"a launcher is killed", &RayWorld::launcher_is_killed}}};

  const SimCall& call_;
  Random random_;
  SimLoop loop_;
  SimTrace trace_;
  Invariants invariants_;
  SimRay ray_;
  Scene scene_;
  uint32_t home_nodes_ = 1;
  uint32_t guests_ = 0;
  uint32_t events_ = 0;
  bool faults_ended_ = false;
  std::map<std::string, Instant> held_;  // By submission: since when a job that waits has its node.
  std::vector<std::string> jobs_;        // All that ever were.
  std::vector<std::unique_ptr<Launcher>> launchers_;
};

}  // namespace

SimRun simulate_ray(const SimCall& call) { return RayWorld(call).run(); }

}  // namespace pdjob::simulation
