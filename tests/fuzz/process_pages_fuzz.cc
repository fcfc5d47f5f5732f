// What processes answer to the launcher on /metrics, /pdjob/links and /pdjob/timings. A merged page
// is bounded, and merging it again only adds the label; links and requests are JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "launcher/dashboard/process_watch.h"
#include "launcher/metrics/merged_metrics.h"
#include "openai/json/json_edit.h"

using namespace pdjob;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kBytesMax = 4096;
  const std::string text(reinterpret_cast<const char*>(data), size);
  launcher::MergedMetrics merged(kBytesMax);
  merged.add("d0", text);
  const std::string page = merged.text();
  PDJOB_CHECK(page.size() <= kBytesMax);
  launcher::MergedMetrics again(2 * kBytesMax + size);
  again.add("d1", page);
  PDJOB_CHECK(again.text().empty() == page.empty());
  const std::string links = launcher::links_of_answer(text);
  PDJOB_CHECK(links.empty() || openai::is_valid_json(links));
  const std::string requests = launcher::requests_of_answer(text);
  PDJOB_CHECK(requests.empty() || openai::is_valid_json(requests));
  return 0;
}
