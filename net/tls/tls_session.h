// TlsSession: one end of a TLS connection, over any transport of bytes that does not block. Two
// kinds of contexts make sessions: both ends have one key, or the acceptor shows a certificate.
// tls_session.cc alone uses OpenSSL.
//
// Writing copies at most one record (16 KiB) at a time. So small pieces share a record, and a
// blocked record does not depend on the caller's memory.
//
// After the handshake a peer may send few records without data (new keys, alerts, negotiations):
// each costs more than data, and nothing above TLS sees them. Beyond that the session fails.
// Loop-bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace pdjob::net {

using TlsKey = std::array<std::byte, 32>;

enum class TlsSide { kInitiator, kAcceptor };

// What a session reads from and writes to. Both return the bytes moved or -errno; read() returns 0
// at the end.
class TlsWire {
 public:
  virtual ssize_t wire_read(std::span<char> to) = 0;
  virtual ssize_t wire_write(std::string_view bytes) = 0;

 protected:
  ~TlsWire() = default;
};

// What is known of a certificate. Value.
struct CertificateFacts {
  std::string subject;
  int64_t not_before = 0;  // Seconds since 1970.
  int64_t not_after = 0;
};

// The settings that sessions share. Sessions keep what they need of it, so it may be replaced.
// Loop-bound.
class TlsContext {
 public:
  // TLS 1.3 under an external pre-shared key with an ephemeral exchange; no certificates.
  struct KeyOptions {
    TlsKey key{};
    // After this many bytes a session's keys are replaced: AES-GCM is proven for about 2^24
    // records of one key.
    uint64_t bytes_per_key = uint64_t{1} << 36;
  };
  static Result<std::unique_ptr<TlsContext>> open(const KeyOptions& options);

  // For acceptors: TLS 1.2 and 1.3, HTTP/1.1 by ALPN, no renegotiation, no tickets. Both texts are
  // PEM: the certificate with those that lead to its authority, and its key. kInvalidArgument:
  // they are unusable, or do not match.
  struct CertificateOptions {
    std::string certificate;
    std::string key;
  };
  static Result<std::unique_ptr<TlsContext>> open(const CertificateOptions& options);

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Requires: it was opened with a certificate.
  const CertificateFacts& certificate() const { return certificate_; }

 private:
  friend class TlsSession;
  friend struct TlsCallbacks;
  TlsContext();

  TlsKey key_{};
  uint64_t bytes_per_key_ = uint64_t{1} << 36;
  CertificateFacts certificate_;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
};

// Reads the first certificate of a PEM text that may follow one. kInvalidArgument: it is unusable.
Result<CertificateFacts> read_certificate(const std::string& text);

class TlsSession {
 public:
  // `wire` outlives it. Under a key, `context` does, too.
  TlsSession(const TlsContext& context, TlsWire& wire, TlsSide side);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // 1: done. -EAGAIN: call again when the wire is ready. Otherwise as for read(). read() and
  // flush() do it, too.
  int shake_hands();
  // Reads until `to` is full or nothing more is there. Returns the bytes, 0 at the end, or -errno;
  // -EPROTO: failure() has the reason. A connection that was cut off reads like a closed one, so
  // what runs inside must know its own end.
  ssize_t read(std::span<char> to);
  // The peer has said that it sends no more.
  bool peer_finished() const;
  // Takes bytes into the record that is sent next, as many as fit.
  size_t take(std::string_view bytes);
  // 0: all that was taken is with the wire. Otherwise -errno as above; after -EAGAIN call again
  // when the wire is ready.
  int flush();
  // Bytes that were taken and are not with the wire.
  size_t pending() const { return record_.size(); }
  // Says that nothing more is sent. Requires: nothing is pending.
  void finish();

  enum class Trouble {
    kNone,
    kNotTls,     // The peer's first bytes are of another protocol.
    kHandshake,  // No agreement: versions, keys or certificates.
    kCorrupt,    // Later.
  };
  Trouble trouble() const { return trouble_; }
  const std::string& failure() const { return failure_; }
  // Returns a value that only the two ends of this session know (RFC 9266). Requires: something
  // was read.
  std::string channel() const;

 private:
  friend struct TlsCallbacks;

  int fail(int outcome);
  bool is_flooded() const;

  TlsWire& wire_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> session_;
  const uint64_t bytes_per_key_;
  uint64_t bytes_of_key_ = 0;  // Bytes written under the current key.
  std::vector<char> record_;   // Bytes taken by take(), not yet by the wire.
  bool opened_ = false;
  bool shaken_ = false;        // Records are counted from now on.
  uint64_t bytes_read_ = 0;    // Of data.
  uint64_t idle_records_ = 0;  // Received without data.
  Trouble trouble_ = Trouble::kNone;
  std::string failure_;
};

}  // namespace pdjob::net
