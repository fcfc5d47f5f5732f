// Reads any text as a job file, and as a setting laid over one. Every declaration type is used.
// Every mistake ends in one error text. A file without mistakes is read again from its merged text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/config/config_reader.h"

using pdjob::ConfigReader;

namespace {

enum class Mode { kServe, kBatch };

void read(ConfigReader& in, int depth) {
  bool flag = false;
  uint16_t port = 0;
  uint32_t workers = 1;
  uint64_t bytes = 0;
  double fraction = 0.5;
  Mode mode = Mode::kServe;
  std::string text;
  std::vector<std::string> list;
  pdjob::Duration wait{};
  in.field("flag", flag, {"A flag."});
  in.field("port", port, {"A port."});
  in.field("workers", workers, {"A count."}, {1, 1024});
  in.field("bytes", bytes, {"A size.", "bytes"});
  in.field("fraction", fraction, {"A share."}, {0.0, 1.0});
  in.field("mode", mode, {{"serve", Mode::kServe}, {"batch", Mode::kBatch}}, {"A mode."});
  in.field("text", text, {"A text."});
  in.field("list", list, {"A list."});
  in.field("wait", wait, {"A duration."}, {.max = std::chrono::hours(1)});
  PDJOB_CHECK(workers >= 1 && workers <= 1024 && fraction >= 0.0 && fraction <= 1.0);
  PDJOB_CHECK(wait >= pdjob::Duration::zero() && wait <= std::chrono::hours(1));
  if (in.has("flag") && !flag) {
    in.fail("flag", "must be true where it is set");
  }
  if (depth < 3) {
    in.section("nested", {"A section."}, [&](ConfigReader& nested) { read(nested, depth + 1); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ConfigReader in = ConfigReader::parse("job.yaml", text);
  read(in, 0);
  const std::string errors = in.finish();
  PDJOB_CHECK(errors.empty() || (errors.starts_with("job.yaml:") && errors.back() == '\n'));
  if (errors.empty()) {
    ConfigReader again = ConfigReader::parse("job.yaml", in.merged_text());
    read(again, 0);
    PDJOB_CHECK(again.finish().empty() && again.merged_text() == in.merged_text());
  }
  ConfigReader set =
      ConfigReader::parse("job.yaml", "nested: {list: [a]}\n", pdjob::settings_of({text}));
  read(set, 0);
  const std::string refused = set.finish();
  PDJOB_CHECK(refused.empty() || (refused.starts_with("--set: ") && refused.back() == '\n'));
  return 0;
}
