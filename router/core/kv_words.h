// The words of both legs about the hand-over of a request's KV, in each engine's dialect. A dialect
// is data: the members to send, and what the engine can do. The core decides the order of the legs:
// both at once if the prefill worker's address is known, otherwise in two hops. Pure.
//
//   pdjob    kv_transfer_params; a decode worker fetches by transfer_id from the kv_address
//   nixl     vLLM's NixlConnector (docs/features/nixl_connector_usage.md of vllm-project/vllm): a
//            prefill worker's reply says where the KV is, and a decode worker gets it verbatim
//   nixl_push vLLM's NixlPushConnector (nixl/push_scheduler.py beside the above, and
//            disagg_proxy_pushconnector_demo.py of its examples): a decode worker tells the prefill
//            worker where to write, so it must know that worker's address. All replies of a prefill
//            worker give the same address; the router learns it from the first one, in two hops.
//            Engines find their partner by x-request-id, so each attempt has a new one. Newer
//            engines find it by transfer_id
//   mooncake vLLM's MooncakeConnector: like pdjob, but each data-parallel rank of a prefill worker
//            is an engine of its own. The prefill worker's bootstrap server names the engines
//            (GET /query). A header selects one
//            (examples/disaggregated/mooncake_connector/mooncake_connector_proxy.py and
//            vllm/distributed/kv_transfer/kv_connector/v1/mooncake/mooncake_utils.py)
//   sglang   bootstrap_host, bootstrap_port and bootstrap_room in one body for both
//            (python/sglang/srt/managers/io_struct.py of sgl-project/sglang). A request with
//            several prompts or choices has consecutive rooms, from this one on
//            (GenerateReqInput._normalize_bootstrap_params)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/id.h"
#include "router/config/router_config.h"

namespace pdjob::router {

// Members of a body, as JSON. Empty: the body has no such member, even if the client wrote one.
struct KvWords {
  std::string header_lines;  // More header lines, not part of the body.
  std::string request_id;    // A header, too; empty: the request's own id.
  std::string kv_transfer_params;
  std::string bootstrap_host;
  std::string bootstrap_port;
  std::string bootstrap_room;
};

struct HandOver {
  TransferId transfer;
  // Where the KV will be: the prefill worker's kv_address, or its reply's value. Empty: not known
  // yet.
  std::string_view address;
  std::string_view request_id;
};

struct KvDialect {
  KvWords (*offer)(const HandOver&);  // For a prefill leg.
  KvWords (*fetch)(const HandOver&);  // For a decode leg.
  // Returns the address in the kv_transfer_params of a prefill worker's reply. It holds for all
  // requests of that worker.
  std::string (*address_in)(const std::string& params) = nullptr;
  // A prefill worker gets the client's whole request, and stops by itself after the prompt.
  bool one_body = false;
  bool several_prompts = false;  // One request may hand over several prompts.
};

// `concurrent`: the prefill worker's address is known. With Protocol::kAuto, that means a pdjob
// worker.
const KvDialect& dialect_of(Protocol protocol, bool concurrent);

// Says why KV cannot go from one to the other: they speak differently, their KV means different
// things, or they are on two machines without keys for KV links. Empty: it can.
std::string why_no_hand_over(const net::WorkerEntry& prefill, const net::WorkerEntry& decode);

// A worker's WorkerEntry::abort for one transfer. Empty: it has none, or it cannot be read.
struct AbortCall {
  std::string method;
  std::string target;
  std::string body;
};
std::optional<AbortCall> abort_call(std::string_view abort, const TransferId& transfer);

// --- addresses of prefill workers

// The address of an SGLang engine.
std::string bootstrap_address(std::string_view host, uint16_t port);
// The address of a Mooncake engine: a list with one item for each data-parallel rank in the reply
// to GET /query of the bootstrap server at `server` ("host:port"). Empty: the reply names no rank.
std::string mooncake_address(const std::string& server, const std::string& query_reply);
// kv_transfer_params of a prefill reply, verbatim; empty if it has none.
std::string returned_params(const std::string& reply_body);

}  // namespace pdjob::router
