// ServerTls: what a server needs to speak TLS: a certificate and its key, from two files, which may
// be replaced while it serves; and counts of handshakes. Connections that are open keep the
// certificate that they began with. Loop-bound.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <sys/stat.h>

#include "common/result.h"
#include "net/loop/loop.h"
#include "net/tls/tls_session.h"

namespace pdjob::net {

// PEM files. The key must be secret (common/files/small_file.h).
struct CertificateFiles {
  std::string certificate;  // With those that lead to its authority, its own first.
  std::string key;
  bool on() const { return !certificate.empty() || !key.empty(); }
};

// Why files cannot serve, and which of the two is at fault.
struct CertificateFault {
  enum class File { kCertificate, kKey } file = File::kCertificate;
  std::string why;
};
// Reads both files. Empty: they can serve.
std::optional<CertificateFault> check_certificate(const CertificateFiles& files);

struct HandshakeCounts {
  uint64_t done = 0;
  uint64_t failed = 0;
  uint64_t timed_out = 0;
  uint64_t evicted = 0;  // The oldest one, because too many were open.
  uint64_t plain = 0;    // Plain HTTP, which was refused.
};

class ServerTls {
 public:
  static Result<std::unique_ptr<ServerTls>> open(const CertificateFiles& files);

  const TlsContext& context() const { return *context_; }
  const CertificateFacts& certificate() const { return context_->certificate(); }
  HandshakeCounts& counts() { return counts_; }

  // Takes the files if they have changed, and have not changed since the last look: somebody may
  // still be writing. What cannot serve is refused, and the old certificate stays.
  enum class Look { kSame, kTaken, kRefused };
  Look look(int64_t unix_now);
  // Takes the files now.
  Look reload(int64_t unix_now);
  // Why the newest files were refused; empty: they were not.
  const std::string& refusal() const { return refusal_; }

 private:
  // What tells one state of a file from another.
  struct Stamp {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t size = 0;
    int64_t changed_seconds = 0;
    int64_t changed_nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 2>;

  explicit ServerTls(CertificateFiles files) : files_(std::move(files)) {}
  static Stamp stamp_of(const std::string& path);
  Stamps stamps() const { return {stamp_of(files_.certificate), stamp_of(files_.key)}; }

  const CertificateFiles files_;
  std::unique_ptr<TlsContext> context_;
  Stamps taken_{};  // Also of refused files: they are not tried again.
  Stamps seen_{};
  std::string refusal_;
  HandshakeCounts counts_;
};

// Looks at the files every two seconds, and tells what came of it unless nothing changed.
// Loop-bound.
class CertificateWatch {
 public:
  using Told = std::function<void(ServerTls::Look)>;
  // All must outlive it.
  CertificateWatch(Loop& loop, ServerTls& tls, Told told);
  ~CertificateWatch() { loop_.cancel(timer_); }
  CertificateWatch(const CertificateWatch&) = delete;
  CertificateWatch& operator=(const CertificateWatch&) = delete;

  // Does not wait for the next look.
  void reload() { told_(tls_.reload(loop_.unix_seconds())); }

 private:
  void look();

  Loop& loop_;
  ServerTls& tls_;
  const Told told_;
  TimerId timer_{};
};

}  // namespace pdjob::net
