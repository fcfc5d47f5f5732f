#include "net/tls/tls_session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "common/check.h"

namespace pdjob::net {
namespace {

constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[] = {0x13, 0x01};
constexpr unsigned char kIdentity[] = {'p', 'd', 'j', 'o', 'b', ' ', 'k', 'v'};
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kRecordBytesKept = 2048;
constexpr size_t kReadAheadBytes = 4 * kRecordBytes;  // One system call reads several records.
// Records without data that a peer may send: so many, and one more for each of these bytes of data.
constexpr uint64_t kIdleRecordsMax = 32;
constexpr uint64_t kBytesPerIdleRecord = uint64_t{1} << 20;
// Of TLS 1.2: ephemeral exchange and authenticated encryption only.
constexpr char kOlderSuites[] = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL";
constexpr std::string_view kProtocol = "\x08http/1.1";

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

// --- the wire

// Returns what OpenSSL expects, and sets errno.
int settle(BIO* bio, ssize_t moved, void (*retry)(BIO*)) {
  if (moved >= 0) {
    return static_cast<int>(moved);
  }
  errno = static_cast<int>(-moved);
  if (errno == EAGAIN || errno == EINTR) {
    retry(bio);
  }
  return -1;
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

// The last reason of OpenSSL's queue.
std::string reason() {
  const char* text = ERR_reason_error_string(ERR_peek_last_error());
  return text != nullptr ? text : "unknown error";
}

// --- certificates

// Without it, OpenSSL would ask the terminal.
int no_passphrase(char* /*to*/, int /*size*/, int /*writing*/, void* /*unused*/) { return -1; }

Owned<BIO> memory_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all};
}

int64_t seconds_of(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

CertificateFacts facts_of(X509* certificate) {
  const Owned<BIO> text{BIO_new(BIO_s_mem()), BIO_free_all};
  X509_NAME_print_ex(text.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* begin = nullptr;
  const long size = BIO_get_mem_data(text.get(), &begin);
  return {.subject = std::string(begin, static_cast<size_t>(std::max(size, 0L))),
          .not_before = seconds_of(X509_get0_notBefore(certificate)),
          .not_after = seconds_of(X509_get0_notAfter(certificate))};
}

Error unusable(const std::string& why) { return {ErrorCode::kInvalidArgument, why}; }

Result<CertificateFacts> use_certificate(SSL_CTX* context, const std::string& text) {
  const Owned<BIO> memory = memory_of(text);
  const auto next = [&] {
    return Owned<X509>{PEM_read_bio_X509(memory.get(), nullptr, no_passphrase, nullptr), X509_free};
  };
  const Owned<X509> own = next();
  if (!own) {
    return unusable("it has no certificate in PEM form");
  }
  if (SSL_CTX_use_certificate(context, own.get()) != 1) {
    return unusable("its certificate is refused: " + reason());
  }
  for (Owned<X509> each = next(); each; each = next()) {
    if (SSL_CTX_add1_chain_cert(context, each.get()) != 1) {
      return unusable("a certificate of its chain is refused: " + reason());
    }
  }
  return facts_of(own.get());
}

Status use_key(SSL_CTX* context, const std::string& text) {
  const Owned<BIO> memory = memory_of(text);
  const Owned<EVP_PKEY> key{PEM_read_bio_PrivateKey(memory.get(), nullptr, no_passphrase, nullptr),
                            EVP_PKEY_free};
  if (!key) {
    return unusable("it has no key in PEM form without a passphrase");
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return unusable("it is not the key of the certificate (" + reason() + ")");
  }
  return ok();
}

// A client that names protocols must name this one.
int choose_protocol(SSL* /*session*/, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned int offered_bytes, void* /*unused*/) {
  const auto* own = reinterpret_cast<const unsigned char*>(kProtocol.data());
  unsigned char* found = nullptr;
  const int outcome =
      SSL_select_next_proto(&found, chosen_bytes, own, static_cast<unsigned int>(kProtocol.size()),
                            offered, offered_bytes);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

// --- contexts

struct TlsCallbacks {
  // Wraps the key in a session to resume, as TLS 1.3 requires.
  static SSL_SESSION* make_session(SSL* stream) {
    const auto* context =
        static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(stream)));
    const TlsKey& key = context->key_;
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

  static int bio_write(BIO* bio, const char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    return settle(bio, session_of(bio).wire_.wire_write({bytes, static_cast<size_t>(size)}),
                  [](BIO* blocked) { BIO_set_retry_write(blocked); });
  }

  // One call of OpenSSL reads on while records have no data, so a flood ends here.
  static int bio_read(BIO* bio, char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    TlsSession& session = session_of(bio);
    const ssize_t got = session.is_flooded()
                            ? -EPROTO
                            : session.wire_.wire_read({bytes, static_cast<size_t>(size)});
    if (got == 0) {
      BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    }
    return settle(bio, got, [](BIO* blocked) { BIO_set_retry_read(blocked); });
  }

  static BIO* make_bio(TlsSession& session) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "pdjob wire");
      BIO_meth_set_write(made, bio_write);
      BIO_meth_set_read(made, bio_read);
      BIO_meth_set_ctrl(made, bio_control);
      return made;
    }();
    BIO* bio = BIO_new(method);
    PDJOB_CHECK(bio != nullptr);
    BIO_set_data(bio, &session);
    BIO_set_init(bio, 1);
    return bio;
  }

