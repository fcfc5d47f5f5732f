#include "router/config/tenant_config.h"

#include <algorithm>
#include <set>

#include "common/config/named_items.h"

namespace pdjob::router {
namespace {

constexpr size_t kSha256Digits = 64;

// The name is sent in a header line of each leg.
bool fits_a_header(const std::string& name) {
  constexpr size_t kNameBytesMax = 128;
  return !name.empty() && name.size() <= kNameBytesMax && name.front() != ' ' &&
         name.back() != ' ' &&
         std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
}

bool is_sha256(const std::string& text) {
  return text.size() == kSha256Digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void read_tenant(ConfigReader& in, TenantConfig& tenant) {
  in.field("key_sha256", tenant.key_sha256,
           {"SHA-256 of the tenant's API key, which clients send as `Authorization: Bearer KEY`; "
            "docs/how-to/tenants.md says how to make it."});
  in.field("requests_per_minute", tenant.requests_per_minute,
           {"More are refused with 429. 0: no limit.", "requests"});
  in.field("tokens_per_minute", tenant.tokens_per_minute,
           {"The same of the tokens of prompts, estimated, and of the most that may be generated.",
            "tokens"});
  in.field("requests_max", tenant.requests_max,
           {"Requests alive at once; more are refused with 429. 0: no limit.", "requests"});
  in.field("weight", tenant.weight,
           {"Share of what is served from the queue, among tenants of one priority."},
           {.min = 1, .max = 1000});
  in.field("priority", tenant.priority, {"Who has a higher one is served first."},
           {.min = 0, .max = 9});
  in.field("admin", tenant.admin,
           {"This tenant may load and unload adapters (LoRA) of the workers' engines."});
}

}  // namespace

void read(ConfigReader& in, std::vector<TenantConfig>& tenants) {
  std::set<std::string> keys;
  named_items(
      in, "tenants",
      {"Clients with keys, by name. Without tenants, any client is served, and there are no "
       "limits."},
      tenants, [&](TenantConfig& tenant, ConfigReader& section) {
        read_tenant(section, tenant);
        if (!fits_a_header(tenant.name)) {
          section.fail("key_sha256",
                       "the tenant's name must have 1 to 128 printable ASCII characters, no space "
                       "at its ends");
        } else if (!is_sha256(tenant.key_sha256)) {
          section.fail("key_sha256", "must be a SHA-256: 64 hexadecimal digits in lower case");
        } else if (!keys.insert(tenant.key_sha256).second) {
          section.fail("key_sha256", "another tenant has the same key");
        }
      });
  // Commenting out the last tenant must not open a job to everybody.
  if (in.has("tenants") && tenants.empty()) {
    in.fail("tenants",
            "names nobody: add a tenant, or remove `tenants` to let everybody in without a key");
  }
}

void take_limits(const std::vector<TenantConfig>& from, std::vector<TenantConfig>& to) {
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (from[i].name == to[i].name && from[i].key_sha256 == to[i].key_sha256) {
      to[i] = from[i];
    }
  }
}

}  // namespace pdjob::router
