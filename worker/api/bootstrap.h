// Bootstrap: a KV hand-over in SGLang's protocol. Both workers get the same request at once. It
// names a room that only they use, and the address of the prefill worker's bootstrap server. The
// decode worker asks that server where the KV is.
// A pdjob worker is its own bootstrap server: its HTTP port answers GET /pdjob/kv_address. This
// needs no key, because KV links have their own. Loop-bound.
#pragma once

#include <functional>
#include <memory>

#include "common/id.h"
#include "common/result.h"
#include "net/http/http_client.h"
#include "net/loop/loop.h"
#include "openai/openai.h"

namespace pdjob::worker {

// The transfer id for a room. Pure.
TransferId transfer_of_room(uint64_t room);

// The prefill worker's parameters: it offers the room's transfer.
openai::KvTransferParams offer_in_room(const openai::BootstrapParams& params);

class Bootstrap {
 public:
  using Then = std::function<void(Result<openai::KvTransferParams>)>;

  explicit Bootstrap(net::Loop& loop);

  // Finds the decode worker's parameters. Fails with kPeerFailed if the bootstrap server gives no
  // KV address. Calls `then` in a later turn. Every request asks again, because the prefill worker
  // may have restarted.
  void look_up(const openai::BootstrapParams& params, Then then);

 private:
  net::Loop& loop_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace pdjob::worker
