#include "common/config/config_reader.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace pdjob {
namespace {

enum class Mode { kServe, kBatch, kRollout };

struct Group {
  uint32_t workers = 1;
  double memory_fraction = 0.9;
};

struct Job {
  std::string model = "smollm2";
  Mode mode = Mode::kServe;
  uint16_t port = 8000;
  uint64_t seed = 0;
  bool dashboard = true;
  Duration drain = std::chrono::seconds(30);
  std::vector<std::string> args;
  Group decode;
};

void read(ConfigReader& in, Group& group) {
  in.field("workers", group.workers, {"How many workers."}, {1, 1024});
  in.field("memory_fraction", group.memory_fraction, {"Of the device."}, {0.1, 1.0});
}

void read(ConfigReader& in, Job& job) {
  in.field("model", job.model, {"A GGUF file."});
  in.field("mode", job.mode,
           {{"serve", Mode::kServe}, {"batch", Mode::kBatch}, {"rollout", Mode::kRollout}},
           {"What the job is for."});
  in.field("port", job.port, {"Of the router."});
  in.field("seed", job.seed, {"Of every draw."});
  in.field("dashboard", job.dashboard, {"Serve the dashboard."});
  in.field("drain", job.drain, {"How long requests may finish."}, {.max = std::chrono::hours(1)});
  in.field("args", job.args, {"For the engine."});
  in.section("decode", {"The decode group."}, [&](ConfigReader& nested) {
    read(nested, job.decode);
    if (job.decode.workers == 13) {
      nested.fail("workers", "thirteen is refused");
      nested.fail("memory_fraction", "must be set with thirteen workers");
    }
  });
}

std::string errors_of(const std::string& text) {
  ConfigReader in = ConfigReader::parse("job.yaml", text);
  Job job;
  read(in, job);
  return in.finish();
}

Job job_of(const std::string& text) {
  ConfigReader in = ConfigReader::parse("job.yaml", text);
  Job job;
  read(in, job);
  EXPECT_EQ(in.finish(), "");
  return job;
}

TEST(ConfigReader, ReadsEveryType) {
  const Job job = job_of(
      "# A comment\n"
      "model: /models/a b.gguf\n"
      "mode: batch\n"
      "port: 65535\n"
      "seed: 18446744073709551615\n"
      "dashboard: false\n"
      "drain: 10min\n"
      "args: [--flash, \"x: y\"]\n"
      "decode:\n"
      "  workers: 2\n"
      "  memory_fraction: 0.5\n");
  EXPECT_EQ(job.model, "/models/a b.gguf");
  EXPECT_EQ(job.mode, Mode::kBatch);
  EXPECT_EQ(job.port, 65535);
  EXPECT_EQ(job.seed, UINT64_MAX);
  EXPECT_FALSE(job.dashboard);
  EXPECT_EQ(job.drain, std::chrono::minutes(10));
  EXPECT_EQ(job.args, (std::vector<std::string>{"--flash", "x: y"}));
  EXPECT_EQ(job.decode.workers, 2U);
  EXPECT_EQ(job.decode.memory_fraction, 0.5);
}

TEST(ConfigReader, KeepsDefaultsOfAbsentKeysAndEmptySections) {
  const Job job = job_of("port: 1\ndecode:\n  # workers: 4\n");
  EXPECT_EQ(job.model, "smollm2");
  EXPECT_EQ(job.drain, std::chrono::seconds(30));
  EXPECT_EQ(job.decode.workers, 1U);
}

TEST(ConfigReader, ReportsAllErrorsInOrderOfPosition) {
  EXPECT_EQ(errors_of("decode:\n"
                      "  workers: 0\n"
                      "  wrokers: 3\n"
                      "mode: serv\n"
                      "drain: 250\n"
                      "port: 65536\n"
                      "seed: -1\n"
                      "dashboard: yes\n"
                      "model: [a]\n"
                      "args: --flash\n"),
            "job.yaml:2:12: decode.workers: must be 1..1024, got 0\n"
            "      workers: 0\n"
            "               ^\n"
            "job.yaml:3:3: decode.wrokers: unknown key, did you mean workers?\n"
            "      wrokers: 3\n"
            "      ^\n"
            "job.yaml:4:7: mode: expected one of serve, batch, rollout, got \"serv\", did you mean "
            "serve?\n"
            "    mode: serv\n"
            "          ^\n"
            "job.yaml:5:8: drain: expected a duration such as 250ms, 5s, 10min or 2h, got \"250\"\n"
            "    drain: 250\n"
            "           ^\n"
            "job.yaml:6:7: port: must be 0..65535, got 65536\n"
            "    port: 65536\n"
            "          ^\n"
            "job.yaml:7:7: seed: must be 0..18446744073709551615, got -1\n"
            "    seed: -1\n"
            "          ^\n"
            "job.yaml:8:12: dashboard: expected true or false, got \"yes\"\n"
            "    dashboard: yes\n"
            "               ^\n"
            "job.yaml:9:8: model: expected text, got a list\n"
            "    model: [a]\n"
            "           ^\n"
            "job.yaml:10:7: args: expected a list, got \"--flash\"\n"
            "    args: --flash\n"
            "          ^\n");
}

TEST(ConfigReader, RefusesWhatIsNoNumber) {
  EXPECT_EQ(errors_of("decode: {workers: abc, memory_fraction: lots}\n"),
            "job.yaml:1:19: decode.workers: expected a whole number, got \"abc\"\n"
            "    decode: {workers: abc, memory_fraction: lots}\n"
            "                      ^\n"
            "job.yaml:1:41: decode.memory_fraction: expected a number, got \"lots\"\n"
            "    decode: {workers: abc, memory_fraction: lots}\n"
            "                                            ^\n");
  for (const char* text : {"port: 1.5", "port: 0x10", "port: ''", "port: 1 2", "port: 1e3"}) {
    EXPECT_NE(errors_of(text).find("expected a whole number"), std::string::npos) << text;
  }
  for (const char* word : {"nan", ".inf", "inf", "1e999"}) {
    EXPECT_NE(errors_of(std::string("decode: {memory_fraction: ") + word + "}").find("number"),
              std::string::npos)
        << word;
  }
}

TEST(ConfigReader, BytesMayHaveAUnit) {
  const auto bytes_of = [](const std::string& written) {
    uint64_t bytes = 0;
    ConfigReader in = ConfigReader::parse("job.yaml", "memory: " + written + "\n");
    in.field("memory", bytes, {.doc = "", .unit = "bytes"}, {.max = uint64_t{1} << 50});
    const std::string errors = in.finish();
    return errors.empty() ? std::to_string(bytes) : errors;
  };
  EXPECT_EQ(bytes_of("8GiB"), "8589934592");
  EXPECT_EQ(bytes_of("64KiB"), "65536");
  EXPECT_EQ(bytes_of("512"), "512");
  for (const char* wrong : {"8GB", "1.5GiB", "GiB", "-1GiB", "8 GiB"}) {
    EXPECT_NE(bytes_of(wrong).find("expected bytes, such as 8GiB"), std::string::npos) << wrong;
  }
  EXPECT_NE(bytes_of("99999999999TiB").find("expected bytes"), std::string::npos);
  EXPECT_NE(bytes_of("9999TiB").find("must be"), std::string::npos);
}

TEST(ConfigReader, RefusesAKeyWithoutAValue) {
  EXPECT_EQ(errors_of("port:\nmodel: x\n"),
            "job.yaml:1:1: port: expected a whole number, got nothing\n"
            "    port:\n"
            "    ^\n");
}

TEST(ConfigReader, RefusesNumbersBeyondEveryType) {
  EXPECT_EQ(errors_of("port: 99999999999999999999999999\n"),
            "job.yaml:1:7: port: must be 0..65535, got 99999999999999999999999999\n"
            "    port: 99999999999999999999999999\n"
            "          ^\n");
}

TEST(ConfigReader, NamesTheBoundsOfDurations) {
  EXPECT_EQ(errors_of("drain: 2h\n"),
            "job.yaml:1:8: drain: must be 0s..1h, got 2h\n"
            "    drain: 2h\n"
            "           ^\n");
}

TEST(ConfigReader, RefusesAKeyThatIsSetTwice) {
  EXPECT_EQ(errors_of("decode:\n  workers: 1\n  workers: 2\n"),
            "job.yaml:3:3: decode.workers: is already set in line 2\n"
            "      workers: 2\n"
            "      ^\n");
}

TEST(ConfigReader, RefusesAListWhereASectionBelongs) {
  EXPECT_EQ(errors_of("decode:\n  - workers: 1\n"),
            "job.yaml:2:3: decode: expected a mapping, got a list\n"
            "      - workers: 1\n"
            "      ^\n");
  EXPECT_EQ(errors_of("- a\n- b\n"),
            "job.yaml:1:1: expected a mapping, got a list\n"
            "    - a\n"
            "    ^\n");
}

TEST(ConfigReader, RefusesAMappingInAListOfTexts) {
  EXPECT_EQ(errors_of("args: [a, {b: c}]\n"),
            "job.yaml:1:7: args: expected a list of texts, got a mapping in it\n"
            "    args: [a, {b: c}]\n"
            "          ^\n");
}

TEST(ConfigReader, RefusesAKeyThatIsNoWord) {
  EXPECT_EQ(errors_of("port: 1\n[a, b]: 2\n"),
            "job.yaml:2:1: a key must be a word, got a list\n"
            "    [a, b]: 2\n"
            "    ^\n");
}

TEST(ConfigReader, SaysOnlyThatTheTextCannotBeRead) {
  EXPECT_EQ(errors_of("port: 70000\ndecode: [1, 2\n"),
            "job.yaml:3:1: end of sequence flow not found\n");
  EXPECT_EQ(errors_of("decode:\n\tworkers: 1\n"),
            "job.yaml:2:1: indent with spaces, not with tabs\n"
            "    \tworkers: 1\n"
            "    ^\n");
  EXPECT_EQ(errors_of("port: *nowhere\n"),
            "job.yaml:1:7: the referenced anchor is not defined\n"
            "    port: *nowhere\n"
            "          ^\n");
}

TEST(ConfigReader, RefusesAnEmptyFile) {
  EXPECT_EQ(errors_of(""), "job.yaml:1:1: the file is empty\n");
  EXPECT_EQ(errors_of("# only words\n"),
            "job.yaml:1:1: the file is empty\n"
            "    # only words\n"
            "    ^\n");
}

TEST(ConfigReader, RefusesSeveralDocuments) {
  EXPECT_EQ(errors_of("port: 1\n---\nport: 2\n"),
            "job.yaml:2:1: only one document is allowed in a file\n"
            "    ---\n"
            "    ^\n");
}

TEST(ConfigReader, ReturnsFromTextThatYamlCppLoadsForever) { EXPECT_NE(errors_of(",\t"), ""); }

TEST(ConfigReader, FollowsAliases) {
  const Job job = job_of("model: &name x\nargs: [*name, *name]\n");
  EXPECT_EQ(job.args, (std::vector<std::string>{"x", "x"}));
}

TEST(ConfigReader, RefusesABillionLaughs) {
  std::string text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    const auto previous = static_cast<char>(name - 1);
    text += std::string(1, name) + ": &" + name + " [";
    for (int i = 0; i < 10; ++i) {
      text += std::string(i == 0 ? "*" : ", *") + previous;
    }
    text += "]\n";
  }
  EXPECT_EQ(errors_of(text),
            "job.yaml:4:36: more than 10000 values up to here, aliases expanded\n"
            "    d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
            "                                       ^\n");
}

