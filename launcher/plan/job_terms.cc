#include "launcher/plan/job_terms.h"

#include "common/config/config_text.h"
#include "launcher/placement/node_share.h"
#include "net/http/http_client.h"

namespace pdjob::launcher {
namespace {

constexpr size_t kTenantsShownMax = 8;

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string tenants_text(const std::vector<std::string>& tenants) {
  if (tenants.empty()) {
    return "no tenants: whoever reaches it may ask";
  }
  std::string text = count_text(tenants.size(), "tenant") + " (";
  for (size_t i = 0; i < tenants.size() && i < kTenantsShownMax; ++i) {
    text += (i == 0 ? "" : ", ") + tenants[i];
  }
  return text + (tenants.size() > kTenantsShownMax ? ", ...)" : ")");
}

std::string group_text(const GroupTerms& terms) {
  const GroupScaling& scaling = terms.scaling;
  std::string text = terms.group + " has " + std::to_string(scaling.workers_min) + " to " +
                     count_text(scaling.workers_max, "worker");
  const auto target = [&text](const char* what, Duration duration) {
    text += duration > Duration::zero() ? std::string(", ") + what + " " + format_duration(duration)
                                        : "";
  };
  target("ttft", scaling.ttft);
  target("itl", scaling.itl);
  return "scaling: " + text + "\n";
}

std::string job_scaling_text(const JobScalingConfig& scaling) {
  std::string text;
  const auto limit = [&text](uint32_t most, const char* what) {
    text += most > 0 ? (text.empty() ? "" : ", ") + count_text(most, what) : "";
  };
  limit(scaling.workers_max, "worker");
  limit(scaling.gpus_max, "GPU");
  text = text.empty() ? "" : "scaling: the job takes at most " + text + "\n";
  if (scaling.zero_after > Duration::zero()) {
    text += "scaling: without requests for " + format_duration(scaling.zero_after) +
            ", all workers end\n";
  }
  return text;
}

void add_group(const ModelConfig& model, const char* role, const GroupScaling& scaling,
               JobTerms& terms) {
  if (scaling.on()) {
    terms.groups.push_back(
        {.group = (model.name.empty() ? "" : model.name + "-") + role, .scaling = scaling});
  }
}

}  // namespace

JobTerms terms_of(const JobConfig& config) {
  JobTerms terms{
      .listen = config.router.listen, .tls = config.router.tls.on(), .scaling = config.scaling};
  for (const router::TenantConfig& tenant : config.router.tenants) {
    terms.tenants.push_back(tenant.name);
  }
  for (const ModelConfig& model : config.models) {
    if (model.disaggregated()) {
      add_group(model, "prefill", model.prefill_group.scaling, terms);
    }
    add_group(model, "decode", model.decode_group.scaling, terms);
  }
  return terms;
}

std::vector<std::string> warnings_of_clients(const JobTerms& terms) {
  std::vector<std::string> warnings;
  const auto listen = net::parse_http_address(terms.listen);
  if (listen && !is_loopback(listen->host)) {
    if (terms.tenants.empty()) {
      warnings.push_back("router.listen is " + terms.listen +
                         ", and there are no tenants: whoever reaches it may ask (router.tenants "
                         "wants keys)");
    }
    if (!terms.tls) {
      warnings.push_back("router.listen is " + terms.listen +
                         " without TLS: keys, prompts and answers can be read on the way "
                         "(router.tls)");
    }
  }
  return warnings;
}

std::vector<std::string> warnings_of_size(const JobTerms& terms) {
  std::vector<std::string> warnings;
  for (const GroupTerms& group : terms.groups) {
    if (group.scaling.workers_max > group.room) {
      warnings.push_back(group.group + " may grow to " +
                         count_text(group.scaling.workers_max, "worker") +
                         ", and these nodes have room for " + std::to_string(group.room));
    }
  }
  return warnings;
}

std::string terms_text(const JobTerms& terms) {
  std::string text;
  const auto listen = net::parse_http_address(terms.listen);
  if (terms.tls || !terms.tenants.empty() || (listen && !is_loopback(listen->host))) {
    text = std::string("clients: ") + (terms.tls ? "https" : "http") + ", " +
           tenants_text(terms.tenants) + "\n";
  }
  for (const GroupTerms& group : terms.groups) {
    text += group_text(group);
  }
  return text + job_scaling_text(terms.scaling);
}

void append_terms(JsonWriter& json, const JobTerms& terms) {
  json.key("clients").begin_object();
  json.key("listen").string(terms.listen);
  json.key("tls").boolean(terms.tls);
  json.key("tenants").begin_array();
  for (const std::string& tenant : terms.tenants) {
    json.string(tenant);
  }
  json.end_array();
  json.end_object();
  json.key("scaling").begin_object();
  json.key("groups").begin_array();
  for (const GroupTerms& group : terms.groups) {
    json.begin_object();
    json.key("group").string(group.group);
    json.key("min").integer(group.scaling.workers_min);
    json.key("max").integer(group.scaling.workers_max);
    json.key("ttft_seconds").number(seconds(group.scaling.ttft));
    json.key("itl_seconds").number(seconds(group.scaling.itl));
    json.key("room").integer(group.room);
    json.end_object();
  }
  json.end_array();
  json.key("workers_max").integer(terms.scaling.workers_max);
  json.key("gpus_max").integer(terms.scaling.gpus_max);
  json.key("zero_after_seconds").number(seconds(terms.scaling.zero_after));
  json.end_object();
}

}  // namespace pdjob::launcher
