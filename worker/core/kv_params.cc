#include "worker/core/kv_params.h"

#include <array>
#include <string_view>

#include "common/json/json_writer.h"
#include "common/parse_number.h"
#include "openai/json/json_edit.h"

namespace pdjob::worker {
namespace {

void write_address(JsonWriter& json, const kvtransfer::EndpointAddress& address) {
  json.key("remote_engine_id").string(address.engine_id);
  json.key("remote_host").string(address.host);
  json.key("remote_port").integer(address.port);
  json.key("remote_unix_path").string(address.unix_path);
  json.key("remote_host_id").string(address.host_id);
  if (!address.gpu_path.empty()) {
    json.key("remote_gpu_path").string(address.gpu_path);
  }
}

}  // namespace

std::string kv_address_json(const kvtransfer::EndpointAddress& address) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  write_address(json, address);
  json.end_object();
  return text;
}

Result<openai::KvTransferParams> parse_kv_address(const std::string& json) {
  static constexpr std::array<std::string_view, 6> kNames{"remote_engine_id", "remote_host",
                                                          "remote_port",      "remote_unix_path",
                                                          "remote_host_id",   "remote_gpu_path"};
  PDJOB_TRY(const openai::JsonObject object, openai::JsonObject::scan(json, kNames));
  const auto text = [&object](std::string_view name) {
    return openai::json_string(object.value(name)).value_or("");
  };
  openai::KvTransferParams params{.remote_engine_id = text("remote_engine_id"),
                                  .remote_host = text("remote_host"),
                                  .remote_unix_path = text("remote_unix_path"),
                                  .remote_host_id = text("remote_host_id"),
                                  .remote_gpu_path = text("remote_gpu_path")};
  params.remote_port = parse_number<uint16_t>(object.value("remote_port")).value_or(0);
  if (params.remote_engine_id.empty()) {
    return Error{ErrorCode::kCorrupt, "it has no KV address"};
  }
  return params;
}

std::string prefill_reply_params(const kvtransfer::EndpointAddress& address, TransferId transfer,
                                 uint32_t prompt_tokens) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("do_remote_prefill").boolean(true);
  json.key("do_remote_decode").boolean(false);
  json.key("transfer_id").string(transfer.to_string());
  json.key("remote_request_id").string(transfer.to_string());
  json.key("remote_block_ids").begin_array().end_array();
  json.key("remote_num_tokens").integer(prompt_tokens);
  json.key("tp_size").integer(1);
  write_address(json, address);
  json.end_object();
  return text;
}

kvtransfer::EndpointAddress peer_address(const openai::KvTransferParams& params) {
  return {.engine_id = params.remote_engine_id,
          .host = params.remote_host,
          .port = params.remote_port,
          .unix_path = params.remote_unix_path,
          .host_id = params.remote_host_id,
          .gpu_path = params.remote_gpu_path};
}

}  // namespace pdjob::worker
