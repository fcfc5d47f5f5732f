#include "launcher/plan/router_file.h"

#include <utility>

#include "common/config/config_file.h"
#include "common/config/config_reader.h"
#include "launcher/plan/job_config.h"

namespace pdjob::launcher {
namespace {

size_t read_workers(ConfigReader& in, const char* key, net::Role role,
                    std::vector<router::StaticWorker>& workers, const char* doc) {
  std::vector<std::string> urls;
  in.field(key, urls, {doc});
  for (const std::string& url : urls) {
    if (auto worker = router::parse_static_worker(role, url)) {
      workers.push_back(std::move(*worker));
    } else {
      in.fail(key, worker.error().message);
    }
  }
  return urls.size();
}

void read(ConfigReader& in, RouterFile& file) {
  in.section("workers", {"Who serves, by URL."}, [&](ConfigReader& section) {
    const size_t prefill = read_workers(section, "prefill", net::Role::kPrefill, file.workers,
                                        "Who computes prompts.");
    const size_t decode =
        read_workers(section, "decode", net::Role::kDecode, file.workers, "Who generates tokens.");
    const size_t both =
        read_workers(section, "both", net::Role::kBoth, file.workers, "Who does both.");
    if ((prefill == 0) != (decode == 0)) {
      section.fail(prefill == 0 ? "decode" : "prefill", "prefill and decode come together");
    } else if (decode + both == 0) {
      section.fail("both", "no worker is named: prefill and decode, or both");
    }
  });
  in.section("router", {"As in a job file."},
             [&](ConfigReader& section) { read_router(section, file.router); });
}

}  // namespace

Result<RouterFile> parse_router_file(const std::string& source, const std::string& text) {
  RouterFile file;
  ConfigReader in = ConfigReader::parse(source, text);
  read(in, file);
  if (const std::string errors = in.finish(); !errors.empty()) {
    return Error{ErrorCode::kInvalidArgument, errors};
  }
  return file;
}

Result<RouterFile> read_router_file(const std::string& path) {
  PDJOB_TRY(const std::string text, read_config_file(path));
  return parse_router_file(path, text);
}

}  // namespace pdjob::launcher
