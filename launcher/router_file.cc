#include "launcher/router_file.h"

#include <utility>

#include "common/config_reader.h"
#include "launcher/job_config.h"

namespace pdjob::launcher {
namespace {

void read_addresses(ConfigReader& in, const char* key, std::vector<net::HttpAddress>& addresses,
                    const char* doc) {
  std::vector<std::string> urls;
  in.field(key, urls, {doc});
  for (const std::string& url : urls) {
    if (auto address = net::parse_http_address(url)) {
      addresses.push_back(std::move(*address));
    } else {
      in.fail(key, address.error().message);
    }
  }
}

void read(ConfigReader& in, RouterFile& file) {
  in.section("workers", {"Who serves, by URL."}, [&](ConfigReader& section) {
    read_addresses(section, "prefill", file.prefill, "Who computes prompts.");
    read_addresses(section, "decode", file.decode, "Who generates tokens.");
    read_addresses(section, "both", file.both, "Who does both.");
    if (file.prefill.empty() != file.decode.empty()) {
      section.fail(file.prefill.empty() ? "decode" : "prefill", "prefill and decode come together");
    } else if (file.decode.empty() && file.both.empty()) {
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
  PDJOB_TRY(const std::string text, read_config_text(path));
  return parse_router_file(path, text);
}

}  // namespace pdjob::launcher
