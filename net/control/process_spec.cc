#include "net/control/process_spec.h"

#include <array>
#include <span>

#include <unistd.h>

#include "net/control/wire_fields.h"

namespace pdjob::net {

namespace {

constexpr size_t kTextBytesMax = 64 * limits::kKiB;

void descriptor(WireWriter& writer, int fd) { writer.value(static_cast<int64_t>(fd)); }
void descriptor(WireReader& reader, int& fd) {
  int64_t number = 0;
  reader.value(number);
  fd = static_cast<int>(number);
}

template <class Codec>
void fields(Codec& codec, typename Codec::template Ref<ProcessSpec> spec) {
  const auto text = [&codec](auto& field) { codec.text(field, kTextBytesMax); };
  text(spec.job);
  text(spec.name);
  codec.word(spec.role, Role::kPrefill, Role::kStore);
  text(spec.engine_id);
  text(spec.model);
  text(spec.host);
  codec.value(spec.port);
  descriptor(codec, spec.listen_fd);
  descriptor(codec, spec.threads_fd);
  text(spec.control.endpoint);
  text(spec.control.server_public_key);
  text(spec.control.client.public_key);
  text(spec.control.client.secret_key);
  text(spec.gpus);
  codec.value(spec.gpu_percent);
  text(spec.cpus);
  text(spec.memory_node);
  text(spec.nics);
  text(spec.key);
  text(spec.router_key);
  text(spec.probe_key);
  text(spec.link_keys);
  text(spec.batch_address);
  text(spec.batch_key);
  text(spec.front_address);
  text(spec.rows_key);
  text(spec.weights.path);
  text(spec.weights.version);
  text(spec.weights.digest);
  codec.value(spec.begins_closed);
  text(spec.control_key);
  codec.value(spec.ports_from);
  codec.value(spec.part);
  text(spec.head_host);
  text(spec.store_host);
  text(spec.command);
  codec.text(spec.work, kWorkBytesMax);
}

}  // namespace

std::string encode_spec(const ProcessSpec& spec) {
  std::string bytes;
  WireWriter writer(bytes);
  fields(writer, spec);
  return bytes;
}

Result<ProcessSpec> decode_spec(const std::string& bytes) {
  WireReader reader(std::as_bytes(std::span(bytes)));
  ProcessSpec spec;
  fields(reader, spec);
  if (reader.failed() || !reader.at_end()) {
    return Error{ErrorCode::kInvalidArgument, "the bytes are no spec of a process"};
  }
  return spec;
}

Result<ProcessSpec> read_spec(int fd) {
  std::string text;
  std::array<char, 16384> piece{};
  ssize_t got = 0;
  while (text.size() <= kSpecBytesMax && (got = ::read(fd, piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<size_t>(got));
  }
  close(fd);  // It holds secrets.
  if (got != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "pdjob: --spec-fd is the launcher's; it cannot be read here"};
  }
  return decode_spec(text);
}

}  // namespace pdjob::net
