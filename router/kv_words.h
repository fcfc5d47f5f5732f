// What both legs of a request say of the hand-over of its KV, in the words of each make of engine.
// A dialect is data: who speaks it gets these members, and can do these things. In what order legs
// are sent is not its business but the core's: both at once where the prefill worker's address is
// known, else in two hops. Pure.
//
//   pdjob    kv_transfer_params; a decode worker fetches by transfer_id from the kv_address
//   nixl     vLLM's NixlConnector (docs/features/nixl_connector_usage.md of vllm-project/vllm): a
//            prefill worker's reply says where the KV is, and a decode worker is told it verbatim
//   nixl_push vLLM's NixlPushConnector (nixl/push_scheduler.py beside the above, and
//            disagg_proxy_pushconnector_demo.py of its examples): a decode worker tells the prefill
//            worker where to write, so that it must know who that is. All replies of a prefill
//            worker say the same of that, and the first one is learnt from in two hops. Engines
//            find the other half by x-request-id, which is therefore new for each attempt; newer
//            ones by transfer_id
//   mooncake vLLM's MooncakeConnector: as pdjob, but that each data-parallel rank of a
//            prefill worker is an engine of its own, which its bootstrap server names (GET /query)
//            and a header chooses
//            (examples/disaggregated/mooncake_connector/mooncake_connector_proxy.py and
//            vllm/distributed/kv_transfer/kv_connector/v1/mooncake/mooncake_utils.py)
//   sglang   bootstrap_host, bootstrap_port and bootstrap_room in one body for both
//            (python/sglang/srt/managers/io_struct.py of sgl-project/sglang). A request of several
//            prompts or choices has the rooms from this one on
//            (GenerateReqInput._normalize_bootstrap_params)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/id.h"
#include "router/router_config.h"

namespace pdjob::router {

// Members of a body, as JSON; empty: it has none of that name, whatever the client wrote there.
struct KvWords {
  std::string header_lines;  // Not of the body: more of the head's.
  std::string request_id;    // Of the head, too; empty: the request's own.
  std::string kv_transfer_params;
  std::string bootstrap_host;
  std::string bootstrap_port;
  std::string bootstrap_room;
};

struct HandOver {
  TransferId transfer;
  std::string_view address;  // Where the KV will be: the prefill worker's kv_address, or what its
                             // reply said; empty: not known yet.
  std::string_view request_id;
};

struct KvDialect {
  KvWords (*offer)(const HandOver&);  // Of a prefill leg.
  KvWords (*fetch)(const HandOver&);  // Of a decode leg.
  // What in the kv_transfer_params of a prefill worker's reply holds for all its requests: an
  // address.
  std::string (*address_in)(const std::string& params) = nullptr;
  bool one_body = false;         // A prefill worker gets the client's whole request, and stops by
                                 // itself after the prompt.
  bool several_prompts = false;  // One request may hand over more than one prompt.
  bool releases = false;         // A prefill worker can be told that nobody will fetch its KV.
};

// `concurrent`: the prefill worker's address is known. Of what describes itself, that makes it a
// pdjob worker.
const KvDialect& dialect_of(Protocol protocol, bool concurrent);

// --- what a prefill worker's address is made of

// An SGLang engine's.
std::string bootstrap_address(std::string_view host, uint16_t port);
// A Mooncake engine's: a list, with one for each data-parallel rank in the reply to GET /query of
// the bootstrap server at `server` ("host:port"). Empty: the reply names none.
std::string mooncake_address(const std::string& server, const std::string& query_reply);
// kv_transfer_params of a prefill reply, verbatim; empty if there are none.
std::string returned_params(const std::string& reply_body);

}  // namespace pdjob::router
