// Aborts ends requests before their time. It asks their decode workers, and asks again until they
// have ended; abort_step.h says when the router answers instead. Loop-bound.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/id.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"
#include "openai/abort_request.h"
#include "router/admission/admission.h"
#include "router/core/router_events.h"
#include "router/relay/reception.h"

namespace pdjob::router {

class Aborts {
 public:
  using Prompts = std::set<uint32_t>;  // Indexes of a batch's prompts; empty: all.

  // The relay's requests.
  class Requests {
   public:
    struct Sight {
      bool begun = false;  // The client has the head of a worker's reply.
      bool stream = false;
      Admission::Tenant tenant = 0;
      std::vector<WorkerId> workers;  // That have a decode leg of it.
    };
    virtual Sight look(RequestId id) const = 0;
    // Ends the request without tokens. ended() comes before it returns.
    virtual void answer_aborted(RequestId id) = 0;

   protected:
    ~Requests() = default;
  };

  Aborts(net::Loop& loop, const RouterConfig& config, net::HttpClient& client,
         const WorkerTable& workers, const Reception& reception, Requests& requests);
  ~Aborts();
  Aborts(const Aborts&) = delete;
  Aborts& operator=(const Aborts&) = delete;

  // The name of a request at workers. No client can guess it, and no other request has it.
  std::string leg_name(RequestId id) const { return leg_prefix_ + std::to_string(id.value); }
  // The prompts of a request that are meant, by its id or by the client's own names of them;
  // nullopt: none.
  static std::optional<Prompts> meant(const openai::AbortRequest& asked,
                                      const std::string& request_id,
                                      const std::vector<std::string>& rids);

  // These of the request's `count` prompts are to end. step() or step_soon() must follow.
  void begin(RequestId id, const Prompts& prompts, size_t count);
  // Takes the next step for the requests that are due, and comes again until all have ended.
  void step();
  void step_soon();  // In the next turn.
  void ended(RequestId id) { aborting_.erase(id); }

 private:
  struct Ending {
    Instant since{};  // The first call that meant it.
    Prompts prompts;
  };
  // A worker answers one question at a time; names that come meanwhile are in the next one.
  using Asked = std::pair<WorkerId, Admission::Tenant>;
  struct Question {
    bool in_flight = false;
    std::set<std::string, std::less<>> next;  // The names that it will have.
  };

  // Returns true if the router has ended the request itself.
  bool step(RequestId id);
  void ask(const Asked& asked);

  net::Loop& loop_;
  const RouterConfig& config_;
  net::HttpClient& client_;
  const WorkerTable& workers_;
  const Reception& reception_;
  Requests& requests_;
  const std::string leg_prefix_;
  std::map<RequestId, Ending> aborting_;
  std::set<RequestId> due_;
  std::map<Asked, Question> questions_;
  std::optional<net::TimerId> timer_;  // Makes all of aborting_ due.
  std::optional<net::TimerId> soon_;
};

}  // namespace pdjob::router
