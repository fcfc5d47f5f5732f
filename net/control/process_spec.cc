#include "net/control/process_spec.h"

#include "common/json/json_fields.h"
#include "common/json/json_writer.h"

namespace pdjob::net {

namespace {

bool parse_role(const std::string& word, Role& role) {
  for (const Role candidate :
       {Role::kPrefill, Role::kDecode, Role::kBoth, Role::kRouter, Role::kBatch}) {
    if (word == to_string(candidate)) {
      role = candidate;
      return true;
    }
  }
  return false;
}

}  // namespace

std::string encode_spec(const ProcessSpec& spec) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("job").string(spec.job);
  json.key("name").string(spec.name);
  json.key("role").string(to_string(spec.role));
  json.key("engine_id").string(spec.engine_id);
  json.key("model").string(spec.model);
  json.key("host").string(spec.host);
  json.key("port").integer(spec.port);
  json.key("listen_fd").integer(spec.listen_fd);
  json.key("threads_fd").integer(spec.threads_fd);
  json.key("control_endpoint").string(spec.control.endpoint);
  json.key("control_server_public_key").string(spec.control.server_public_key);
  json.key("control_public_key").string(spec.control.client.public_key);
  json.key("control_secret_key").string(spec.control.client.secret_key);
  json.key("gpus").string(spec.gpus);
  json.key("key").string(spec.key);
  json.key("router_key").string(spec.router_key);
  json.key("probe_key").string(spec.probe_key);
  json.key("link_keys").string(spec.link_keys);
  json.key("batch_address").string(spec.batch_address);
  json.key("batch_key").string(spec.batch_key);
  json.key("front_address").string(spec.front_address);
  json.key("rows_key").string(spec.rows_key);
  json.key("weights_path").string(spec.weights.path);
  json.key("weight_version").string(spec.weights.version);
  json.key("weights_digest").string(spec.weights.digest);
  json.key("https").integer(spec.https ? 1 : 0);
  json.key("begins_closed").integer(spec.begins_closed ? 1 : 0);
  json.key("control_key").string(spec.control_key);
  json.key("config_yaml").string(spec.config_yaml);
  json.key("config_name").string(spec.config_name);
  json.end_object();
  return text;
}

Result<ProcessSpec> decode_spec(const std::string& json) {
  JsonFields fields("process spec", json);
  ProcessSpec spec;
  std::string role;
  fields.take("job", spec.job);
  fields.take("name", spec.name);
  fields.take("role", role);
  fields.take("engine_id", spec.engine_id);
  fields.take("model", spec.model);
  fields.take("host", spec.host);
  fields.take("port", spec.port);
  fields.take("listen_fd", spec.listen_fd);
  fields.take("threads_fd", spec.threads_fd);
  fields.take("control_endpoint", spec.control.endpoint);
  fields.take("control_server_public_key", spec.control.server_public_key);
  fields.take("control_public_key", spec.control.client.public_key);
  fields.take("control_secret_key", spec.control.client.secret_key);
  fields.take("gpus", spec.gpus);
  fields.take("key", spec.key);
  fields.take("router_key", spec.router_key);
  fields.take("probe_key", spec.probe_key);
  fields.take("link_keys", spec.link_keys);
  fields.take("batch_address", spec.batch_address);
  fields.take("batch_key", spec.batch_key);
  fields.take("front_address", spec.front_address);
  fields.take("rows_key", spec.rows_key);
  int begins_closed = 0;
  int https = 0;
  fields.take("weights_path", spec.weights.path);
  fields.take("weight_version", spec.weights.version);
  fields.take("weights_digest", spec.weights.digest);
  fields.take("begins_closed", begins_closed);
  fields.take("https", https);
  spec.begins_closed = begins_closed != 0;
  spec.https = https != 0;
  fields.take("control_key", spec.control_key);
  fields.take("config_yaml", spec.config_yaml);
  fields.take("config_name", spec.config_name);
  PDJOB_TRY_STATUS(fields.status());
  if (!parse_role(role, spec.role)) {
    return Error{ErrorCode::kInvalidArgument, "process spec: unknown role " + role};
  }
  return spec;
}

}  // namespace pdjob::net
