#include "net/tls/server_tls.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/net/tls/tls_client.h"

namespace pdjob::net {
namespace {

using Look = ServerTls::Look;
using File = CertificateFault::File;

class ServerTlsTest : public testing::Test {
 protected:
  ~ServerTlsTest() override { std::filesystem::remove_all(folder); }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // Puts `from` where `to` is, as a person would: the key stays secret.
  static void replace(const CertificateFiles& to, const CertificateFiles& from) {
    std::filesystem::rename(from.certificate, to.certificate);
    std::filesystem::rename(from.key, to.key);
  }

  const std::string folder = testing::TempDir() + "/server_tls_" + std::to_string(getpid());
  const CertificateFiles files = make_certificate(folder, {.name = "first"});
};

TEST_F(ServerTlsTest, ReadsWhoItIsAndUntilWhen) {
  EXPECT_FALSE(check_certificate(files));
  const auto tls = ServerTls::open(files);
  ASSERT_TRUE(tls) << tls.error().message;
  EXPECT_EQ((*tls)->certificate().subject, "CN=first");
  EXPECT_EQ((*tls)->certificate().not_after - (*tls)->certificate().not_before, 7200);
}

TEST_F(ServerTlsTest, SaysWhichFileIsAtFaultAndWhy) {
  const CertificateFiles other = make_certificate(folder, {.name = "other"});
  const CertificateFiles weak = make_certificate(folder, {.name = "weak", .key_bits = 1024});
  const std::string garbage = folder + "/garbage";
  write(garbage, "hello");
  std::filesystem::permissions(garbage, std::filesystem::perms::owner_read);
  const std::string locked = folder + "/locked";
  write(locked,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIC\n-----END ENCRYPTED PRIVATE KEY-----\n");
  std::filesystem::permissions(locked, std::filesystem::perms::owner_read);
  const struct {
    CertificateFiles files;
    File file;
    const char* why;
  } cases[] = {
      {{"", files.key}, File::kCertificate, "is missing"},
      {{folder + "/none", files.key}, File::kCertificate, "No such file"},
      {{garbage, files.key}, File::kCertificate, "no certificate in PEM form"},
      {{folder, files.key}, File::kCertificate, "Is a directory"},
      {{weak.certificate, weak.key}, File::kCertificate, "key too small"},
      {{files.certificate, garbage}, File::kKey, "no key in PEM form"},
      {{files.certificate, locked}, File::kKey, "without a passphrase"},
      {{files.certificate, other.key}, File::kKey, "not the key of the certificate"},
  };
  for (const auto& each : cases) {
    const auto fault = check_certificate(each.files);
    ASSERT_TRUE(fault) << each.why;
    EXPECT_EQ(fault->file, each.file) << each.why;
    EXPECT_NE(fault->why.find(each.why), std::string::npos) << fault->why;
    EXPECT_FALSE(ServerTls::open(each.files));
  }
}

TEST_F(ServerTlsTest, RefusesAKeyThatOthersMayRead) {
  std::filesystem::permissions(files.key, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const auto fault = check_certificate(files);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->file, File::kKey);
  EXPECT_NE(fault->why.find("run `chmod 600 "), std::string::npos) << fault->why;
}

TEST_F(ServerTlsTest, TakesNewFilesOnceTheyHaveStoodStillForOneLook) {
  const auto tls = *ServerTls::open(files);
  EXPECT_EQ(tls->look(0), Look::kSame);
  replace(files, make_certificate(folder, {.name = "second"}));
  EXPECT_EQ(tls->look(0), Look::kSame);
  EXPECT_EQ(tls->certificate().subject, "CN=first");
  EXPECT_EQ(tls->look(0), Look::kTaken);
  EXPECT_EQ(tls->certificate().subject, "CN=second");
  EXPECT_EQ(tls->look(0), Look::kSame);
}

TEST_F(ServerTlsTest, TakesNewFilesAtOnceWhenItIsTold) {
  const auto tls = *ServerTls::open(files);
  replace(files, make_certificate(folder, {.name = "second"}));
  EXPECT_EQ(tls->reload(0), Look::kTaken);
  EXPECT_EQ(tls->certificate().subject, "CN=second");
}

TEST_F(ServerTlsTest, KeepsTheOldCertificateWhenTheNewFilesCannotServe) {
  const auto tls = *ServerTls::open(files);
  const CertificateFiles second = make_certificate(folder, {.name = "second"});
  std::filesystem::rename(second.certificate, files.certificate);
  EXPECT_EQ(tls->look(0), Look::kSame);
  EXPECT_EQ(tls->look(0), Look::kRefused);
  EXPECT_NE(tls->refusal().find("not the key"), std::string::npos) << tls->refusal();
  EXPECT_EQ(tls->certificate().subject, "CN=first");
  EXPECT_EQ(tls->look(0), Look::kSame) << "the same fault is told once";
  // Its key follows.
  std::filesystem::rename(second.key, files.key);
  EXPECT_EQ(tls->look(0), Look::kSame);
  EXPECT_EQ(tls->look(0), Look::kTaken);
  EXPECT_EQ(tls->certificate().subject, "CN=second");
  EXPECT_EQ(tls->refusal(), "");
}

TEST_F(ServerTlsTest, RefusesANewCertificateThatHasExpired) {
  const auto tls = *ServerTls::open(files);
  replace(files, make_certificate(folder, {.name = "second"}));
  EXPECT_EQ(tls->reload(tls->certificate().not_after + 60), Look::kRefused);
  EXPECT_NE(tls->refusal().find("has expired"), std::string::npos) << tls->refusal();
  EXPECT_EQ(tls->certificate().subject, "CN=first");
}

}  // namespace
}  // namespace pdjob::net
