#include "launcher/pool/pool_specs.h"

#include <span>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "launcher/agents/agent_message.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

namespace {

constexpr size_t kTextBytesMax = 64 * limits::kKiB;

using Labels = std::vector<std::pair<std::string, std::string>>;

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<ShareSpec> spec,
            typename Codec::template Ref<Labels> labels) {
  codec.text(spec.job, kTextBytesMax);
  codec.text(spec.name, kTextBytesMax);
  codec.text(spec.join, kTextBytesMax);
  codec.text(spec.key, kTextBytesMax);
  codec.value(spec.cores);
  codec.value(spec.memory_bytes);
  codec.list(labels, kNodeFactsMax, [](Codec& each, auto& label) {
    each.text(label.first, kTextBytesMax);
    each.text(label.second, kTextBytesMax);
  });
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<LaunchSpec> spec) {
  codec.text(spec.job, kTextBytesMax);
  codec.text(spec.text, limits::kConfigBytesMax);
  codec.text(spec.source, kTextBytesMax);
  codec.text(spec.listen, kTextBytesMax);
  codec.text(spec.key, kTextBytesMax);
  codec.value(spec.nodes);
}

Error no_such_bytes() {
  return {ErrorCode::kInvalidArgument, "the bytes are no spec of a pool's process"};
}

}  // namespace

std::string encode(const ShareSpec& spec) {
  std::string bytes;
  net::WireWriter writer(bytes);
  fields(writer, spec, Labels(spec.labels.begin(), spec.labels.end()));
  return bytes;
}

std::string encode(const LaunchSpec& spec) {
  std::string bytes;
  net::WireWriter writer(bytes);
  fields(writer, spec);
  return bytes;
}

Result<ShareSpec> decode_share_spec(const std::string& bytes) {
  net::WireReader reader(std::as_bytes(std::span(bytes)));
  ShareSpec spec;
  Labels labels;
  fields(reader, spec, labels);
  spec.labels.insert(labels.begin(), labels.end());
  if (reader.failed() || !reader.at_end()) {
    return no_such_bytes();
  }
  return spec;
}

Result<LaunchSpec> decode_launch_spec(const std::string& bytes) {
  net::WireReader reader(std::as_bytes(std::span(bytes)));
  LaunchSpec spec;
  fields(reader, spec);
  if (reader.failed() || !reader.at_end()) {
    return no_such_bytes();
  }
  return spec;
}

}  // namespace pdjob::launcher