// A long text that is repeated often takes as much memory as many values.
TEST(ConfigReader, RefusesALongTextThatAliasesRepeat) {
  const std::string name(100'000, 'x');
  std::string text = "model: &a " + name + "\nargs: [";
  for (int i = 0; i < 100; ++i) {
    text += "*a, ";
  }
  EXPECT_NE(errors_of(text + "x]\n").find("aliases repeat more than 4194304 bytes of text"),
            std::string::npos);
  std::string keys = "a: &a {";
  for (int i = 0; i < 100; ++i) {
    keys += std::string(1'000, 'k') + std::to_string(i) + ": x, ";
  }
  keys += "last: x}\nargs: [";
  for (int i = 0; i < 90; ++i) {
    keys += "*a, ";
  }
  EXPECT_NE(errors_of(keys + "x]\n").find("aliases repeat more than 4194304 bytes of text"),
            std::string::npos);
}

TEST(ConfigReader, RefusesWhatIsTooDeepOrTooLarge) {
  EXPECT_EQ(errors_of("a: " + std::string(40, '[') + std::string(40, ']')),
            "job.yaml:1:35: nested more than 32 deep\n"
            "    a: " +
                std::string(40, '[') + std::string(40, ']') + "\n    " + std::string(34, ' ') +
                "^\n");
  EXPECT_EQ(errors_of("a: &a [*a]\n"),
            "job.yaml:1:8: an alias cannot stand inside what it names\n"
            "    a: &a [*a]\n"
            "           ^\n");
  EXPECT_EQ(errors_of(std::string(300'000, 'x')),
            "job.yaml:1:1: the file is larger than 262144 bytes\n");
  EXPECT_NE(errors_of(std::string(100'000, '[')), "");
}

TEST(ConfigReader, RefusesBytesThatAreNoText) {
  EXPECT_EQ(errors_of(std::string("port: 1\0", 8)),
            "job.yaml:1:1: the file is not UTF-8 text\n"
            "    port: 1?\n"
            "    ^\n");
}

TEST(ConfigReader, ShowsNoControlCharacters) {
  EXPECT_EQ(errors_of("mode: \"\\e[31m\"\n\"\\e]0;x\": 1\n"),
            "job.yaml:1:7: mode: expected one of serve, batch, rollout, got \"?[31m\"\n"
            "    mode: \"\\e[31m\"\n"
            "          ^\n"
            "job.yaml:2:1: ?]0;x: unknown key\n"
            "    \"\\e]0;x\": 1\n"
            "    ^\n");
}

TEST(ConfigReader, PutsTheCaretUnderTheCharacterNotTheByte) {
  EXPECT_EQ(errors_of("\xEF\xBB\xBF{model: \xC3\xA4\xC3\xB6, port: x}\r\n"),
            "job.yaml:1:21: port: expected a whole number, got \"x\"\n"
            "    {model: \xC3\xA4\xC3\xB6, port: x}\n"
            "                      ^\n");
}

TEST(ConfigReader, ReportsRulesThatSpanKeysAtTheKeyOrItsSection) {
  EXPECT_EQ(errors_of("port: 1\ndecode:\n  workers: 13\n"),
            "job.yaml:2:1: decode.memory_fraction: must be set with thirteen workers\n"
            "    decode:\n"
            "    ^\n"
            "job.yaml:3:12: decode.workers: thirteen is refused\n"
            "      workers: 13\n"
            "               ^\n");
}

TEST(ConfigReader, CutsALongListOfErrors) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "unknown" + std::to_string(i) + ": 1\n";
  }
  const std::string errors = errors_of(text);
  EXPECT_NE(errors.find("job.yaml:50:1: unknown49"), std::string::npos);
  EXPECT_EQ(errors.find("job.yaml:51:1"), std::string::npos);
  EXPECT_TRUE(errors.ends_with("job.yaml: and 10 more errors\n"));
}

TEST(ConfigReader, ARelativePathStartsAtTheFolderOfTheFile) {
  const auto read_path = [](const std::string& file, const std::string& written,
                            std::string_view ending) {
    ConfigReader in = ConfigReader::parse(file, "path: " + written + "\n");
    std::string path = "default";
    in.path("path", path, {""}, ending);
    return in.finish() + path;
  };
  EXPECT_EQ(read_path("/jobs/job.yaml", "queue.db", ""), "/jobs/queue.db");
  EXPECT_EQ(read_path("jobs/job.yaml", "../queue.db", ""), "jobs/../queue.db");
  EXPECT_EQ(read_path("job.yaml", "queue.db", ""), "queue.db");
  EXPECT_EQ(read_path("/jobs/job.yaml", "/queue.db", ""), "/queue.db");
  EXPECT_EQ(read_path("/jobs/job.yaml", "~/queue.db", ""), "~/queue.db");
  EXPECT_EQ(read_path("/jobs/job.yaml", "model.gguf", ".gguf"), "/jobs/model.gguf");
  EXPECT_EQ(read_path("/jobs/job.yaml", "here/model", ".gguf"), "/jobs/here/model");
  EXPECT_EQ(read_path("/jobs/job.yaml", "smollm2", ".gguf"), "smollm2");
  EXPECT_EQ(read_path("/jobs/job.yaml", "\"\"", ""), "");
}

TEST(ConfigReader, AMovedKeyNamesItsNewPlace) {
  ConfigReader in = ConfigReader::parse("job.yaml", "old: {port: 1}\n");
  in.section("old", {""}, [](ConfigReader& section) { section.moved("port", "new.port"); });
  EXPECT_TRUE(in.finish().starts_with("job.yaml:1:13: old.port: has moved: write new.port\n"));
  ConfigReader described = ConfigReader::describe();
  described.moved("port", "new.port");
  EXPECT_EQ(described.reference().find("port"), std::string::npos);
}

TEST(ConfigReader, LetsTwoReadersShareASection) {
  ConfigReader in = ConfigReader::parse("job.yaml", "decode: {workers: 2, memory_fraction: 0.5}\n");
  uint32_t workers = 0;
  double fraction = 0;
  in.section("decode", {""}, [&](ConfigReader& nested) { nested.field("workers", workers, {""}); });
  in.section("decode", {""},
             [&](ConfigReader& nested) { nested.field("memory_fraction", fraction, {""}); });
  EXPECT_EQ(in.finish(), "");
  EXPECT_EQ(workers, 2U);
  EXPECT_EQ(fraction, 0.5);
}

TEST(ConfigReader, KnowsWhichKeysWereWritten) {
  ConfigReader in = ConfigReader::parse("job.yaml", "port: 1\n");
  EXPECT_TRUE(in.has("port"));
  EXPECT_FALSE(in.has("model"));
  EXPECT_FALSE(ConfigReader::parse("job.yaml", "{").has("port"));
}

TEST(ConfigReader, TellsWhichOfTheDeclaredKeysOfASectionWereWritten) {
  ConfigReader in = ConfigReader::parse("job.yaml", "a: 1\nb: 2\ns: {c: 3, d: 4}\n");
  EXPECT_TRUE(in.keys().empty());
  uint32_t value = 0;
  in.field("z", value, {""});
  in.field("b", value, {""});
  in.section("s", {""}, [&](ConfigReader& section) {
    section.field("d", value, {""});
    EXPECT_EQ(section.keys(), std::vector<std::string>{"d"});
  });
  EXPECT_EQ(in.keys(), (std::vector<std::string>{"b", "s"}));
  EXPECT_TRUE(ConfigReader::parse("job.yaml", "{").keys().empty());
}

TEST(ConfigReader, AWarningIsOneLineWithItsPlaceAndNoError) {
  ConfigReader in = ConfigReader::parse("job.yaml", "b: 1\nsection:\n  x: 2\n");
  in.warn("section.x", "is odd");
  in.warn("b", "is odd, too");
  in.section("section", {""}, [](ConfigReader& section) { section.warn("y", "is missing"); });
  EXPECT_EQ(in.warnings(),
            "job.yaml:1:4: warning: b: is odd, too\n"
            "job.yaml:2:1: warning: section.y: is missing\n"
            "job.yaml:3:6: warning: section.x: is odd\n");
  in.section("section", {""}, [](ConfigReader& section) {
    EXPECT_EQ(section.written_keys(), std::vector<std::string>{"x"});
    uint32_t x = 0;
    section.field("x", x, {""});
  });
  uint32_t b = 0;
  in.field("b", b, {""});
  EXPECT_EQ(in.finish(), "");
}

TEST(ConfigReader, DescribesEveryDeclaration) {
  ConfigReader in = ConfigReader::describe();
  Job job;
  read(in, job);
  uint64_t bytes = 4096;
  in.field("bytes", bytes, {"A size.", "bytes"}, {.min = 1});
  EXPECT_EQ(in.finish(), "");
  EXPECT_EQ(in.reference(),
            "| key | type | default | bounds | meaning |\n"
            "|---|---|---|---|---|\n"
            "| `model` | text | `\"smollm2\"` |  | A GGUF file. |\n"
            "| `mode` | one of serve, batch, rollout | `serve` |  | What the job is for. |\n"
            "| `port` | whole number | `8000` |  | Of the router. |\n"
            "| `seed` | whole number | `0` |  | Of every draw. |\n"
            "| `dashboard` | true or false | `true` |  | Serve the dashboard. |\n"
            "| `drain` | duration | `30s` | 0s..1h | How long requests may finish. |\n"
            "| `args` | list of texts | `[]` |  | For the engine. |\n"
            "| `decode` | section |  |  | The decode group. |\n"
            "| `bytes` | whole number, bytes | `4096` | at least 1 | A size. |\n"
            "\n"
            "## `decode`\n"
            "\n"
            "The decode group.\n"
            "\n"
            "| key | type | default | bounds | meaning |\n"
            "|---|---|---|---|---|\n"
            "| `workers` | whole number | `1` | 1..1024 | How many workers. |\n"
            "| `memory_fraction` | number | `0.9` | 0.1..1 | Of the device. |\n");
}

std::string written(Job job) {
  ConfigReader out = ConfigReader::write();
  read(out, job);
  return yaml_of(out.values());
}

TEST(ConfigWriter, WhatIsWrittenIsReadAsTheSameValues) {
  Job job{.model = "a \"quoted\"\nname: {x}",
          .mode = Mode::kRollout,
          .port = 1,
          .seed = std::numeric_limits<uint64_t>::max(),
          .dashboard = false,
          .drain = std::chrono::milliseconds(1500),
          .args = {"--a", "", "b, c", "true", "\xc3\xa9"},
          .decode = {.workers = 1024, .memory_fraction = 0.1}};
  const Job back = job_of(written(job));
  EXPECT_EQ(written(back), written(job));
  EXPECT_EQ(back.model, job.model);
  EXPECT_EQ(back.mode, job.mode);
  EXPECT_EQ(back.seed, job.seed);
  EXPECT_EQ(back.drain, job.drain);
  EXPECT_EQ(back.args, job.args);
  EXPECT_EQ(back.decode.memory_fraction, job.decode.memory_fraction);
}

TEST(ConfigWriter, OnlyWhatDiffersFromOtherValuesIsLeft) {
  const auto values = [](Job job) {
    ConfigReader out = ConfigReader::write();
    read(out, job);
    return out.values();
  };
  Job job;
  job.decode.workers = 2;
  job.port = 1;
  EXPECT_EQ(json_of(without(values(job), values(Job{}))),
            R"({"port": 1, "decode": {"workers": 2}})");
  EXPECT_EQ(yaml_of(without(values(Job{}), values(Job{}))), "{}\n");
  const std::vector<ConfigDifference> expected = {
      {.path = "port", .from = "8000", .to = "1"},
      {.path = "decode.workers", .from = "1", .to = "2"}};
  EXPECT_EQ(differences(values(Job{}), values(job)), expected);
}

}  // namespace
}  // namespace pdjob
