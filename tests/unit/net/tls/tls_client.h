// TlsClient: a TLS client for tests, by OpenSSL itself, which is fed with bytes and gives bytes.
// And certificates that tests make.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/tls/server_tls.h"

namespace pdjob::net {

struct TestCertificate {
  std::string name = "localhost";
  int64_t seconds_left = 3600;
  int key_bits = 0;  // Of RSA. 0: a key on P-256.
};
// Writes NAME.pem and NAME.key into the folder.
CertificateFiles make_certificate(const std::string& folder, const TestCertificate& what = {});

class TlsClient {
 public:
  struct Options {
    int version_max = 0;      // 0x0302: TLS 1.1. 0: the newest.
    std::string protocols{};  // Of ALPN, as on the wire: "\x02h2".
  };
  TlsClient() : TlsClient(Options()) {}
  explicit TlsClient(const Options& options);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // Bytes from the server.
  void feed(std::string_view bytes);
  // Bytes for the server.
  std::string take();

  // False: not yet, or failure() has the reason.
  bool shake_hands();
  void write(std::string_view text);
  // Returns what has come since.
  std::string read();
  // The server has said that it sends no more.
  bool ended() const;
  void finish();  // Says the same.
  void change_keys();
  // False: OpenSSL itself refuses.
  bool renegotiate();

  const std::string& failure() const { return failure_; }
  std::string version() const;
  std::string protocol() const;  // Chosen by ALPN.
  std::string server_name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string failure_;
};

}  // namespace pdjob::net
