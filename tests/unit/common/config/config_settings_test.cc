#include "common/config/config_settings.h"

#include <gtest/gtest.h>

#include "common/config/config_reader.h"

namespace pdjob {
namespace {

// What a folder would declare.
struct Read {
  uint32_t workers = 1;
  std::string model;
  Duration timeout{};
  std::vector<std::string> args;
  std::string key_file;
};

std::string read(ConfigReader& in, Read& read) {
  in.section("decode", {.doc = "d"}, [&](ConfigReader& section) {
    section.field("workers", read.workers, {.doc = "w"}, {1, 2047});
    section.field("timeout", read.timeout, {.doc = "t"});
    section.field("args", read.args, {.doc = "a"});
  });
  in.named_sections("models", {.doc = "m"}, [&](const std::string&, ConfigReader& section) {
    section.field("model", read.model, {.doc = "m"});
  });
  in.field("key_file", read.key_file, {.doc = "k"});
  in.section("tls", {.doc = "t"}, [](ConfigReader& section) {
    std::string key;
    section.field("key", key, {.doc = "k"});
  });
  return in.finish();
}

constexpr const char* kFile =
    "decode:\n  workers: 4\n  args: [--a, --b]\nmodels: {a.b: {model: x}}\n";

Read with(const std::vector<std::string>& settings) {
  ConfigReader in = ConfigReader::parse("job.yaml", kFile, settings_of(settings));
  Read result;
  EXPECT_EQ(read(in, result), "");
  // The merged text says the same, without the settings.
  ConfigReader again = ConfigReader::parse("job.yaml", in.merged_text());
  Read merged;
  EXPECT_EQ(read(again, merged), "");
  EXPECT_EQ(again.merged_text(), in.merged_text());
  EXPECT_EQ(std::tie(merged.workers, merged.model, merged.timeout, merged.args, merged.key_file),
            std::tie(result.workers, result.model, result.timeout, result.args, result.key_file));
  return result;
}

std::string errors_of(const std::vector<std::string>& settings) {
  ConfigReader in = ConfigReader::parse("job.yaml", kFile, settings_of(settings));
  Read result;
  return read(in, result);
}

TEST(ConfigSettings, WinOverTheFileAndOverEarlierOnes) {
  EXPECT_EQ(with({}).workers, 4U);
  EXPECT_EQ(with({"decode.workers=2"}).workers, 2U);
  EXPECT_EQ(with({"decode.workers=2", "decode.workers=3"}).workers, 3U);
  EXPECT_EQ(with({"decode.workers=2"}).args, (std::vector<std::string>{"--a", "--b"}));
  EXPECT_EQ(with({"decode={workers: 2}"}).args, std::vector<std::string>{});
}

TEST(ConfigSettings, MakeSectionsThatTheFileDoesNotHave) {
  EXPECT_EQ(with({"decode.timeout=5s", "key_file=a=b"}).key_file, "a=b");
}

TEST(ConfigSettings, ReachItemsOfListsByTheirPlace) {
  EXPECT_EQ(with({"decode.args.1=--c"}).args, (std::vector<std::string>{"--a", "--c"}));
  EXPECT_EQ(with({"decode.args.2=--c", "decode.args.3=--d"}).args,
            (std::vector<std::string>{"--a", "--b", "--c", "--d"}));
}

TEST(ConfigSettings, AreYaml) {
  EXPECT_EQ(with({"decode.args=[a, 'b, c', \"d\"]"}).args,
            (std::vector<std::string>{"a", "b, c", "d"}));
  EXPECT_EQ(with({"key_file='a: {b}'"}).key_file, "a: {b}");
  EXPECT_EQ(with({"key_file=\"a\\nb\""}).key_file, "a\nb");
}

TEST(ConfigSettings, NamesWithDotsStandInQuotes) {
  EXPECT_EQ(with({"models.\"a.b\".model=y"}).model, "y");
}

TEST(ConfigSettings, ErrorsAreThoseOfTheFile) {
  EXPECT_EQ(errors_of({"decode.workers=0"}),
            "--set: decode.workers: must be 1..2047, got 0\n"
            "    decode.workers=0\n"
            "                   ^\n");
  EXPECT_EQ(errors_of({"decode.worker=2", "decode.timeout=5"}),
            "--set: decode.worker: unknown key, did you mean workers?\n"
            "    decode.worker=2\n"
            "           ^\n"
            "--set: decode.timeout: expected a duration such as 250ms, 5s, 10min or 2h, got \"5\"\n"
            "    decode.timeout=5\n"
            "                   ^\n");
  EXPECT_EQ(errors_of({"decode.workers.x=2"}),
            "--set: decode.workers: expected a whole number, got a mapping\n"
            "    decode.workers.x=2\n"
            "                   ^\n");
  EXPECT_EQ(errors_of({"decode.args.7=x"}),
            "--set: decode.args: is a list of 2: name one by its place, 0..2, got \"7\"\n"
            "    decode.args.7=x\n"
            "                ^\n");
  EXPECT_EQ(errors_of({"decode.args=[a"}),
            "--set: decode.args: end of sequence flow not found\n"
            "    decode.args=[a\n"
            "                ^\n");
}

TEST(ConfigSettings, ErrorsOfTheFileComeFirst) {
  ConfigReader in =
      ConfigReader::parse("job.yaml", "a: 1\ndecode: {workers: 0}\n", settings_of({"b=1"}));
  Read result;
  EXPECT_EQ(read(in, result),
            "job.yaml:1:1: a: unknown key\n    a: 1\n    ^\n"
            "job.yaml:2:19: decode.workers: must be 1..2047, got 0\n"
            "    decode: {workers: 0}\n                      ^\n"
            "--set: b: unknown key\n    b=1\n    ^\n");
}

TEST(ConfigSettings, WhatIsNoSettingIsRefused) {
  for (const char* const setting : {"", "=", "workers", "decode..workers=1", ".workers=1",
                                    "decode.=1", "\"decode=1", "\"\"=1", "\"a\"b=1", "a\"b=1"}) {
    EXPECT_NE(errors_of({setting}).find("must be KEY=VALUE, such as decode.workers=2"),
              std::string::npos)
        << setting;
  }
}

TEST(ConfigSettings, SecretsAreRefusedAndNotShown) {
  for (const char* const setting :
       {"router.tenants.a.key=s3cr3t", "router.api_key=s3cr3t", "decode.args.2=--api-key=s3cr3t",
        "decode.args=[--api-key, s3cr3t]", "engine.env=[HF_TOKEN=s3cr3t]",
        "engine={env: [A=b, MY_PASSWORD=s3cr3t]}", "engine={token: s3cr3t}",
        "x.url=https://me:s3cr3t@host/path", "x=whsec_s3cr3t",
        "x=[s3cr3t, sk-aaaaaaaaaaaaaaaaaaaa]", "x.password=[s3cr3t"}) {
    const std::string errors = errors_of({setting});
    EXPECT_NE(errors.find("looks like a secret"), std::string::npos) << setting;
    EXPECT_EQ(errors.find("s3cr3t"), std::string::npos) << errors;
  }
  for (const char* const setting :
       {"key_file=k", "tls.key=k.pem", "tls={key: k.pem}",
        "decode.args=[--max-tokens=5, --tokenizer, a, --api-key-file=x]",
        "decode.args=[HF_TOKEN_PATH=a, KEYS=b]", "decode.args=['http://[::1]:80/@x']"}) {
    EXPECT_EQ(errors_of({setting}), "") << setting;
  }
}

TEST(ConfigSettings, TheKeyOfACertificateIsAFileAndNoSecret) {
  for (const char* const setting :
       {"router.tls.key=/etc/server.key", "launcher.admin_tls.key=k.pem",
        "launcher={admin_tls: {key: k.pem}}"}) {
    EXPECT_EQ(errors_of({setting}).find("looks like a secret"), std::string::npos) << setting;
  }
}

TEST(ConfigSettings, TextsStandAsTheyAre) {
  ConfigReader in = ConfigReader::parse(
      "flags", "{}",
      {{.text = "key_file=it's: {a, b}\nx: y", .form = ConfigSetting::Form::kText, .flag = "--k"}});
  Read result;
  EXPECT_EQ(read(in, result), "");
  EXPECT_EQ(result.key_file, "it's: {a, b}\nx: y");
  ConfigReader wrong = ConfigReader::parse(
      "flags", "{}",
      {{.text = "decode.workers=[1]", .form = ConfigSetting::Form::kText, .flag = "--workers"}});
  EXPECT_EQ(read(wrong, result),
            "--workers: decode.workers: expected a whole number, got \"[1]\"\n"
            "    decode.workers=[1]\n"
            "                   ^\n");
}

TEST(ConfigSettings, AnAliasIsChangedInOnePlaceOnly) {
  ConfigReader in = ConfigReader::parse("job.yaml", "models:\n  a: &m {model: x}\n  b: *m\n",
                                        settings_of({"models.a.model=y"}));
  EXPECT_EQ(in.merged_text(), "models:\n  a:\n    model: y\n  b:\n    model: x\n");
}

}  // namespace
}  // namespace pdjob
