// Every job file of bad_configs.txt is refused with exactly the text below it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/limits.h"
#include "launcher/cli/reference.h"
#include "launcher/plan/job_config.h"
#include "openai/headers.h"
#include "tests/support/api_reference.h"
#include "tests/unit/launcher/plan/case_file.h"

namespace pdjob::launcher {
namespace {

const Places kPlaces{.home = "/home/nobody"};

TEST(BadConfig, EachIsRefusedWithItsWholeText) {
  CaseFile all(PDJOB_TEST_DIR "/bad_configs.txt", "--- errors");
  ASSERT_GE(all.cases().size(), 40U);
  for (CaseFile::Case& each : all.cases()) {
    const auto config = parse_job_config("job.yaml", each.yaml, kPlaces);
    ASSERT_FALSE(config.has_value()) << each.name;
    if (CaseFile::updating()) {
      each.expected = config.error().message;
    }
    EXPECT_EQ(config.error().message, each.expected) << each.name;
  }
  if (CaseFile::updating()) {
    all.write();
  }
}

// docs/measurements/serving.md measures chunks of 4 tokens, docs/measurements/trace.md those of 8.
TEST(JobConfig, ChunksMayBeAsSmallAsTheMeasuredOnes) {
  const auto config = parse_job_config("job.yaml",
                                       "name: x\nengine: {kind: fake}\n"
                                       "prefill: {chunk_tokens: 4}\n"
                                       "decode: {local_chunk_tokens: 4}\n",
                                       kPlaces);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->models.front().prefill.chunk_tokens, 4U);
  EXPECT_EQ(config->models.front().decode.local_chunk_tokens, 4U);
}

TEST(JobConfig, RolesOverrideTheCommonEngine) {
  const auto config = parse_job_config("job.yaml",
                                       "name: x\n"
                                       "engine: {kind: fake, threads: 2, sequences: 4}\n"
                                       "decode:\n  engine: {sequences: 16}\n",
                                       kPlaces);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const ModelConfig& model = config->models.front();
  EXPECT_EQ(model.name, "");
  EXPECT_EQ(model.prefill_engine.sequences, 4U);
  EXPECT_EQ(model.decode_engine.sequences, 16U);
  EXPECT_EQ(model.decode_engine.threads, 2U);
  EXPECT_EQ(model.served_name, "fake");
  EXPECT_EQ(config->launcher.log_dir, "/home/nobody/.local/state/pdjob/x/logs");
}

TEST(JobConfig, ThreadsAreLentUnlessTheirNumberIsWritten) {
  const auto lends = [](const std::string& sections) {
    const auto config = parse_job_config("job.yaml", "name: x\nmodel: a.gguf\n" + sections,
                                         {.home = "/home/nobody", .models_here = false});
    EXPECT_TRUE(config.has_value()) << (config.has_value() ? "" : config.error().message);
    return std::pair(borrows_threads(config->models.front().prefill_engine),
                     borrows_threads(config->models.front().decode_engine));
  };
  EXPECT_EQ(lends(""), std::pair(true, true));
  EXPECT_EQ(lends("engine: {threads: 1}\n"), std::pair(false, false));
  EXPECT_EQ(lends("engine: {threads: 1}\ndecode: {engine: {sequences: 9}}\n"),
            std::pair(false, false));
  EXPECT_EQ(lends("engine: {threads: 1, lend_threads: true}\n"), std::pair(true, true));
  EXPECT_EQ(lends("decode: {engine: {threads: 2}}\n"), std::pair(true, false));
  EXPECT_EQ(lends("engine: {lend_threads: false}\n"), std::pair(false, false));
  // The number of threads could change a token.
  EXPECT_EQ(lends("engine: {kv_type: f16}\n"), std::pair(false, false));
}

TEST(JobConfig, ABatchStartsAJobThatTouchesNoRunningOne) {
  const std::string text =
      "name: x\nmode: batch\nengine: {kind: fake}\nrouter: {listen: 0.0.0.0:80}\n"
      "batch: {in: [~/rows.csv, more.csv], out: out, template: '{\"prompt\": {{x}}}'}\n"
      "launcher: {admin: 127.0.0.1:81}\n";
  const auto config = parse_job_config("jobs/job.yaml", text, kPlaces);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->mode, Mode::kBatch);
  EXPECT_EQ(config->batch.inputs,
            (std::vector<std::string>{"/home/nobody/rows.csv", "jobs/more.csv"}));
  const JobConfig job = batch_job(*config);
  EXPECT_EQ(job.name, "x-batch");
  EXPECT_EQ(job.router.listen, "127.0.0.1:0");
  EXPECT_EQ(job.launcher.admin, "127.0.0.1:0");
  EXPECT_EQ(job.launcher.log_dir, "/home/nobody/.local/state/pdjob/x-batch/logs");
}