  static TlsSession& session_of(BIO* bio) { return *static_cast<TlsSession*>(BIO_get_data(bio)); }

  // Called for each message and record of either direction. In TLS 1.3 the type of a record is
  // inside it, and comes by itself.
  static void count(int is_sent, int /*version*/, int kind, const void* bytes, size_t size,
                    SSL* stream, void* session) {
    const bool is_outer = kind == SSL3_RT_HEADER;
    if (is_sent != 0 || size == 0 || (!is_outer && kind != SSL3_RT_INNER_CONTENT_TYPE)) {
      return;
    }
    auto& counted = *static_cast<TlsSession*>(session);
    counted.shaken_ = counted.shaken_ || SSL_is_init_finished(stream) == 1;
    const bool is_data = *static_cast<const unsigned char*>(bytes) == SSL3_RT_APPLICATION_DATA;
    counted.idle_records_ += counted.shaken_ && !is_data ? 1 : 0;
  }
};

TlsContext::TlsContext() : context_(SSL_CTX_new(TLS_method()), SSL_CTX_free) {
  PDJOB_CHECK(context_ != nullptr);
  SSL_CTX* context = context_.get();
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                   SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
}

TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::open(const KeyOptions& options) {
  std::unique_ptr<TlsContext> made(new TlsContext());
  made->key_ = options.key;
  made->bytes_per_key_ = options.bytes_per_key;
  SSL_CTX* context = made->context_.get();
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kSuite) != 1) {
    return Error{ErrorCode::kUnsupported, "OpenSSL cannot do TLS 1.3 with AES-128-GCM"};
  }
  SSL_CTX_set_app_data(context, made.get());
  SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
  SSL_CTX_set_psk_use_session_callback(context, TlsCallbacks::use);
  SSL_CTX_set_psk_find_session_callback(context, TlsCallbacks::find);
  return made;
}

Result<std::unique_ptr<TlsContext>> TlsContext::open(const CertificateOptions& options) {
  std::unique_ptr<TlsContext> made(new TlsContext());
  SSL_CTX* context = made->context_.get();
  ERR_clear_error();
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context, kOlderSuites) != 1) {
    return Error{ErrorCode::kUnsupported, "OpenSSL cannot do TLS 1.2 with AES-GCM"};
  }
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
  // There may be thousands of idle connections.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  PDJOB_TRY(made->certificate_, use_certificate(context, options.certificate));
  PDJOB_TRY_STATUS(use_key(context, options.key));
  return made;
}

Result<CertificateFacts> read_certificate(const std::string& text) {
  ERR_clear_error();
  const Owned<SSL_CTX> context{SSL_CTX_new(TLS_method()), SSL_CTX_free};
  PDJOB_CHECK(context != nullptr);
  return use_certificate(context.get(), text);
}

// --- a session

