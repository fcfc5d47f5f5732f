#include "kvtransfer/link/tls_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "common/check.h"

namespace pdjob::kvtransfer {
namespace {

constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[] = {0x13, 0x01};
constexpr unsigned char kIdentity[] = {'p', 'd', 'j', 'o', 'b', ' ', 'k', 'v'};
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kReadAheadBytes = 4 * kRecordBytes;  // One system call reads several records.

// --- OpenSSL's own way to a socket would raise SIGPIPE.

int socket_of(BIO* bio) { return *static_cast<const int*>(BIO_get_data(bio)); }

int bio_write(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      ::send(socket_of(bio), bytes, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_write(bio);
  }
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(socket_of(bio), bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_read(bio);
  }
  if (got == 0) {
    BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  }
  return static_cast<int>(got);
}

long bio_control(BIO* bio, int what, long /*number*/, void* /*pointer*/) {
  switch (what) {
    case BIO_CTRL_FLUSH:
      return 1;
    case BIO_CTRL_EOF:
      return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
    default:
      return 0;
  }
}

// `socket` outlives it.
BIO* make_bio(int& socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "pdjob socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  BIO* bio = BIO_new(method);
  PDJOB_CHECK(bio != nullptr);
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace

// --- the key

struct TlsCallbacks {
  // Wraps the key in a session to resume, as TLS 1.3 requires.
  static SSL_SESSION* make_session(SSL* stream) {
    const auto* context =
        static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(stream)));
    const TlsKey& key = context->options_.key;
    SSL_SESSION* session = SSL_SESSION_new();
    PDJOB_CHECK(session != nullptr &&
                SSL_SESSION_set1_master_key(
                    session, reinterpret_cast<const unsigned char*>(key.data()), key.size()) == 1 &&
                SSL_SESSION_set_cipher(session, SSL_CIPHER_find(stream, kSuiteNumber)) == 1 &&
                SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
    return session;
  }

  static int use(SSL* stream, const EVP_MD* /*digest*/, const unsigned char** identity,
                 size_t* identity_bytes, SSL_SESSION** session) {
    *identity = kIdentity;
    *identity_bytes = sizeof kIdentity;
    *session = make_session(stream);
    return 1;
  }

  static int find(SSL* stream, const unsigned char* identity, size_t identity_bytes,
                  SSL_SESSION** session) {
    const bool known = identity_bytes == sizeof kIdentity &&
                       std::memcmp(identity, kIdentity, sizeof kIdentity) == 0;
    *session = known ? make_session(stream) : nullptr;
    return 1;
  }
};

Result<std::unique_ptr<TlsContext>> TlsContext::open(const Options& options) {
  std::unique_ptr<TlsContext> made(new TlsContext(options));
  made->context_ = {SSL_CTX_new(TLS_method()), SSL_CTX_free};
  SSL_CTX* context = made->context_.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kSuite) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
    return Error{ErrorCode::kUnsupported, "OpenSSL cannot do TLS 1.3 with AES-128-GCM"};
  }
  SSL_CTX_set_app_data(context, made.get());
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
  SSL_CTX_set_psk_use_session_callback(context, TlsCallbacks::use);
  SSL_CTX_set_psk_find_session_callback(context, TlsCallbacks::find);
  return made;
}

// --- a stream

TlsStream::TlsStream(const TlsContext& context, int socket, TlsSide side)
    : socket_(socket),
      stream_(SSL_new(context.context_.get()), SSL_free),
      bytes_per_key_(context.options_.bytes_per_key) {
  PDJOB_CHECK(stream_ != nullptr);
  BIO* bio = make_bio(socket_);
  SSL_set_bio(stream_.get(), bio, bio);
  if (side == TlsSide::kInitiator) {
    // A sender that answers with a certificate instead of the key is rejected: no authority is
    // trusted.
    SSL_set_verify(stream_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(stream_.get());
  } else {
    SSL_set_accept_state(stream_.get());
  }
  record_.reserve(kRecordBytes);
}

ssize_t TlsStream::read(std::span<const iovec> pieces) {
  size_t total = 0;
  for (const iovec& piece : pieces) {
    for (size_t filled = 0; filled < piece.iov_len;) {
      if (failed_) {
        errno = EPROTO;
        return total > 0 ? static_cast<ssize_t>(total) : -1;
      }
      ERR_clear_error();
      size_t got = 0;
      const int outcome =
          SSL_read_ex(stream_.get(), static_cast<std::byte*>(piece.iov_base) + filled,
                      piece.iov_len - filled, &got);
      if (outcome != 1) {
        const ssize_t answer = fail(outcome);  // The next call reports it again.
        return total > 0 ? static_cast<ssize_t>(total) : answer;
      }
      opened_ = true;
      filled += got;
      total += got;
    }
  }
  return static_cast<ssize_t>(total);
}

ssize_t TlsStream::write(std::span<const iovec> pieces) {
  if (!flush()) {
    return -1;
  }
  for (const iovec& piece : pieces) {
    const auto* begin = static_cast<const std::byte*>(piece.iov_base);
    const size_t bytes = std::min(piece.iov_len, kRecordBytes - record_.size());
    record_.insert(record_.end(), begin, begin + bytes);
  }
  const auto taken = static_cast<ssize_t>(record_.size());
  if (!flush() && failed_) {
    return -1;
  }
  return taken;
}

bool TlsStream::flush() {
  while (!record_.empty() && !failed_) {
    ERR_clear_error();
    size_t written = 0;
    const int outcome = SSL_write_ex(stream_.get(), record_.data(), record_.size(), &written);
    if (outcome != 1) {
      if (fail(outcome) == 0) {  // The peer has closed the stream.
        errno = EPIPE;
      }
      return false;
    }
    record_.erase(record_.begin(), record_.begin() + static_cast<std::ptrdiff_t>(written));
    opened_ = true;
    bytes_of_key_ += written;
    if (bytes_of_key_ >= bytes_per_key_ && record_.empty()) {
      bytes_of_key_ = 0;
      PDJOB_CHECK(SSL_key_update(stream_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    }
  }
  if (failed_) {
    errno = EPROTO;
  }
  return !failed_;
}

std::string TlsStream::channel() const {
  constexpr std::string_view kLabel = "EXPORTER-Channel-Binding";
  std::string bytes(32, '\0');
  PDJOB_CHECK(SSL_export_keying_material(stream_.get(),
                                         reinterpret_cast<unsigned char*>(bytes.data()),
                                         bytes.size(), kLabel.data(), kLabel.size(), nullptr, 0,
                                         /*use_context=*/0) == 1);
  return bytes;
}

// Returns the result of a failed call.
ssize_t TlsStream::fail(int outcome) {
  const int system_error = errno;
  switch (SSL_get_error(stream_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      errno = system_error != 0 ? system_error : ECONNRESET;
      return -1;
    default:
      break;
  }
  const unsigned long code = ERR_peek_last_error();
  const char* text = ERR_reason_error_string(code);
  const std::string reason = text != nullptr ? text : "unknown error";
  if (opened_) {
    error_ = {ErrorCode::kCorrupt, "KV link: TLS failed: " + reason};
  } else if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER) {
    error_ = {ErrorCode::kUnsupported,
              "KV link: the peer does not encrypt: kvtransfer.tcp.encrypt must be the same on both "
              "ends"};
  } else {
    error_ = {ErrorCode::kUnsupported,
              "KV link: no TLS with the peer; is it of this job? (" + reason + ")"};
  }
  failed_ = true;
  errno = EPROTO;
  return -1;
}

}  // namespace pdjob::kvtransfer
