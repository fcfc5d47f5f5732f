#include "router/kv_words.h"

#include <array>
#include <cstdint>
#include <utility>

#include "net/json_edit.h"
#include "net/json_writer.h"

namespace pdjob::router {
namespace {

KvWords offer_named(const HandOver& hand_over) {
  return {.kv_transfer_params =
              R"({"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":")" +
              hand_over.transfer.to_string() + R"("})"};
}

KvWords fetch_named(const HandOver& hand_over) {
  const std::string id = '"' + hand_over.transfer.to_string() + '"';
  const net::JsonEdit edits[] = {
      {"do_remote_prefill", "true"}, {"do_remote_decode", "false"}, {"transfer_id", id}};
  // The address comes from elsewhere: what is no object is left out, and the decode worker will say
  // what it lacks.
  auto params = net::edit_json_object(std::string(hand_over.address), edits);
  return {.kv_transfer_params =
              params ? std::move(*params) : net::edit_json_object("{}", edits).value()};
}

// The nulls are what vLLM's own proxies send; engines differ in which of them they insist on.
KvWords offer_unnamed(const HandOver& /*hand_over*/) {
  return {
      .kv_transfer_params =
          R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,)"
          R"("remote_host":null,"remote_port":null})"};
}

KvWords fetch_returned(const HandOver& hand_over) {
  return {.kv_transfer_params = std::string(hand_over.address)};
}

// A room is a positive int64, and so are those that an engine counts up from it.
uint64_t room_of(const TransferId& transfer) {
  constexpr uint64_t kRoomsMax = uint64_t{1} << 62;
  return 1 + transfer.low % kRoomsMax;
}

KvWords meet_in_room(const HandOver& hand_over) {
  static constexpr std::array<std::string_view, 2> kNames{"bootstrap_host", "bootstrap_port"};
  const std::string address(hand_over.address);
  const auto server = net::JsonObject::scan(address, kNames);
  if (!server) {
    return {};
  }
  return {.bootstrap_host = std::string(server->value("bootstrap_host")),
          .bootstrap_port = std::string(server->value("bootstrap_port")),
          .bootstrap_room = std::to_string(room_of(hand_over.transfer))};
}

constexpr KvDialect kPdjob{.offer = offer_named, .fetch = fetch_named, .releases = true};
constexpr KvDialect kNixl{.offer = offer_unnamed, .fetch = fetch_returned};
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
    case Protocol::kSglang:
      return kSglang;
  }
  return kPdjob;
}

std::string bootstrap_address(std::string_view host, uint16_t port) {
  std::string address;
  net::JsonWriter json(address);
  json.begin_object();
  json.key("bootstrap_host").string(host);
  json.key("bootstrap_port").integer(port);
  json.end_object();
  return address;
}

std::string returned_params(const std::string& reply_body) {
  static constexpr std::string_view kName = "kv_transfer_params";
  const auto object = net::JsonObject::scan(reply_body, {&kName, 1});
  const std::string_view params = object ? object->value(kName) : std::string_view();
  return params.starts_with('{') ? std::string(params) : std::string();
}

}  // namespace pdjob::router
