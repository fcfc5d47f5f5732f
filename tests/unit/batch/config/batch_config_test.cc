#include "batch/config/batch_config.h"

#include <gtest/gtest.h>

#include "tests/unit/batch/scratch_folder.h"

namespace pdjob::batch {
namespace {

std::string read_text(const std::string& name, const std::string& text, BatchConfig& config) {
  ConfigReader in = ConfigReader::parse(name, text);
  read(in, config);
  return in.finish();
}

TEST(BatchConfig, PathsStartAtTheFolderOfTheFile) {
  BatchConfig config;
  EXPECT_EQ(
      read_text("jobs/job.yaml",
                "in: [rows/*.jsonl, /abs.csv, ~/x]\nout: results\ntemplate: body.json\n", config),
      "");
  EXPECT_EQ(config.inputs, (std::vector<std::string>{"jobs/rows/*.jsonl", "/abs.csv", "~/x"}));
  EXPECT_EQ(config.out, "jobs/results");
  EXPECT_EQ(config.body_template, "jobs/body.json");
}

TEST(BatchConfig, WhatIsNotWrittenKeepsItsValue) {
  BatchConfig config{.out = "of the file", .attempts = 7};
  EXPECT_EQ(read_text("flags", "order: completed\nformat: csv\npatience: 3s\n", config), "");
  EXPECT_EQ(config.out, "of the file");
  EXPECT_EQ(config.attempts, 7U);
  EXPECT_EQ(config.order, LedgerFile::Order::kCompleted);
  EXPECT_EQ(config.format, RowFormat::kCsv);
  EXPECT_EQ(config.patience, std::chrono::seconds(3));
}

TEST(BatchConfig, ATemplateIsCheckedWhereItStands) {
  BatchConfig config;
  EXPECT_EQ(read_text("f", "template: '{\"prompt\": {{text}}'\n", config).substr(0, 15),
            "f:1:11: templat");
  EXPECT_EQ(read_text("f", "template: |\n  {\"prompt\": {{text}}}\n", config), "");
  EXPECT_TRUE(is_template_text(config.body_template));
}

TEST(BatchConfig, AJobOfModeBatchNamesItsInputAndItsFolder) {
  const auto lacks = [](const std::string& text) {
    ConfigReader in = ConfigReader::parse("f", text);
    BatchConfig config;
    in.section("batch", {.doc = ""}, [&](ConfigReader& section) {
      read(section, config);
      check_complete(section, config);
    });
    return in.finish();
  };
  EXPECT_EQ(lacks("batch: {in: [a.jsonl], out: b}\n"), "");
  EXPECT_NE(lacks("batch: {in: [a.jsonl]}\n").find("f:1:1: batch.out: is missing"),
            std::string::npos)
      << lacks("batch: {in: [a.jsonl]}\n");
  EXPECT_NE(lacks("{}").find("batch.in: is missing"), std::string::npos);
  EXPECT_NE(lacks("batch: {in: [a.csv], out: b}\n").find("a.csv: its rows need a template"),
            std::string::npos);
}

TEST(FilesOf, AreThoseOfThePatternsInOrder) {
  const ScratchFolder folder;
  const std::string b = folder.write("b.jsonl", "");
  const std::string a = folder.write("a.jsonl", "");
  EXPECT_EQ(files_of({"-", folder.path() + "/*.jsonl", "not there"}).value(),
            (std::vector<std::string>{"-", a, b, "not there"}));
  EXPECT_EQ(files_of({folder.path() + "/*.csv"}).error().message,
            "no file is called " + folder.path() + "/*.csv");
}

}  // namespace
}  // namespace pdjob::batch
