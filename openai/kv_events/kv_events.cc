#include "openai/kv_events/kv_events.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "common/check.h"
#include "openai/kv_events/msgpack_reader.h"
#include "openai/kv_events/msgpack_writer.h"

namespace pdjob::openai {
namespace {

using Kind = MsgpackReader::Kind;

constexpr std::string_view kStored = "BlockStored";
constexpr std::string_view kRemoved = "BlockRemoved";
constexpr std::string_view kCleared = "AllBlocksCleared";

// The fields of an event that is a list, after its tag.
constexpr std::array<std::string_view, 10> kStoredFields = {
    "block_hashes", "parent_block_hash", "token_ids",  "block_size", "lora_id",
    "medium",       "lora_name",         "extra_keys", "group_idx",  "kv_cache_spec_kind"};
constexpr std::array<std::string_view, 3> kRemovedFields = {"block_hashes", "medium", "group_idx"};

struct Fields {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;
  std::vector<uint32_t> tokens;
  uint64_t block_size = 0;
  uint64_t group = 0;
  bool has_adapter = false;
  std::string adapter;
  std::string medium;
  std::string attention;
  std::string salt;  // SGLang's: such blocks are shared only with prompts of the same salt.
  // Per block: keys besides its tokens that distinguish it. Empty: there are no such keys.
  std::vector<std::vector<std::string>> extra_keys;
};

// Cuts bytes to the last eight, as vLLM does when it publishes integers.
std::optional<uint64_t> hash_of(const MsgpackReader::Value& value) {
  if (value.kind == Kind::kUnsigned || value.kind == Kind::kNegative) {
    return value.number;
  }
  if (value.kind != Kind::kBytes || value.bytes.empty()) {
    return std::nullopt;
  }
  uint64_t hash = 0;
  for (const char byte :
       value.bytes.substr(value.bytes.size() - std::min<size_t>(8, value.bytes.size()))) {
    hash = hash << 8 | static_cast<uint8_t>(byte);
  }
  return hash;
}

std::optional<uint32_t> token_of(const MsgpackReader::Value& value) {
  if (value.kind != Kind::kUnsigned || value.number > std::numeric_limits<uint32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(value.number);
}

// `item_of` returns an empty optional for a value of the wrong kind.
template <class Item, class ItemOf>
bool read_list(MsgpackReader& in, std::vector<Item>& items, const ItemOf& item_of) {
  const MsgpackReader::Value list = in.next();
  if (list.kind != Kind::kList || list.number > in.bytes_left()) {
    return false;
  }
  items.reserve(list.number);
  for (uint64_t i = 0; i < list.number; ++i) {
    const auto item = item_of(in.next());
    if (!item) {
      return false;
    }
    items.push_back(*item);
  }
  return true;
}

bool read_number(MsgpackReader& in, uint64_t& number) {
  const MsgpackReader::Value value = in.next();
  number = value.number;
  return value.kind == Kind::kUnsigned || value.kind == Kind::kNil;
}

bool read_text(MsgpackReader& in, std::string& text) {
  const MsgpackReader::Value value = in.next();
  text = value.bytes;
  return value.kind == Kind::kText || value.kind == Kind::kNil;
}

// Keys that are not text compare equal to each other; each still counts as a key.
bool read_extra_keys(MsgpackReader& in, std::vector<std::vector<std::string>>& blocks) {
  const MsgpackReader::Value list = in.next();
  if (list.kind == Kind::kNil) {
    return true;
  }
  if (list.kind != Kind::kList || list.number > in.bytes_left()) {
    return false;
  }
  for (uint64_t i = 0; i < list.number; ++i) {
    const MsgpackReader::Value keys = in.next();
    if (keys.kind != Kind::kNil && (keys.kind != Kind::kList || keys.number > in.bytes_left())) {
      return false;
    }
    std::vector<std::string>& block = blocks.emplace_back();
    for (uint64_t key = 0; key < keys.number; ++key) {
      MsgpackReader ahead = in;
      block.emplace_back(ahead.next().bytes);
      if (!in.skip()) {
        return false;
      }
    }
  }
  return true;
}

bool read_field(std::string_view name, MsgpackReader& in, Fields& fields) {
  if (name == "block_hashes") {
    return read_list(in, fields.hashes, hash_of);
  }
  if (name == "parent_block_hash") {
    const MsgpackReader::Value parent = in.next();
    fields.parent = hash_of(parent);
    return fields.parent || parent.kind == Kind::kNil;
  }
  if (name == "token_ids") {
    return read_list(in, fields.tokens, token_of);
  }
  if (name == "block_size") {
    return read_number(in, fields.block_size);
  }
  if (name == "lora_id") {
    MsgpackReader ahead = in;
    fields.has_adapter = ahead.next().kind != Kind::kNil;
    return in.skip();
  }
  if (name == "medium") {
    return read_text(in, fields.medium);
  }
  if (name == "lora_name") {
    return read_text(in, fields.adapter);
  }
  if (name == "extra_keys") {
    return read_extra_keys(in, fields.extra_keys);
  }
  if (name == "group_idx") {
    return read_number(in, fields.group);
  }
  if (name == "kv_cache_spec_kind") {
    return read_text(in, fields.attention);
  }
  if (name == "cache_salt") {
    return read_text(in, fields.salt);
  }
  return in.skip();
}

// Reads an event's fields; `tag` is its type. False: it is not an event.
bool read_event(MsgpackReader& in, std::string_view& tag, Fields& fields) {
  const MsgpackReader::Value event = in.next();
  if (event.kind == Kind::kMap) {
    for (uint64_t i = 0; i < event.number; ++i) {
      const MsgpackReader::Value name = in.next();
      if (name.kind != Kind::kText) {
        return false;
      }
      if (name.bytes == "type") {
        tag = in.next().bytes;
      } else if (!read_field(name.bytes, in, fields)) {
        return false;
      }
    }
    return true;
  }
  if (event.kind != Kind::kList || event.number == 0) {
    return false;
  }
  tag = in.next().bytes;
  const std::span<const std::string_view> names =
      tag == kStored ? std::span<const std::string_view>(kStoredFields)
                     : std::span<const std::string_view>(kRemovedFields);
  for (uint64_t i = 1; i < event.number; ++i) {
    const bool is_known = (tag == kStored || tag == kRemoved) && i <= names.size();
    if (is_known ? !read_field(names[i - 1], in, fields) : !in.skip()) {
      return false;
    }
  }
  return true;
}

bool is_on_gpu(const Fields& fields) { return fields.medium.empty() || fields.medium == "GPU"; }

// Only these layers need all of a prompt's blocks for a hit.
bool sees_all(const Fields& fields) {
  return fields.attention.empty() || fields.attention == "full_attention" ||
         fields.attention == "mla_attention" || fields.attention == "sink_full_attention";
}

// The number of blocks, from the first one on, that differ only by tokens and adapter.
size_t plain_blocks(const Fields& fields) {
  const auto is_plain = [&](const std::vector<std::string>& keys) {
    return keys.empty() ||
           (keys.size() == 1 && !fields.adapter.empty() && keys[0] == fields.adapter);
  };
  const auto& keys = fields.extra_keys;
  const auto first = std::find_if_not(keys.begin(), keys.end(), is_plain);
  return first == keys.end()
             ? fields.hashes.size()
             : std::min(fields.hashes.size(), static_cast<size_t>(first - keys.begin()));
}

std::optional<KvEvent> stored_of(Fields& fields) {
  const bool is_nameless = fields.has_adapter && fields.adapter.empty();
  const bool is_whole = fields.block_size > 0 && fields.block_size <= fields.tokens.size() &&
                        fields.tokens.size() % fields.block_size == 0 &&
                        fields.tokens.size() / fields.block_size == fields.hashes.size();
  const size_t blocks = plain_blocks(fields);
  if (!is_on_gpu(fields) || !sees_all(fields) || is_nameless || !is_whole || blocks == 0 ||
      !fields.salt.empty()) {
    return std::nullopt;
  }
  fields.hashes.resize(blocks);
  fields.tokens.resize(blocks * fields.block_size);
  return KvBlocksStored{.hashes = std::move(fields.hashes),
                        .parent = fields.parent,
                        .tokens = std::move(fields.tokens),
                        .block_size = static_cast<uint32_t>(fields.block_size),
                        .group = static_cast<uint32_t>(fields.group),
                        .adapter = std::move(fields.adapter)};
}

std::optional<KvEvent> event_of(std::string_view tag, Fields& fields) {
  if (tag == kStored) {
    return stored_of(fields);
  }
  if (tag == kRemoved && is_on_gpu(fields)) {
    return KvBlocksRemoved{std::move(fields.hashes), static_cast<uint32_t>(fields.group)};
  }
  return tag == kCleared ? std::optional<KvEvent>(KvBlocksCleared{}) : std::nullopt;
}

void write_list(MsgpackWriter& out, const auto& numbers) {
  out.list(static_cast<uint32_t>(numbers.size()));
  for (const auto number : numbers) {
    out.number(number);
  }
}

void write_event(MsgpackWriter& out, const KvBlocksStored& event) {
  PDJOB_CHECK(event.tokens.size() == event.hashes.size() * event.block_size, event.tokens.size());
  out.list(static_cast<uint32_t>(kStoredFields.size() + 1)).text(kStored);
  write_list(out, event.hashes);
  event.parent ? out.number(*event.parent) : out.nil();
  write_list(out, event.tokens);
  // lora_id, medium, lora_name, extra_keys, group_idx, kv_cache_spec_kind
  out.number(event.block_size).nil().nil();
  event.adapter.empty() ? out.nil() : out.text(event.adapter);
  out.nil().number(event.group).nil();
}

void write_event(MsgpackWriter& out, const KvBlocksRemoved& event) {
  out.list(static_cast<uint32_t>(kRemovedFields.size() + 1)).text(kRemoved);
  write_list(out, event.hashes);
  out.nil().number(event.group);
}

void write_event(MsgpackWriter& out, const KvBlocksCleared& /*event*/) {
  out.list(1).text(kCleared);
}

}  // namespace

std::string tenant_adapter(std::string_view tenant) {
  return tenant.empty() ? "" : "pdjob-tenant:" + std::string(tenant);
}

Result<std::vector<KvEvent>> decode_kv_events(std::string_view payload) {
  const Error corrupt{ErrorCode::kCorrupt, "it is no batch of KV events"};
  MsgpackReader in(payload);
  const MsgpackReader::Value batch = in.next();
  if (batch.kind != Kind::kList || batch.number < 2 || !in.skip()) {  // Skips its time.
    return corrupt;
  }
  const MsgpackReader::Value list = in.next();
  if (list.kind != Kind::kList) {
    return corrupt;
  }
  std::vector<KvEvent> events;
  for (uint64_t i = 0; i < list.number; ++i) {
    std::string_view tag;
    Fields fields;
    if (!read_event(in, tag, fields)) {
      return corrupt;
    }
    if (auto event = event_of(tag, fields)) {
      events.push_back(std::move(*event));
    }
  }
  for (uint64_t i = 2; i < batch.number; ++i) {
    if (!in.skip()) {
      return corrupt;
    }
  }
  return in.at_end() ? Result<std::vector<KvEvent>>(std::move(events)) : corrupt;
}

std::string encode_kv_events(std::span<const KvEvent> events, double unix_seconds) {
  std::string batch;
  MsgpackWriter out(batch);
  out.list(2).real(unix_seconds).list(static_cast<uint32_t>(events.size()));
  for (const KvEvent& event : events) {
    std::visit([&out](const auto& one) { write_event(out, one); }, event);
  }
  return batch;
}

}  // namespace pdjob::openai
