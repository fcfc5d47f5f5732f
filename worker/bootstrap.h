// Bootstrap: a KV hand-over in SGLang's words. Both workers get the same request at once, with a
// room that is theirs alone and the address of the prefill worker's bootstrap server, which a
// decode worker asks where the KV is. A pdjob worker is its own bootstrap server: it answers at its
// HTTP port (GET /pdjob/kv_address), without a key: links have their own. Loop-bound.
#pragma once

#include <functional>
#include <memory>

#include "common/id.h"
#include "common/result.h"
#include "net/event_loop.h"
#include "net/http_client.h"
#include "net/openai.h"

namespace pdjob::worker {

// The transfer of a room. Pure.
TransferId transfer_of_room(uint64_t room);

// What the prefill worker has to do.
net::KvTransferParams offer_in_room(const net::BootstrapParams& params);

class Bootstrap {
 public:
  using Then = std::function<void(Result<net::KvTransferParams>)>;

  explicit Bootstrap(net::EventLoop& loop);

  // What the decode worker has to do; kPeerFailed: nobody says where the KV is. `then` is called in
  // a later turn. Each request asks anew, since a prefill worker may have been started again.
  void look_up(const net::BootstrapParams& params, Then then);

 private:
  net::EventLoop& loop_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace pdjob::worker
