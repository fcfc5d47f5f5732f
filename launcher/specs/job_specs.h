// What a process of a job needs of its job file: one plain value for each kind of process. The
// launcher makes it once, and a process gets it as a text beside its identity
// (net/control/process_spec.h): the keys that differ from their defaults, in YAML. The declarations
// that read a job file write and read it, too, so there is one list of fields. Values; the
// functions are Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "batch/config/batch_api_config.h"
#include "common/config/config_document.h"
#include "common/result.h"
#include "common/time.h"
#include "decode/decode_config.h"
#include "engine/engine_config.h"
#include "kvtransfer/config/kvtransfer_config.h"
#include "launcher/plan/job_config.h"
#include "net/control/message.h"
#include "prefill/prefill_config.h"
#include "router/config/router_config.h"
#include "store/store_config.h"

namespace pdjob::launcher {

struct WorkerSpec {
  std::string model;  // A path, or a name that its machine finds (model_config.h).
  std::string served_name;
  engine::EngineConfig engine;
  kvtransfer::KvTransferConfig kvtransfer;
  prefill::PrefillConfig prefill;
  decode::DecodeConfig decode;
  // Both roles of its model have the same engine, so its role may change while it runs.
  bool changes_role = false;
  Duration drain_timeout{};
  Duration start_timeout{};
  std::string weights_dir;  // Of a rollout job: where new weights are found.
  // WorkerEntry::fingerprint of an engine of another make, equal in both roles of a model. Empty:
  // the worker makes its own.
  std::string fingerprint;
  // What an engine of another make is told of a store; its host is known when it starts
  // (net::ProcessSpec::store_host), or is here.
  engine::StoreUse store;
};

struct RouterSpec {
  router::RouterConfig router;
  router::RolloutConfig rollout;
  std::vector<std::string> models;  // Served names.
  bool plain = false;               // The job is not disaggregated.
  uint64_t file_bytes_max = 0;      // Of an upload for the Batch API.
};

struct BatchSpec {
  batch::BatchApiConfig batch_api;
  Duration row_timeout{};
  Duration drain_timeout{};
};

struct StoreSpec {
  store::StoreConfig kv_store;
  kvtransfer::KvTransferConfig kvtransfer;
  Duration drain_timeout{};
};

WorkerSpec worker_spec(const JobConfig& config, const ModelConfig& model, net::Role role);
// How a worker with this role batches, which is not kPrefill. The chunk may depend on its engine.
decode::DecodeConfig decode_config(const WorkerSpec& work, net::Role role);

// Routers, the Batch API's process and stores have no model.
using SpecKey = std::pair<net::Role, std::string>;

// A whole job file, as texts in which only the keys stand that differ from their defaults: what the
// launcher itself obeys, and what each of its processes gets.
struct JobSpecs {
  std::string launcher;
  std::map<SpecKey, std::string> work;

  // Of such a process; empty: the job has none.
  std::string digest(net::Role role, const std::string& model) const;
  friend bool operator==(const JobSpecs&, const JobSpecs&) = default;
};
JobSpecs specs_of(const JobConfig& config);
// kInvalidArgument: a text is longer than a process reads.
Status check(const JobSpecs& specs);

// The ports that an engine of another make takes on a node: the most of any. 0: there is none.
uint32_t engine_ports(const JobSpecs& specs);

// [{"role": "decode", "model": "tiny", "digest": "...", "work": {"engine": {"sequences": 4}}}],
// with the keys that differ from their defaults.
std::string specs_json(const JobSpecs& specs);

// What differs for one kind of process, or for the launcher.
struct SpecChange {
  std::string of;  // "launcher", "router", "batch", "store", "decode", or "decode of MODEL"
  std::vector<ConfigDifference> keys;
};
std::vector<SpecChange> changes(const JobSpecs& from, const JobSpecs& to);
// "decode: engine.sequences from 8 to 16; router: ...", of at most a few keys; empty without
// changes.
std::string changes_text(const std::vector<SpecChange>& changes);

// A router's text `from` with those keys of `to` that a router takes over while it runs.
// Requires: both are of specs_of().
std::string with_live_keys(const std::string& from, const std::string& to);

// kInvalidArgument: the text is none of specs_of(); `name` stands in the message.
Result<WorkerSpec> read_worker_spec(const std::string& name, const std::string& text);
Result<RouterSpec> read_router_spec(const std::string& name, const std::string& text);
Result<BatchSpec> read_batch_spec(const std::string& name, const std::string& text);
Result<StoreSpec> read_store_spec(const std::string& name, const std::string& text);

// All keys of such a text with their values, those that have their defaults included.
Result<ConfigNode> spec_values(net::Role role, const std::string& text);

// The identity of a text: processes with the same one do the same.
std::string spec_digest(const std::string& text);

}  // namespace pdjob::launcher
