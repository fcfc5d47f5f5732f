// TlsStream: TLS 1.3 over a connected, nonblocking socket. Both ends make the same key of their
// job's token (an external PSK, with an ephemeral exchange of keys on top), so there are no
// certificates to hand out, and who does not know the token gets no further than the first message.
// The only door to OpenSSL.
//
// Reading goes straight to where the caller wants the bytes. Writing copies 16 KiB at a time, the
// most that one TLS record holds: small pieces share a record, and what a blocked record holds no
// longer depends on the caller's memory.
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

// What all streams of an endpoint share. Outlives them. Loop-bound.
class TlsContext {
 public:
  struct Options {
    TlsKey key{};
    // Then the stream's keys are replaced: AES-GCM is proven for about 2^24 records of one key.
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
  // Begun with the first read or write. `socket` is not owned.
  TlsStream(const TlsContext& context, int socket, TlsSide side);

  // As recvmsg() and sendmsg() with errno: EAGAIN, or EPROTO and error() says what is wrong. A
  // stream that was cut off reads as one that was closed: it is the link's messages that must be
  // complete.
  ssize_t read(std::span<const iovec> pieces);
  // What it takes is on its way when flush() is true, then or later.
  ssize_t write(std::span<const iovec> pieces);
  // False, with errno as above: call again when the socket can be written, or has been read.
  bool flush();
  const Error& error() const { return error_; }
  // What only the two ends of this very stream know (RFC 9266). Requires: something was read.
  std::string channel() const;

 private:
  ssize_t fail(int outcome);

  int socket_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> stream_;
  const uint64_t bytes_per_key_;
  uint64_t bytes_of_key_ = 0;      // Written under the current key.
  std::vector<std::byte> record_;  // Taken by write(), not yet by the socket.
  bool opened_ = false;
  bool failed_ = false;
  Error error_;
};

}  // namespace pdjob::kvtransfer
