#include "router/core/kv_words.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/json/json_writer.h"
#include "net/control/kv_fingerprint.h"
#include "openai/headers.h"
#include "openai/json/json_edit.h"

namespace pdjob::router {
namespace {

KvWords offer_named(const HandOver& hand_over) {
  return {.kv_transfer_params =
              R"({"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":")" +
              hand_over.transfer.to_string() + R"("})"};
}

KvWords fetch_named(const HandOver& hand_over) {
  const std::string id = '"' + hand_over.transfer.to_string() + '"';
  const openai::JsonEdit edits[] = {
      {"do_remote_prefill", "true"}, {"do_remote_decode", "false"}, {"transfer_id", id}};
  // The address comes from outside. If it is not an object, it is left out, and the decode worker
  // reports what it lacks.
  auto params = openai::edit_json_object(std::string(hand_over.address), edits);
  return {.kv_transfer_params =
              params ? std::move(*params) : openai::edit_json_object("{}", edits).value()};
}

// vLLM's own proxies send these nulls; engines differ in which of them they require.
KvWords offer_unnamed(const HandOver& /*hand_over*/) {
  return {
      .kv_transfer_params =
          R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,)"
          R"("remote_host":null,"remote_port":null})"};
}

KvWords fetch_returned(const HandOver& hand_over) {
  return {.kv_transfer_params = std::string(hand_over.address)};
}

std::string request_id_of(const HandOver& hand_over) {
  return std::string(hand_over.request_id) + '-' + hand_over.transfer.to_string();
}

KvWords offer_to_push(const HandOver& hand_over) {
  const std::string id = '"' + hand_over.transfer.to_string() + '"';
  const openai::JsonEdit edits[] = {{"transfer_id", id}};
  return {.request_id = request_id_of(hand_over),
          .kv_transfer_params =
              openai::edit_json_object(offer_unnamed({}).kv_transfer_params, edits).value()};
}

KvWords await_push(const HandOver& hand_over) {
  static constexpr std::array<std::string_view, 1> kNames{"remote_request_id"};
  KvWords words = fetch_named(hand_over);
  words.request_id = request_id_of(hand_over);
  const auto params = openai::JsonObject::scan(words.kv_transfer_params, kNames);
  if (params && params->value(kNames.front()).empty()) {
    std::string id;
    JsonWriter(id).string(words.request_id);
    const openai::JsonEdit edits[] = {{kNames.front(), id}};
    words.kv_transfer_params = params->edited(edits);
  }
  return words;
}

std::string pushing_engine(const std::string& params) {
  static constexpr std::array<std::string_view, 7> kNames{
      "transfer_mode", "remote_engine_id", "remote_host", "remote_port",
      "tp_size",       "pp_size",          "dcp_size"};
  constexpr size_t kRequired = 5;  // The engine defaults the others to 1.
  const auto said = openai::JsonObject::scan(params, kNames);
  if (!said || said->value("transfer_mode") != "\"push\"") {
    return {};
  }
  std::string address;
  JsonWriter json(address);
  json.begin_object();
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string_view value = said->value(kNames[i]);
    if (!value.empty()) {
      json.key(kNames[i]).raw(value);
    } else if (i < kRequired) {
      return {};
    }
  }
  json.end_object();
  return address;
}

// The transfer id selects the rank, so both legs mean the same one.
size_t rank_of(const TransferId& transfer, size_t ranks) { return transfer.high % ranks; }

KvWords offer_at_rank(const HandOver& hand_over) {
  const size_t ranks = openai::json_array_items(hand_over.address).size();
  KvWords words = offer_named(hand_over);
  if (ranks > 0) {
    words.header_lines = std::string(openai::header::kDataParallelRank) + ": " +
                         std::to_string(rank_of(hand_over.transfer, ranks)) + "\r\n";
  }
  return words;
}

KvWords fetch_from_rank(const HandOver& hand_over) {
  const std::vector<std::string> ranks = openai::json_array_items(hand_over.address);
  return fetch_named(
      {.transfer = hand_over.transfer,
       .address = ranks.empty() ? "" : ranks[rank_of(hand_over.transfer, ranks.size())]});
}

// A room is a positive int64, and so are the rooms that an engine counts up from it.
uint64_t room_of(const TransferId& transfer) {
  constexpr uint64_t kRoomsMax = uint64_t{1} << 62;
  return 1 + transfer.low % kRoomsMax;
}