TlsSession::TlsSession(const TlsContext& context, TlsWire& wire, TlsSide side)
    : wire_(wire),
      session_(SSL_new(context.context_.get()), SSL_free),
      bytes_per_key_(context.bytes_per_key_) {
  PDJOB_CHECK(session_ != nullptr);
  BIO* bio = TlsCallbacks::make_bio(*this);
  SSL_set_bio(session_.get(), bio, bio);
  SSL_set_msg_callback(session_.get(), TlsCallbacks::count);
  SSL_set_msg_callback_arg(session_.get(), this);
  if (side == TlsSide::kInitiator) {
    // An acceptor that answers with a certificate instead of the key is rejected: no authority is
    // trusted.
    SSL_set_verify(session_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(session_.get());
  } else {
    SSL_set_accept_state(session_.get());
  }
}

TlsSession::~TlsSession() = default;

int TlsSession::shake_hands() {
  if (trouble_ != Trouble::kNone) {
    return -EPROTO;
  }
  ERR_clear_error();
  const int outcome = SSL_do_handshake(session_.get());
  if (outcome != 1) {
    return fail(outcome);
  }
  opened_ = true;
  return 1;
}

ssize_t TlsSession::read(std::span<char> to) {
  size_t total = 0;
  while (total < to.size()) {
    if (trouble_ != Trouble::kNone) {
      return total > 0 ? static_cast<ssize_t>(total) : -EPROTO;
    }
    ERR_clear_error();
    size_t got = 0;
    const int outcome = SSL_read_ex(session_.get(), to.data() + total, to.size() - total, &got);
    if (outcome != 1) {
      const int answer = fail(outcome);  // The next call reports it again.
      return total > 0 ? static_cast<ssize_t>(total) : answer;
    }
    opened_ = true;
    bytes_read_ += got;
    total += got;
  }
  return static_cast<ssize_t>(total);
}

bool TlsSession::is_flooded() const {
  return idle_records_ > kIdleRecordsMax + bytes_read_ / kBytesPerIdleRecord;
}

bool TlsSession::peer_finished() const {
  return (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

size_t TlsSession::take(std::string_view bytes) {
  const size_t taken = std::min(bytes.size(), kRecordBytes - record_.size());
  record_.insert(record_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
  return taken;
}

int TlsSession::flush() {
  while (!record_.empty() && trouble_ == Trouble::kNone) {
    ERR_clear_error();
    size_t written = 0;
    const int outcome = SSL_write_ex(session_.get(), record_.data(), record_.size(), &written);
    if (outcome != 1) {
      const int answer = fail(outcome);
      return answer == 0 ? -EPIPE : answer;  // 0: the peer has closed.
    }
    record_.erase(record_.begin(), record_.begin() + static_cast<std::ptrdiff_t>(written));
    opened_ = true;
    bytes_of_key_ += written;
    if (bytes_of_key_ >= bytes_per_key_ && record_.empty() &&
        SSL_version(session_.get()) == TLS1_3_VERSION) {
      bytes_of_key_ = 0;
      PDJOB_CHECK(SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    }
  }
  // Of thousands of connections most are idle.
  const bool frugal = (SSL_get_mode(session_.get()) & SSL_MODE_RELEASE_BUFFERS) != 0;
  if (frugal && record_.empty() && record_.capacity() > kRecordBytesKept) {
    std::vector<char>().swap(record_);
  }
  return trouble_ == Trouble::kNone ? 0 : -EPROTO;
}

void TlsSession::finish() {
  PDJOB_CHECK(record_.empty());
  if (opened_ && trouble_ == Trouble::kNone) {
    ERR_clear_error();
    SSL_shutdown(session_.get());
  }
}

std::string TlsSession::channel() const {
  constexpr std::string_view kLabel = "EXPORTER-Channel-Binding";
  std::string bytes(32, '\0');
  PDJOB_CHECK(SSL_export_keying_material(session_.get(),
                                         reinterpret_cast<unsigned char*>(bytes.data()),
                                         bytes.size(), kLabel.data(), kLabel.size(), nullptr, 0,
                                         /*use_context=*/0) == 1);
  return bytes;
}

// Returns the result of a failed call.
int TlsSession::fail(int outcome) {
  const int system_error = errno;
  if (is_flooded()) {
    failure_ = "the peer sends too many records without data";
    trouble_ = Trouble::kCorrupt;
    return -EPROTO;
  }
  switch (SSL_get_error(session_.get(), outcome)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      return system_error != 0 ? -system_error : -ECONNRESET;
    default:
      break;
  }
  failure_ = reason();
  const int code = ERR_GET_REASON(ERR_peek_last_error());
  trouble_ = opened_ ? Trouble::kCorrupt
             : code == SSL_R_WRONG_VERSION_NUMBER || code == SSL_R_HTTP_REQUEST
                 ? Trouble::kNotTls
                 : Trouble::kHandshake;
  return -EPROTO;
}

}  // namespace pdjob::net
