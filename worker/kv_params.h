// A worker's KV address and vLLM's kv_transfer_params: the JSON that lets a decode worker find the
// rows of a prefill worker. Pure.
#pragma once

#include <string>

#include "common/id.h"
#include "common/result.h"
#include "kvtransfer/kv_endpoint.h"
#include "net/openai.h"

namespace pdjob::worker {

// The JSON object of a worker's address: remote_engine_id, remote_host, remote_port,
// remote_unix_path, remote_host_id, and, where it is offered, remote_gpu_path.
std::string kv_address_json(const kvtransfer::EndpointAddress& address);

// Back again; the rest of the parameters is left as it is made. kCorrupt: it names no address.
Result<net::KvTransferParams> parse_kv_address(const std::string& json);

// What a prefill worker answers in the two-hop protocol, and a router passes on unread: the
// address, the transfer's id, and the fields that vLLM's own replies have.
std::string prefill_reply_params(const kvtransfer::EndpointAddress& address, TransferId transfer,
                                 uint32_t prompt_tokens);

kvtransfer::EndpointAddress peer_address(const net::KvTransferParams& params);

}  // namespace pdjob::worker
