// TlsStream: TLS 1.3 over a connected, nonblocking socket. Both ends derive the same key from their
// job's token: an external PSK, combined with an ephemeral key exchange. So there are no
// certificates to distribute. A peer without the token fails at the first message. No other file
// uses OpenSSL.
//
// Reading goes straight to the caller's memory. Writing copies at most 16 KiB at a time, the size
// of one TLS record. So small pieces share a record, and a blocked record no longer depends on the
// caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "common/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace pdjob::kvtransfer {

using TlsKey = std::array<std::byte, 32>;

enum class TlsSide { kInitiator, kAcceptor };

// The settings that all streams of an endpoint share. Outlives them. Loop-bound.
class TlsContext {
 public:
  struct Options {
    TlsKey key{};
    // After this many bytes the stream's keys are replaced: AES-GCM is proven for about 2^24
    // records of one key.
    uint64_t bytes_per_key = uint64_t{1} << 36;
  };
  static Result<std::unique_ptr<TlsContext>> open(const Options& options);

 private:
  friend class TlsStream;
  friend struct TlsCallbacks;
  explicit TlsContext(const Options& options) : options_(options), context_(nullptr, nullptr) {}

  const Options options_;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
};

// Loop-bound.
class TlsStream {
 public:
  // The handshake begins with the first read or write. `socket` is not owned.
  TlsStream(const TlsContext& context, int socket, TlsSide side);

  // Like recvmsg() and sendmsg() with errno: EAGAIN, or EPROTO, for which error() has the reason. A
  // stream that was cut off reads like a closed one: only the link's messages show whether they are
  // complete.
  ssize_t read(std::span<const iovec> pieces);
  // The bytes it takes are sent once flush() returns true, now or later.
  ssize_t write(std::span<const iovec> pieces);
  // False, with errno as above: call again when the socket is writable or has been read.
  bool flush();
  const Error& error() const { return error_; }
  // Returns a value that only the two ends of this stream know (RFC 9266). Requires: something was
  // read.
  std::string channel() const;

 private:
  ssize_t fail(int outcome);

  int socket_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> stream_;
  const uint64_t bytes_per_key_;
  uint64_t bytes_of_key_ = 0;      // Bytes written under the current key.
  std::vector<std::byte> record_;  // Bytes taken by write(), not yet by the socket.
  bool opened_ = false;
  bool failed_ = false;
  Error error_;
};

}  // namespace pdjob::kvtransfer
