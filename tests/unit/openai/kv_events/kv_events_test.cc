#include "openai/kv_events/kv_events.h"

#include <gtest/gtest.h>

#include "openai/kv_events/msgpack_reader.h"
#include "openai/replies/tokenize_reply.h"

namespace pdjob::openai {
namespace {

using namespace std::string_literals;

// Encodes a string as msgspec does.
std::string text(std::string_view word) {
  return static_cast<char>(0xa0 + word.size()) + std::string(word);
}
std::string list(const std::vector<std::string>& items) {
  std::string all = "\xdc\x00"s + static_cast<char>(items.size());
  for (const std::string& item : items) {
    all += item;
  }
  return all;
}
std::string number(uint64_t value) {
  std::string bytes = "\xcf";
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift);
  }
  return bytes;
}
std::string bytes(std::string_view what) {
  return "\xc4"s + static_cast<char>(what.size()) + std::string(what);
}
const std::string kNil = "\xc0";
const std::string kTime = "\xcb\x41\xda\x00\x00\x00\x00\x00\x00"s;

std::string batch(const std::vector<std::string>& events) {
  return "\x93" + kTime + list(events) + '\0';
}

std::vector<std::string> stored_fields() {
  return {list({number(7), number(8)}),
          number(6),
          list({"\x01", "\x02", "\x03", "\x04"}),
          "\x02",
          kNil,
          text("GPU"),
          kNil};
}
std::string stored(std::vector<std::string> fields) {
  fields.insert(fields.begin(), text("BlockStored"));
  return list(fields);
}
// The newer form of the event.
std::string stored_map(const std::vector<std::string>& fields) {
  static constexpr const char* kNames[] = {
      "block_hashes", "parent_block_hash", "token_ids",  "block_size", "lora_id",
      "medium",       "lora_name",         "extra_keys", "group_idx",  "kv_cache_spec_kind"};
  std::string map =
      static_cast<char>(0x80 + fields.size() + 2) + text("type") + text("BlockStored");
  for (size_t i = 0; i < fields.size(); ++i) {
    map += text(kNames[i]) + fields[i];
  }
  return map + text("from_the_future") + list({kNil, list({number(1)})});
}

std::vector<KvEvent> decoded(const std::string& payload) {
  auto events = decode_kv_events(payload);
  EXPECT_TRUE(events) << events.error().message;
  return events ? *events : std::vector<KvEvent>();
}
KvBlocksStored only_stored(const std::string& event) {
  const auto events = decoded(batch({event}));
  EXPECT_EQ(events.size(), 1U);
  return events.size() == 1 ? std::get<KvBlocksStored>(events[0]) : KvBlocksStored();
}

TEST(KvEvents, AreReadAsListsAndAsMaps) {
  for (const std::string& event : {stored(stored_fields()), stored_map(stored_fields())}) {
    const KvBlocksStored blocks = only_stored(event);
    EXPECT_EQ(blocks.hashes, (std::vector<uint64_t>{7, 8}));
    EXPECT_EQ(blocks.parent, 6U);
    EXPECT_EQ(blocks.tokens, (std::vector<uint32_t>{1, 2, 3, 4}));
    EXPECT_EQ(blocks.block_size, 2U);
    EXPECT_EQ(blocks.adapter, "");
  }
  const auto events = decoded(batch({list({text("BlockRemoved"), list({number(7)}), text("GPU")}),
                                     list({text("AllBlocksCleared")})}));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<KvBlocksRemoved>(events[0]).hashes, std::vector<uint64_t>{7});
  EXPECT_TRUE(std::holds_alternative<KvBlocksCleared>(events[1]));
}

TEST(KvEvents, BlocksOfASaltAreLeftOut) {
  const auto with_salt = [](const std::string& salt) {
    std::string map = stored_map(stored_fields());
    map[0] = static_cast<char>(map[0] + 1);
    return batch({map + text("cache_salt") + salt});
  };
  EXPECT_EQ(decoded(with_salt(kNil)).size(), 1U);
  EXPECT_EQ(decoded(with_salt(text("salt"))).size(), 0U);
}

TEST(KvEvents, AHashOfBytesIsTheIntegerThatVllmMakesOfIt) {
  auto fields = stored_fields();
  fields[0] = list({bytes("0123456789abcdef01234567\0\0\0\0\0\0\0\7"s), "\xff"});
  const KvBlocksStored blocks = only_stored(stored(fields));
  EXPECT_EQ(blocks.hashes, (std::vector<uint64_t>{7, UINT64_MAX}));
}

TEST(KvEvents, WhatSaysNothingOfATextIsLeftOut) {
  const auto left_out = [](size_t field, const std::string& value) {
    auto fields = stored_fields();
    fields.resize(std::max(fields.size(), field + 1), kNil);
    fields[field] = value;
    return decoded(batch({stored(fields)})).empty();
  };
  EXPECT_TRUE(left_out(5, text("CPU")));
  EXPECT_TRUE(left_out(3, "\x04"));  // A partial block.
  EXPECT_TRUE(left_out(3, "\x00"s));
  EXPECT_TRUE(left_out(4, "\x01"));  // An adapter without a name.
  EXPECT_TRUE(left_out(9, text("sliding_window")));
  EXPECT_TRUE(left_out(7, list({list({text("salt")}), kNil})));
  EXPECT_FALSE(left_out(9, text("full_attention")));
  EXPECT_FALSE(left_out(12, number(5)));  // A field of a future version.
  EXPECT_TRUE(
      decoded(batch({list({text("BlockRemoved"), list({number(7)}), text("CPU")})})).empty());
  EXPECT_TRUE(decoded(batch({list({text("Unheard"), number(1)})})).empty());
}

