#include "launcher/pool/pool_specs.h"

#include <span>

#include "common/limits.h"
#include "launcher/pool/pool_fields.h"
#include "net/control/wire_fields.h"

namespace pdjob::launcher {

namespace {

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<ShareSpec> spec) {
  codec.text(spec.job, kPoolTextBytesMax);
  codec.text(spec.name, kPoolTextBytesMax);
  codec.text(spec.join, kPoolTextBytesMax);
  codec.text(spec.key, kPoolTextBytesMax);
  codec.value(spec.cores);
  codec.value(spec.memory_bytes);
  part_map(codec, spec.gpu_parts, kPoolFacts);
  label_map(codec, spec.labels, kPoolFacts);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<LaunchSpec> spec) {
  codec.text(spec.job, kPoolTextBytesMax);
  codec.text(spec.text, limits::kConfigBytesMax);
  codec.text(spec.source, kPoolTextBytesMax);
  codec.text(spec.listen, kPoolTextBytesMax);
  codec.text(spec.key, kPoolTextBytesMax);
  codec.value(spec.nodes);
}

Error no_such_bytes() {
  return {ErrorCode::kInvalidArgument, "the bytes are no spec of a pool's process"};
}

}  // namespace

std::string encode(const ShareSpec& spec) {
  std::string bytes;
  net::WireWriter writer(bytes);
  fields(writer, spec);
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
  fields(reader, spec);
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
