#include "tests/unit/net/tls/tls_client.h"

#include <filesystem>
#include <fstream>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "common/check.h"

namespace pdjob::net {

CertificateFiles make_certificate(const std::string& folder, const TestCertificate& what) {
  std::filesystem::create_directories(folder);
  EVP_PKEY* key =
      what.key_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(what.key_bits)) : EVP_EC_gen("P-256");
  X509* made = X509_new();
  PDJOB_CHECK(key != nullptr && made != nullptr);
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), what.seconds_left);
  X509_set_pubkey(made, key);
  X509_NAME* name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(what.name.c_str()), -1, -1, 0);
  X509_set_issuer_name(made, name);
  PDJOB_CHECK(X509_sign(made, key, EVP_sha256()) > 0);
  const CertificateFiles files{.certificate = folder + "/" + what.name + ".pem",
                               .key = folder + "/" + what.name + ".key"};
  BIO* out = BIO_new_file(files.certificate.c_str(), "w");
  PEM_write_bio_X509(out, made);
  BIO_free(out);
  out = BIO_new_file(files.key.c_str(), "w");
  PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  BIO_free(out);
  std::filesystem::permissions(
      files.key, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  X509_free(made);
  EVP_PKEY_free(key);
  return files;
}

struct TlsClient::State {
  SSL_CTX* context = nullptr;
  SSL* session = nullptr;
  BIO* in = nullptr;
  BIO* out = nullptr;
};

TlsClient::TlsClient(const Options& options) : state_(std::make_unique<State>()) {
  state_->context = SSL_CTX_new(TLS_client_method());
  // So that old versions can be offered at all.
  SSL_CTX_set_security_level(state_->context, 0);
  SSL_CTX_set_min_proto_version(state_->context, 0);
  SSL_CTX_set_max_proto_version(state_->context, options.version_max);
  if (!options.protocols.empty()) {
    SSL_CTX_set_alpn_protos(state_->context,
                            reinterpret_cast<const unsigned char*>(options.protocols.data()),
                            static_cast<unsigned>(options.protocols.size()));
  }
  state_->session = SSL_new(state_->context);
  state_->in = BIO_new(BIO_s_mem());
  state_->out = BIO_new(BIO_s_mem());
  BIO_set_mem_eof_return(state_->in, -1);
  SSL_set_bio(state_->session, state_->in, state_->out);
  SSL_set_connect_state(state_->session);
}

TlsClient::~TlsClient() {
  SSL_free(state_->session);
  SSL_CTX_free(state_->context);
}

void TlsClient::feed(std::string_view bytes) {
  BIO_write(state_->in, bytes.data(), static_cast<int>(bytes.size()));
}

std::string TlsClient::take() {
  char* begin = nullptr;
  const long size = BIO_get_mem_data(state_->out, &begin);
  const std::string bytes(begin, static_cast<size_t>(size));
  (void)BIO_reset(state_->out);
  return bytes;
}

bool TlsClient::shake_hands() {
  ERR_clear_error();
  const int outcome = SSL_do_handshake(state_->session);
  const int error = SSL_get_error(state_->session, outcome);
  if (outcome != 1 && error != SSL_ERROR_WANT_READ) {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    failure_ = reason == nullptr ? "unknown" : reason;
  }
  return outcome == 1;
}

void TlsClient::write(std::string_view text) {
  if (!text.empty()) {
    SSL_write(state_->session, text.data(), static_cast<int>(text.size()));
  }
}

std::string TlsClient::read() {
  std::string text;
  char buffer[16384];
  ERR_clear_error();
  int got = 0;
  while ((got = SSL_read(state_->session, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  if (SSL_get_error(state_->session, got) == SSL_ERROR_SSL) {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    failure_ = reason == nullptr ? "unknown" : reason;
  }
  return text;
}

bool TlsClient::ended() const {
  return (SSL_get_shutdown(state_->session) & SSL_RECEIVED_SHUTDOWN) != 0;
}

void TlsClient::finish() { SSL_shutdown(state_->session); }

void TlsClient::change_keys() {
  SSL_key_update(state_->session, SSL_KEY_UPDATE_REQUESTED);
  SSL_do_handshake(state_->session);
}

bool TlsClient::renegotiate() {
  return SSL_renegotiate(state_->session) == 1 && (SSL_do_handshake(state_->session), true);
}

std::string TlsClient::version() const { return SSL_get_version(state_->session); }

std::string TlsClient::protocol() const {
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(state_->session, &chosen, &size);
  return {reinterpret_cast<const char*>(chosen), size};
}

std::string TlsClient::server_name() const {
  X509* shown = SSL_get1_peer_certificate(state_->session);
  char name[128] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(shown), NID_commonName, name, sizeof name);
  X509_free(shown);
  return name;
}

}  // namespace pdjob::net
