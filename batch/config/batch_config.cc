#include "batch/config/batch_config.h"

#include <algorithm>

#include <glob.h>

#include "batch/input/body_template.h"

namespace pdjob::batch {
namespace {

constexpr Duration kLongest = std::chrono::hours(24);

void read_rows(ConfigReader& in, BatchConfig& config) {
  in.paths("in", config.inputs, {.doc = "Files of rows, or patterns such as `rows/*.jsonl.gz`."});
  in.path("out", config.out,
          {.doc = "The folder for results. A batch that is started again with it goes on."});
  in.field("format", config.format,
           {{"auto", std::nullopt},
            {"openai", RowFormat::kOpenAi},
            {"jsonl", RowFormat::kJsonl},
            {"csv", RowFormat::kCsv},
            {"tsv", RowFormat::kTsv},
            {"text", RowFormat::kText}},
           {.doc = "Of all files. `auto`: by their names."});
  constexpr FieldText kTemplate = {
      .doc =
          "Makes a request's body of each row, with `{{column}}` in it: JSON, or a file that has "
          "it. Rows in OpenAI's format have none."};
  if (is_template_text(in.written("template"))) {
    in.field("template", config.body_template, kTemplate);
    if (const auto parsed = BodyTemplate::parse(config.body_template); !parsed) {
      in.fail("template", parsed.error().message);
    }
  } else {
    in.path("template", config.body_template, kTemplate);
  }
  in.field("endpoint", config.endpoint,
           {{"auto", std::string()},
            {"/v1/chat/completions", "/v1/chat/completions"},
            {"/v1/completions", "/v1/completions"},
            {"/v1/embeddings", "/v1/embeddings"}},
           {.doc = "Where requests of a template go. `auto`: by what the template looks like."});
  in.field("id_column", config.id_column,
           {.doc = "The column that has the custom_id. Without it: row-1, row-2 and so on."});
}

}  // namespace

void read(ConfigReader& in, BatchConfig& config) {
  read_rows(in, config);
  in.field("order", config.order,
           {{"input", LedgerFile::Order::kInput}, {"completed", LedgerFile::Order::kCompleted}},
           {.doc = "Of the results."});
  in.field("concurrency", config.concurrency,
           {.doc = "Rows in flight at most. 0: as many as help.", .unit = "rows"}, {0, 16384});
  in.field("attempts", config.attempts,
           {.doc = "A row fails when the server failed at it so often."}, {1, 100});
  in.field("row_timeout", config.row_timeout, {.doc = "How long one attempt may take."},
           {std::chrono::milliseconds(1), kLongest});
  in.field("patience", config.patience,
           {.doc = "The batch ends if the server answers nothing for so long."},
           {std::chrono::milliseconds(1), kLongest});
  in.path("key_file", config.key_file,
          {.doc = "Holds the API key that the server wants: of a tenant of the job."});
  in.section("stages",
             {.doc = "Programs that rows and answers go through (docs/how-to/stages.md)."},
             [&](ConfigReader& section) { read(section, config.stages); });
}

void check_complete(ConfigReader& in, const BatchConfig& config) {
  if (config.inputs.empty()) {
    in.fail("in", "is missing: name the files whose rows are to be answered");
  }
  if (config.out.empty()) {
    in.fail("out", "is missing: name the folder for results");
  }
  for (const std::string& input : config.inputs) {
    if (const Status fits = check_template(input, config.format, !config.body_template.empty());
        !fits) {
      in.fail("template", fits.error().message);
      return;
    }
  }
}

bool is_template_text(std::string_view word) {
  const size_t first = word.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && word[first] == '{';
}

Result<std::vector<std::string>> files_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (input == kStandardInput || input.find_first_of("*?[") == std::string::npos) {
      files.push_back(input);
      continue;
    }
    glob_t found{};
    const int result = glob(input.c_str(), 0, nullptr, &found);
    files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (result != 0) {
      return Error{ErrorCode::kInvalidArgument, "no file is called " + input};
    }
  }
  return files;
}

}  // namespace pdjob::batch
