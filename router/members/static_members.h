// StaticMembers: the core of membership without a launcher. It decides what to ask at each given
// address, and which workers are members. It asks every second. A pdjob worker describes itself.
// Any other answer comes from a foreign engine (vLLM, SGLang and their like), which is used in two
// hops unless router.protocol says otherwise.
//
//   description --> no pdjob worker --> health --> models --> its bootstrap server, if it has one
//        |                                                                 |
//        +-----------------------> member <--------------------------------+
//
// A worker becomes a member with its first answer, a foreign engine once it is healthy. It leaves
// once its address has refused connections for a while, and is a member again when it comes back. A
// worker that connects but fails to answer, or reports that it is unhealthy, stays, because engines
// stop answering while they compute a long prompt. It gets no new requests, and its running
// requests continue. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/core.h"
#include "common/time.h"
#include "router/config/static_worker.h"
#include "router/core/router.h"

namespace pdjob::router {

class StaticMembers {
 public:
  static constexpr Duration kPollInterval = std::chrono::seconds(1);
  static constexpr uint32_t kSilencesMax = 3;  // Failed polls in a row.
  // Between two questions for the models of an engine: its adapters may change.
  static constexpr Duration kModelsInterval = std::chrono::seconds(5);

  enum class Question {
    kDescription,
    kHealth,
    kModels,
    kEngines,  // Of its bootstrap server.
  };

  // --- events
  struct Answered {
    enum class How {
      kReply,
      kGarbage,  // What came is no HTTP reply, or is too long.
      kSilence,  // The address accepted the connection, but no reply came in time.
      kFailure,  // There was no connection, or it broke off.
    };
    size_t worker = 0;  // Ask::worker.
    Question question = Question::kDescription;
    How how = How::kFailure;
    int status = 0;  // Of a reply; so is the body.
    std::string body = {};
  };
  using Event = std::variant<Answered, TimePassed>;

  // --- effects
  struct Ask {  // By HTTP GET. Answered follows.
    size_t worker = 0;
    Question question = Question::kDescription;
    net::HttpAddress address;
    std::string_view path;
  };
  struct Tell {
    RouterEvent event;
  };
  struct Left {  // Connections to it are of no use.
    net::HttpAddress address;
  };
  struct Note {  // For the log.
    bool is_warning = true;
    std::string text;
  };
  using Effect = std::variant<Ask, Tell, Left, Note>;

  // `key`: the key of all workers; empty: they want none.
  StaticMembers(const std::vector<StaticWorker>& workers, std::string key,
                const RouterConfig& config);

  void step(const Event& event, Instant now, std::vector<Effect>& effects);
  // When TimePassed is due; kNever: all answers are pending.
  Instant next_wakeup() const;

 private:
  using Turn = pdjob::Turn<Effect>;
  struct Watched {
    StaticWorker given;
    Instant next_poll{};                    // kNever: an answer is pending.
    Instant next_models{};                  // When it is asked for its models again.
    std::optional<net::WorkerEntry> entry;  // Set if it is a member.
    net::WorkerEntry met;                   // A prefill worker whose bootstrap server is asked.
    bool foreign = false;
    bool warned = false;  // A warning about it was noted.
    uint32_t silences = 0;
  };

  void on(const Answered& answer, Turn& turn);
  void on(const TimePassed& event, Turn& turn);
  void on_description(Watched& row, const Answered& answer, Turn& turn);
  void on_health(Watched& row, const Answered& answer, Turn& turn);
  void on_models(Watched& row, const Answered& answer, Turn& turn);
  void on_engines(Watched& row, const Answered& answer, Turn& turn);

  // True if this address may be a pdjob worker, so its description is asked for.
  bool may_describe_itself(const Watched& row) const;
  void ask(Watched& row, Question question, Turn& turn);
  // Adds a healthy engine, once it is known how to fetch KV from it.
  void meet(Watched& row, net::WorkerEntry entry, Turn& turn);
  void found(Watched& row, net::WorkerEntry entry, Turn& turn);
  // Warns of each worker that the new one cannot hand over to, or take over from.
  void warn_of_pairs(const net::WorkerEntry& joined, Turn& turn);
  void refuse(Watched& row, const std::string& why, Turn& turn);
  // Handles a failed poll. A worker that is there stays a member.
  void unwell(Watched& row, bool is_there, Turn& turn);
  // For a row without a worker.
  void note_silence(Watched& row, Turn& turn);
  void leave(Watched& row, Turn& turn);
  void tell_members(Turn& turn);
  std::string unique_name(const Watched& row, const std::string& name) const;
  static void warn(std::string text, Turn& turn) { turn.emit(Note{.text = std::move(text)}); }
  static void tell(RouterEvent event, Turn& turn) { turn.emit(Tell{std::move(event)}); }

  const std::string key_;
  const Protocol protocol_;
  const std::vector<std::string> routes_;  // RouterConfig::engine_routes.
  std::vector<Watched> rows_;
  bool somebody_answered_ = false;
};

}  // namespace pdjob::router