TEST(JobConfig, AnswersOfABatchDoNotDependOnItsSection) {
  const auto job_text = [](const std::string& batch) {
    const auto config = parse_job_config(
        "job.yaml", "name: x\nengine: {kind: fake}\n" + batch + "kvtransfer: {}\n", kPlaces);
    return config.has_value() ? config->text_of_job : config.error().message;
  };
  EXPECT_EQ(job_text("batch: {attempts: 2}\n"), job_text(""));
  EXPECT_EQ(job_text("batch:\n  attempts: 2\n  in:\n  - a\n"), job_text(""));
  EXPECT_NE(job_text("decode: {workers: 2}\n"), job_text(""));
}

TEST(JobConfig, AFileThatARunningJobHoldsIsNotForABatch) {
  const std::string text = "name: x\nengine: {kind: fake}\nrouter: {async: {file: a.db}}\n";
  EXPECT_TRUE(parse_job_config("job.yaml", text, kPlaces));
  const auto refused = parse_job_config("job.yaml", text, kPlaces, JobUse::kForBatch);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("job.yaml:3:24: router.async.file: can belong to one job"),
            std::string::npos)
      << refused.error().message;
}

TEST(JobConfig, EachOfSeveralModelsOverridesTheSectionsOfTheJob) {
  const auto config = parse_job_config("job.yaml",
                                       "name: x\n"
                                       "engine: {kind: fake, threads: 2, sequences: 4}\n"
                                       "prefill: {workers: 2, chunk_tokens: 64}\n"
                                       "decode: {workers: 3, engine: {sequences: 16}}\n"
                                       "models:\n"
                                       "  small:\n"
                                       "    engine: {threads: 1, sequences: 8}\n"
                                       "    prefill: {chunk_tokens: 32, engine: {sequences: 2}}\n"
                                       "  large:\n"
                                       "    served_name: org/Large-7B\n"
                                       "    prefill: {workers: 0}\n"
                                       "    decode: {workers: 1}\n",
                                       kPlaces);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  ASSERT_EQ(config->served_names(), (std::vector<std::string>{"small", "org/Large-7B"}));
  const ModelConfig& small = *config->model_called("small");
  EXPECT_EQ(small.prefill_workers, 2U);
  EXPECT_EQ(small.decode_workers, 3U);
  EXPECT_EQ(small.prefill.chunk_tokens, 32U);
  EXPECT_EQ(small.prefill_engine.threads, 1U);
  EXPECT_EQ(small.prefill_engine.sequences, 2U);
  // `decode.engine` overrides `engine`, whatever the order in the file.
  EXPECT_EQ(small.decode_engine.sequences, 16U);
  EXPECT_EQ(small.decode_engine.served_name, "small");
  const ModelConfig& large = *config->model_called("org/Large-7B");
  EXPECT_EQ(large.name, "large");
  EXPECT_FALSE(large.disaggregated());
  EXPECT_EQ(large.decode_workers, 1U);
  EXPECT_EQ(large.prefill.chunk_tokens, 64U);
  EXPECT_EQ(large.prefill_engine.sequences, 4U);
  EXPECT_EQ(large.decode_engine.threads, 2U);
  EXPECT_EQ(config->model_called("large"), nullptr);
}

TEST(JobConfig, AnotherRoutersJobMayHaveAListOfOneModel) {
  const auto config = parse_job_config("job.yaml",
                                       "name: x\nengine: {kind: fake}\nmodels: {only: {}}\n"
                                       "router: {type: command, recipe: vllm-router}\n",
                                       kPlaces);
  EXPECT_TRUE(config.has_value()) << config.error().message;
}

TEST(JobConfig, ModelsAreFoundByNameInBothPlacesAndByPath) {
  const std::string folder = testing::TempDir() + "/models";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tiny.gguf") << "x";
  EXPECT_EQ(*find_model("tiny", {.home = "/nowhere", .models = folder}), folder + "/tiny.gguf");
  EXPECT_EQ(*find_model(folder + "/tiny.gguf", {}), folder + "/tiny.gguf");
  EXPECT_EQ(*find_model("~/tiny.gguf", {.home = folder}), folder + "/tiny.gguf");
  EXPECT_EQ(find_model("huge", {.home = "/h", .models = folder}).error().message,
            "not found: no file " + folder +
                "/huge.gguf nor /h/.cache/pdjob/models/huge.gguf; installed is tiny");
  std::ofstream(folder + "/tiny-q8.gguf") << "x";
  EXPECT_EQ(find_model("tiny-q9", {.home = "/h", .models = folder}).error().message,
            "not found: no file " + folder +
                "/tiny-q9.gguf nor /h/.cache/pdjob/models/tiny-q9.gguf; did you mean tiny-q8?; "
                "installed are tiny, tiny-q8");
  EXPECT_EQ(find_model(folder + "/tinny.gguf", {}).error().message,
            "not found: no file " + folder + "/tinny.gguf; did you mean tiny?; in " + folder +
                " are tiny, tiny-q8");
}

