// JobTerms: what a job offers beside its processes, as a plan shows it: who may ask it and how, and
// how far its groups may grow. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/json/json_writer.h"
#include "launcher/plan/job_config.h"

namespace pdjob::launcher {

// A group that changes its size by itself.
struct GroupTerms {
  std::string group;  // "decode"
  GroupScaling scaling;
  // Workers for which there is room on the nodes of the plan, those of the plan included.
  uint64_t room = 0;
};

struct JobTerms {
  std::string listen;
  bool tls = false;
  std::vector<std::string> tenants;
  std::vector<GroupTerms> groups;
  JobScalingConfig scaling;
};

JobTerms terms_of(const JobConfig& config);
// What is allowed and may surprise about its clients.
std::vector<std::string> warnings_of_clients(const JobTerms& terms);
// The same about its size, when the rooms are known.
std::vector<std::string> warnings_of_size(const JobTerms& terms);
std::string terms_text(const JobTerms& terms);
// Adds the members "clients" and "scaling".
void append_terms(JsonWriter& json, const JobTerms& terms);

}  // namespace pdjob::launcher
