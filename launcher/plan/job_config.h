// JobConfig: a whole job file. It composes the structs of the other folders and checks the rules
// that span sections. Value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "batch/config/batch_api_config.h"
#include "batch/config/batch_config.h"
#include "common/config/config_reader.h"
#include "common/result.h"
#include "common/time.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "launcher/plan/cluster_config.h"
#include "launcher/plan/launcher_config.h"
#include "launcher/plan/model_config.h"
#include "launcher/plan/scaling_config.h"
#include "net/control/message.h"
#include "router/config/rollout_config.h"
#include "router/config/router_config.h"
#include "store/store_config.h"

namespace pdjob::launcher {

enum class Mode {
  kServe,
  kBatch,    // Answers the rows of `batch`, then ends.
  kRollout,  // As kServe, with weights that a trainer changes.
};

struct JobConfig {
  std::string name;
  Mode mode = Mode::kServe;
  std::vector<ModelConfig> models;  // At least one.
  kvtransfer::KvTransferConfig kvtransfer;
  store::StoreConfig kv_store;
  router::RouterConfig router;
  batch::BatchApiConfig batch_api;
  LauncherConfig launcher;
  JobScalingConfig scaling;
  router::RolloutConfig rollout;
  std::vector<ClusterConfig> clusters;  // Empty: this machine.
  batch::BatchConfig batch;

  std::string text;    // The file with its settings.
  std::string source;  // The file's name, for errors.
  // The text without the section `batch`: answers of a batch depend on it.
  std::string text_of_job;
  // Lines. Those of a file that was translated (vllm_job.h) come first; the text above is the
  // translation.
  std::string warnings;

  // Sets the GPU of all engines and links.
  void set_gpu(const GpuConfig& gpu);
  // Null if no model has that name.
  const ModelConfig* model_called(std::string_view served_name) const;
  std::vector<std::string> served_names() const;
};

// Whether workers of this role use the stores of the job: their own engine's, or those that their
// recipe knows.
bool uses_store(const JobConfig& config, const ModelConfig& model, net::Role role);

// The drain timeout of a worker that receives its own signal. A prefill worker gets its lease on
// top: it still keeps the KV of its last prompts for that long.
Duration drain_timeout(const JobConfig& config, net::Role role);

// Where its logs are without `launcher.log_dir`.
std::string usual_logs(const JobConfig& config);

enum class JobUse {
  kAsWritten,
  kForBatch,  // A batch starts a job of its own from the file, beside the one that may run.
};

// kInvalidArgument: the message lists the errors, in the form of config_reader.h. It accesses the
// file system only for the model. Settings win over the text, and JobConfig::text has them.
Result<JobConfig> parse_job_config(const std::string& source, const std::string& text,
                                   const Places& places, JobUse use = JobUse::kAsWritten,
                                   const std::vector<ConfigSetting>& settings = {});
Result<JobConfig> read_job_config(const std::string& path, const Places& places,
                                  JobUse use = JobUse::kAsWritten,
                                  const std::vector<ConfigSetting>& settings = {});

// Where a job that runs is found. It needs no other key of the file, and none of the files that
// the job needs.
struct JobPlace {
  std::string name;
  std::string state_dir;  // Absolute.
};
Result<JobPlace> read_job_place(const std::string& path, const Places& places);

// The job of a batch, made of the job that a file describes: another name, free ports, another log
// folder. A running job of that file is not touched.
JobConfig batch_job(JobConfig config);

// The key `mode`.
void read(ConfigReader& in, Mode& mode);
// The `router` section.
void read_router(ConfigReader& in, router::RouterConfig& config);

std::string default_state_dir(const Places& places);
// The text of docs/reference/job-file.md.
std::string config_reference();

}  // namespace pdjob::launcher