TEST(JobConfig, AnEngineRecipeMayBeAFileBesideTheJobFile) {
  const std::string folder = testing::TempDir() + "/engine_recipe";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/mine.yaml") << "command: [mine, '{port}']\nready: /up\n";
  std::ofstream(folder + "/bad.yaml") << "command: [mine]\nraedy: /up\n";
  const auto parse = [&](const std::string& recipe) {
    return parse_job_config(folder + "/job.yaml",
                            "name: x\nmodel: m\nengine: {kind: command, recipe: " + recipe +
                                "}\ndecode: {engine: {args: [--more]}}\n",
                            kPlaces);
  };
  const auto config = parse("mine.yaml");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const engine::ForeignConfig& decode = config->models.front().decode_engine.foreign;
  EXPECT_EQ(decode.recipe.ready_path, "/up");
  EXPECT_EQ(engine::recipe_of(decode).name, "mine");
  EXPECT_EQ(decode.args, std::vector<std::string>{"--more"});
  EXPECT_EQ(parse("nowhere.yaml").error().message,
            folder + "/job.yaml:3:33: engine.recipe: " + folder +
                "/nowhere.yaml: cannot be read\n"
                "    engine: {kind: command, recipe: nowhere.yaml}\n"
                "                                    ^\n");
  EXPECT_NE(parse("bad.yaml")
                .error()
                .message.find("/bad.yaml:2:1: raedy: unknown key\n    raedy: /up\n    ^\n"),
            std::string::npos)
      << parse("bad.yaml").error().message;
}

TEST(JobConfig, AFileThatCannotBeReadIsAnError) {
  EXPECT_EQ(read_job_config("/nonexistent/job.yaml", kPlaces).error().message,
            "/nonexistent/job.yaml: cannot be read\n");
}

TEST(JobConfig, AFolderIsNoJobFile) {
  const std::string folder = testing::TempDir();
  EXPECT_EQ(read_job_config(folder, kPlaces).error().message, folder + ": cannot be read\n");
}

TEST(JobConfig, AFileThatIsTooLargeIsRefusedUnread) {
  const std::string path = testing::TempDir() + "/large.yaml";
  std::ofstream(path) << std::string(2 * limits::kMiB, '#');
  const std::string refusal =
      ":1:1: the file is larger than " + std::to_string(limits::kConfigBytesMax) + " bytes\n";
  EXPECT_EQ(read_job_config(path, kPlaces).error().message, path + refusal);
  EXPECT_EQ(read_job_config("/dev/zero", kPlaces).error().message,
            "/dev/zero: cannot be read: it is not a regular file\n");
}

std::string path_of_page(const std::string& name) {
  return PDJOB_SOURCE_DIR "/docs/reference/" + name + ".md";
}
std::string page(const std::string& name) {
  std::ifstream file(path_of_page(name));
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Reference, EachGeneratedPageIsCurrent) {
  EXPECT_EQ(page("job-file"), config_reference())
      << "run: pdjob reference job-file > docs/reference/job-file.md";
  EXPECT_EQ(page("headers"), openai::header_reference())
      << "run: pdjob reference headers > docs/reference/headers.md";
  if (std::getenv("PDJOB_WRITE_REFERENCE") != nullptr) {
    std::ofstream(path_of_page("api")) << api_reference();
  }
  EXPECT_EQ(page("api"), api_reference())
      << "run: PDJOB_WRITE_REFERENCE=1 build/dev/launcher_test --gtest_filter='Reference.*'";
  EXPECT_EQ(page("metrics"), metric_reference())
      << "run: pdjob reference metrics > docs/reference/metrics.md";
}

TEST(JobConfig, EveryExampleIsValid) {
  const std::string folder =
      testing::TempDir() + "/example_models";  // The real model is absent where tests run.
  std::filesystem::create_directories(folder);
  for (const char* const model : {"smollm2-135m-instruct", "smollm2-135m-instruct-q8_0"}) {
    std::ofstream(folder + "/" + model + ".gguf") << "x";
  }
  size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PDJOB_SOURCE_DIR "/configs")) {
    if (entry.path().extension() == ".yaml") {
      const auto config = read_job_config(entry.path(), {.home = "/home/nobody", .models = folder});
      EXPECT_TRUE(config.has_value()) << config.error().message;
      ++examples;
    }
  }
  EXPECT_GE(examples, 2U);
}

}  // namespace
}  // namespace pdjob::launcher
