// A worker's KV address and vLLM's kv_transfer_params: the JSON that lets a decode worker find the
// rows of a prefill worker. Pure.
#pragma once

#include <string>

#include "common/id.h"
#include "common/result.h"
#include "kvtransfer/kv_endpoint.h"
#include "openai/openai.h"

namespace pdjob::worker {

// The JSON object of a worker's address: remote_engine_id, remote_host, remote_port,
// remote_unix_path, remote_host_id, and remote_gpu_path if the worker offers it.
std::string kv_address_json(const kvtransfer::EndpointAddress& address);

// The reverse. Other parameters keep their defaults. Fails with kCorrupt if the JSON names no
// address.
Result<openai::KvTransferParams> parse_kv_address(const std::string& json);

// A prefill worker's answer in the two-hop protocol; a router passes it on unread. It has the
// address, the transfer's id, and the fields of vLLM's own replies.
std::string prefill_reply_params(const kvtransfer::EndpointAddress& address, TransferId transfer,
                                 uint32_t prompt_tokens);

kvtransfer::EndpointAddress peer_address(const openai::KvTransferParams& params);

}  // namespace pdjob::worker
