#include "net/tls/server_tls.h"

#include <utility>
#include <variant>

#include "common/files/small_file.h"
#include "common/limits.h"

namespace pdjob::net {
namespace {

constexpr size_t kFileBytesMax = limits::kMiB;
constexpr Duration kLookInterval = std::chrono::seconds(2);

Result<std::string> read_pem(const std::string& path, Secrecy secrecy) {
  const auto unusable = [](const std::string& why) {
    return Error{ErrorCode::kInvalidArgument, why};
  };
  if (path.empty()) {
    return unusable("is missing");
  }
  auto text = read_small_file(path, kFileBytesMax + 1, secrecy);
  if (!text) {
    return unusable("cannot read " + path + ": " + text.error().message);
  }
  return text->size() > kFileBytesMax ? unusable(path + " has more than 1 MiB") : std::move(text);
}

using Loaded = std::variant<std::unique_ptr<TlsContext>, CertificateFault>;

Loaded load(const CertificateFiles& files) {
  using File = CertificateFault::File;
  const auto certificate = read_pem(files.certificate, Secrecy::kPublic);
  if (!certificate) {
    return CertificateFault{File::kCertificate, certificate.error().message};
  }
  if (const auto read = read_certificate(*certificate); !read) {
    return CertificateFault{File::kCertificate, files.certificate + ": " + read.error().message};
  }
  const auto key = read_pem(files.key, Secrecy::kSecret);
  if (!key) {
    return CertificateFault{File::kKey, key.error().message};
  }
  auto context =
      TlsContext::open(TlsContext::CertificateOptions{.certificate = *certificate, .key = *key});
  if (!context) {
    return CertificateFault{File::kKey, files.key + ": " + context.error().message};
  }
  return std::move(*context);
}

}  // namespace

std::optional<CertificateFault> check_certificate(const CertificateFiles& files) {
  Loaded loaded = load(files);
  auto* fault = std::get_if<CertificateFault>(&loaded);
  return fault == nullptr ? std::nullopt : std::optional(std::move(*fault));
}

Result<std::unique_ptr<ServerTls>> ServerTls::open(const CertificateFiles& files) {
  std::unique_ptr<ServerTls> made(new ServerTls(files));
  made->taken_ = made->seen_ = made->stamps();
  Loaded loaded = load(files);
  if (const auto* fault = std::get_if<CertificateFault>(&loaded)) {
    return Error{ErrorCode::kInvalidArgument, "TLS: " + fault->why};
  }
  made->context_ = std::move(std::get<std::unique_ptr<TlsContext>>(loaded));
  return made;
}

ServerTls::Stamp ServerTls::stamp_of(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) {
    return {};
  }
  // The time of its change, not of its content: a `mv` of an older file counts, too.
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .size = found.st_size,
          .changed_seconds = found.st_ctim.tv_sec,
          .changed_nanoseconds = found.st_ctim.tv_nsec};
}

ServerTls::Look ServerTls::look(int64_t unix_now) {
  const Stamps now = stamps();
  const bool still = std::exchange(seen_, now) == now;
  return now == taken_ || !still ? Look::kSame : reload(unix_now);
}

ServerTls::Look ServerTls::reload(int64_t unix_now) {
  taken_ = seen_ = stamps();
  Loaded loaded = load(files_);
  if (const auto* fault = std::get_if<CertificateFault>(&loaded)) {
    refusal_ = fault->why;
    return Look::kRefused;
  }
  auto& context = std::get<std::unique_ptr<TlsContext>>(loaded);
  if (context->certificate().not_after <= unix_now) {
    refusal_ = files_.certificate + ": its certificate has expired";
    return Look::kRefused;
  }
  context_ = std::move(context);
  refusal_.clear();
  return Look::kTaken;
}

CertificateWatch::CertificateWatch(Loop& loop, ServerTls& tls, Told told)
    : loop_(loop), tls_(tls), told_(std::move(told)) {
  timer_ = loop_.call_at(loop_.now() + kLookInterval, [this] { look(); });
}

void CertificateWatch::look() {
  timer_ = loop_.call_at(loop_.now() + kLookInterval, [this] { look(); });
  const ServerTls::Look seen = tls_.look(loop_.unix_seconds());
  if (seen != ServerTls::Look::kSame) {
    told_(seen);
  }
}

}  // namespace pdjob::net