TEST(KvEvents, BlocksBeforeThoseWithAnImageAreKept) {
  auto fields = stored_fields();
  fields.push_back(list({kNil, list({list({text("image"), "\x00"s})})}));
  const KvBlocksStored blocks = only_stored(stored(fields));
  EXPECT_EQ(blocks.hashes, std::vector<uint64_t>{7});
  EXPECT_EQ(blocks.tokens.size(), 2U);
}

TEST(KvEvents, AnAdaptersBlocksBearItsName) {
  auto fields = stored_fields();
  fields[4] = "\x01";
  fields[6] = text("sql");
  fields.push_back(list({list({text("sql")}), list({text("sql")})}));
  const KvBlocksStored blocks = only_stored(stored(fields));
  EXPECT_EQ(blocks.hashes.size(), 2U);
  EXPECT_EQ(blocks.adapter, "sql");
}

TEST(KvEvents, WhateverIsCutOffOrOfAnotherKindIsRefused) {
  const std::string whole = batch({stored(stored_fields()), stored_map(stored_fields())});
  ASSERT_TRUE(decode_kv_events(whole));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(decode_kv_events(whole.substr(0, bytes))) << bytes;
  }
  EXPECT_FALSE(decode_kv_events(whole + "x"));
  EXPECT_FALSE(decode_kv_events("\x92" + kTime + text("events")));
  EXPECT_FALSE(decode_kv_events(batch({text("BlockStored")})));
  auto fields = stored_fields();
  fields[2] = list({number(uint64_t{1} << 32)});
  EXPECT_FALSE(decode_kv_events(batch({stored(fields)})));
}

TEST(MsgpackReader, PassesOverListsOfAnyDepthWithoutAStack) {
  const std::string deep(1 << 20, '\x91');
  const std::string closed = deep + "\x01";
  MsgpackReader in(closed);
  EXPECT_TRUE(in.skip());
  EXPECT_TRUE(in.at_end());
  MsgpackReader broken(deep);
  EXPECT_FALSE(broken.skip());
}

TEST(MsgpackReader, SignsOfIntegersAreKept) {
  const auto number_of = [](const std::string& bytes) {
    return MsgpackReader(bytes).next().number;
  };
  EXPECT_EQ(number_of("\xd0\xff"), UINT64_MAX);
  EXPECT_EQ(number_of("\xd1\xff\xfe"), UINT64_MAX - 1);
  EXPECT_EQ(number_of("\xd0\x05"), 5U);
  EXPECT_EQ(number_of("\xcd\xff\xff"), 65535U);
}

TEST(TokenizeReply, NamesTokens) {
  const auto tokens = parse_tokenize_reply(
      R"({"count":3,"max_model_len":9,"tokens":[1, 22,4294967295],"token_strs":null})");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(*tokens, (std::vector<uint32_t>{1, 22, 4294967295}));
  for (const char* bad :
       {"", "[1]", "{}", R"({"tokens":[]})", R"({"tokens":"1"})", R"({"tokens":[-1]})",
        R"({"tokens":[1.5]})", R"({"tokens":[4294967296]})", R"({"tokens":[1)"}) {
    EXPECT_FALSE(parse_tokenize_reply(bad)) << bad;
  }
}

TEST(KvEvents, AreReadAsTheyWereWritten) {
  const std::vector<KvEvent> events = {
      KvBlocksCleared{},
      KvBlocksStored{.hashes = {1, 200, 70000, UINT64_MAX},
                     .parent = uint64_t{1} << 40,
                     .tokens = {0, 127, 128, 255, 256, 65535, 65536, 4000000000},
                     .block_size = 2,
                     .adapter = std::string(40, 'a')},
      KvBlocksRemoved{.hashes = std::vector<uint64_t>(20, 9), .group = 3},
      KvBlocksStored{.hashes = std::vector<uint64_t>(70000, 5),
                     .tokens = std::vector<uint32_t>(70000, 6),
                     .block_size = 1}};
  const auto read = decode_kv_events(encode_kv_events(events, 1.5));
  ASSERT_TRUE(read.has_value());
  ASSERT_EQ(read->size(), events.size());
  EXPECT_TRUE(std::holds_alternative<KvBlocksCleared>((*read)[0]));
  const auto& stored = std::get<KvBlocksStored>((*read)[1]);
  const auto& written = std::get<KvBlocksStored>(events[1]);
  EXPECT_EQ(stored.hashes, written.hashes);
  EXPECT_EQ(stored.parent, written.parent);
  EXPECT_EQ(stored.tokens, written.tokens);
  EXPECT_EQ(stored.block_size, 2U);
  EXPECT_EQ(stored.adapter, written.adapter);
  const auto& removed = std::get<KvBlocksRemoved>((*read)[2]);
  EXPECT_EQ(removed.hashes, std::vector<uint64_t>(20, 9));
  EXPECT_EQ(removed.group, 3U);
  const auto& long_one = std::get<KvBlocksStored>((*read)[3]);
  EXPECT_EQ(long_one.hashes.size(), 70000U);
  EXPECT_EQ(long_one.parent, std::nullopt);
}

}  // namespace
}  // namespace pdjob::openai