KvWords meet_in_room(const HandOver& hand_over) {
  static constexpr std::array<std::string_view, 2> kNames{"bootstrap_host", "bootstrap_port"};
  const std::string address(hand_over.address);
  const auto server = openai::JsonObject::scan(address, kNames);
  if (!server) {
    return {};
  }
  return {.bootstrap_host = std::string(server->value("bootstrap_host")),
          .bootstrap_port = std::string(server->value("bootstrap_port")),
          .bootstrap_room = std::to_string(room_of(hand_over.transfer))};
}

constexpr KvDialect kPdjob{.offer = offer_named, .fetch = fetch_named};
constexpr KvDialect kNixl{.offer = offer_unnamed, .fetch = fetch_returned};
constexpr KvDialect kNixlPush{
    .offer = offer_to_push, .fetch = await_push, .address_in = pushing_engine};
constexpr KvDialect kMooncake{.offer = offer_at_rank, .fetch = fetch_from_rank};
constexpr KvDialect kSglang{
    .offer = meet_in_room, .fetch = meet_in_room, .one_body = true, .several_prompts = true};

}  // namespace

const KvDialect& dialect_of(Protocol protocol, bool concurrent) {
  switch (protocol) {
    case Protocol::kAuto:
    case Protocol::kPdjob:
      return concurrent ? kPdjob : kNixl;
    case Protocol::kNixl:
      return kNixl;
    case Protocol::kNixlPush:
      return kNixlPush;
    case Protocol::kMooncake:
      return kMooncake;
    case Protocol::kSglang:
      return kSglang;
  }
  return kPdjob;
}

std::string why_no_hand_over(const net::WorkerEntry& prefill, const net::WorkerEntry& decode) {
  const auto machine = [](const std::string& host) {
    const bool here = host == "localhost" || host == "::1" || host.starts_with("127.");
    return here ? std::string("localhost") : host;
  };
  if (prefill.protocol != decode.protocol) {
    return "they speak different protocols";
  }
  if (!net::same_kv(prefill.fingerprint, decode.fingerprint)) {
    return "their KV means different things: another model, kv_type, variant of the CPU's kernels, "
           "or version";
  }
  const bool keyless = prefill.local_links || decode.local_links;
  return keyless && machine(prefill.host) != machine(decode.host)
             ? "they are on two machines and have no key: start both with the same --key-file"
             : "";
}

std::optional<AbortCall> abort_call(std::string_view abort, const TransferId& transfer) {
  static constexpr std::string_view kTransfer = "{transfer}";
  const bool printable =
      std::ranges::all_of(abort, [](char letter) { return letter >= ' ' && letter <= '~'; });
  std::string text(abort);
  if (const size_t place = text.find(kTransfer); place != std::string::npos) {
    text.replace(place, kTransfer.size(), transfer.to_string());
  }
  const size_t target = text.find(' ') + 1;
  if (!printable || target == 0 || target >= text.size() || text[target] != '/') {
    return std::nullopt;
  }
  const size_t end = std::min(text.find(' ', target), text.size());
  return AbortCall{.method = text.substr(0, target - 1),
                   .target = text.substr(target, end - target),
                   .body = text.substr(std::min(end + 1, text.size()))};
}

std::string bootstrap_address(std::string_view host, uint16_t port) {
  std::string address;
  JsonWriter json(address);
  json.begin_object();
  json.key("bootstrap_host").string(host);
  json.key("bootstrap_port").integer(port);
  json.end_object();
  return address;
}

std::string mooncake_address(const std::string& server, const std::string& query_reply) {
  static constexpr std::array<std::string_view, 16> kRanks{
      "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"};
  static constexpr std::array<std::string_view, 1> kNames{"engine_id"};
  const auto ranks = openai::JsonObject::scan(query_reply, kRanks);
  std::string address;
  JsonWriter json(address);
  json.begin_array();
  size_t found = 0;
  for (; ranks && found < kRanks.size(); ++found) {
    const std::string text(ranks->value(kRanks[found]));
    const auto rank = openai::JsonObject::scan(text, kNames);
    if (!rank || rank->value("engine_id").empty()) {
      break;
    }
    json.begin_object();
    json.key("remote_bootstrap_addr").string("http://" + server);
    json.key("remote_engine_id").raw(rank->value("engine_id"));
    json.end_object();
  }
  json.end_array();
  return found > 0 ? address : std::string();
}

std::string returned_params(const std::string& reply_body) {
  static constexpr std::array<std::string_view, 1> kNames{"kv_transfer_params"};
  static constexpr openai::JsonNames kScanned{kNames};
  const auto object =
      openai::JsonObject::scan(reply_body, kScanned, openai::JsonObject::Check::kNamed);
  const std::string_view params = object ? object->value(kNames.front()) : std::string_view();
  return params.starts_with('{') ? std::string(params) : std::string();
}

}  // namespace pdjob::router
