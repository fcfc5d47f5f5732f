#include "worker/api/bootstrap.h"

#include <array>
#include <utility>

#include "common/limits.h"
#include "openai/json/json_edit.h"
#include "worker/core/kv_params.h"

namespace pdjob::worker {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(5);
constexpr size_t kAnswerBytesMax = 64 * limits::kKiB;
constexpr uint64_t kRoomTag = 0x73676c616e67726f;  // "sglangro": no router's transfer has it.

Result<openai::KvTransferParams> address_in(const Result<net::HttpReply>& reply) {
  if (!reply) {
    return reply.error();
  }
  static constexpr std::array<std::string_view, 1> kNames{"kv_address"};
  const auto worker = openai::JsonObject::scan(reply->body, kNames);
  if (reply->status != 200 || !worker || worker->value("kv_address").empty()) {
    return Error{ErrorCode::kPeerFailed,
                 "it is no pdjob worker: status " + std::to_string(reply->status)};
  }
  return parse_kv_address(std::string(worker->value("kv_address")));
}

}  // namespace

TransferId transfer_of_room(uint64_t room) { return {.high = kRoomTag, .low = room}; }

openai::KvTransferParams offer_in_room(const openai::BootstrapParams& params) {
  return {.do_remote_decode = true, .transfer = transfer_of_room(params.room)};
}

Bootstrap::Bootstrap(net::Loop& loop) : loop_(loop), client_(net::HttpClient::create(loop)) {}

void Bootstrap::look_up(const openai::BootstrapParams& params, Then then) {
  const net::HttpAddress server{.host = params.host, .port = params.port};
  net::fetch(
      loop_, *client_,
      {.to = server,
       .method = "GET",
       .target = "/pdjob/kv_address",
       .head_timeout = kAnswerTimeout,
       .idle_timeout = kAnswerTimeout},
      kAnswerBytesMax,
      [server, room = params.room, then = std::move(then)](const Result<net::HttpReply>& reply) {
        Result<openai::KvTransferParams> address = address_in(reply);
        if (!address) {
          return then(Error{ErrorCode::kPeerFailed,
                            "bootstrap server " + server.to_string() +
                                " does not say where the KV is: " + address.error().message});
        }
        address->do_remote_prefill = true;
        address->transfer = transfer_of_room(room);
        then(std::move(address));
      });
}

}  // namespace pdjob::worker
