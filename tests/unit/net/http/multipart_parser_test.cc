#include "net/http/multipart_parser.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::net {
namespace {

struct Seen {
  MultipartParser::Part part;
  std::string bytes;
  bool ended = false;
};

class Recorder final : public MultipartParser::Handler {
 public:
  std::vector<Seen> parts;

  Status on_part(const MultipartParser::Part& part) override {
    EXPECT_TRUE(parts.empty() || parts.back().ended);
    parts.push_back({.part = part});
    return ok();
  }
  Status on_bytes(std::string_view bytes) override {
    EXPECT_FALSE(parts.back().ended);
    parts.back().bytes += bytes;
    return ok();
  }
  Status on_part_end() override {
    parts.back().ended = true;
    return ok();
  }
};

std::string part_text(const std::string& disposition, const std::string& bytes) {
  return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + bytes + "\r\n";
}

bool refused(const std::string& body) {
  MultipartParser parser("b");
  Recorder recorder;
  const Status fed = parser.feed(body, recorder);
  return !fed && fed.error().code == ErrorCode::kInvalidArgument;
}

TEST(MultipartParser, ReadsPartsHoweverTheBytesAreSplit) {
  // A file with what looks like the begin of a boundary in it.
  const std::string file = "line\r\n--\r\n--c\r\n-\r\r\n\r\n--";
  const std::string body = part_text("name=\"purpose\"", "batch") +
                           part_text("name=\"file\"; filename=\"a \\\"b\\\".jsonl\"", file) +
                           part_text("name=empty", "") + "--b--\r\nepilogue";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    MultipartParser parser("b");
    Recorder recorder;
    for (size_t at = 0; at < body.size(); at += piece) {
      ASSERT_TRUE(parser.feed(body.substr(at, piece), recorder)) << piece;
    }
    ASSERT_TRUE(parser.done()) << piece;
    ASSERT_EQ(recorder.parts.size(), 3U);
    EXPECT_EQ(recorder.parts[0].part.name, "purpose");
    EXPECT_FALSE(recorder.parts[0].part.is_file);
    EXPECT_EQ(recorder.parts[0].bytes, "batch");
    EXPECT_EQ(recorder.parts[1].part.filename, "a \"b\".jsonl");
    EXPECT_TRUE(recorder.parts[1].part.is_file);
    EXPECT_EQ(recorder.parts[1].bytes, file);
    EXPECT_EQ(recorder.parts[2].bytes, "");
    EXPECT_TRUE(recorder.parts[2].ended);
  }
}

TEST(MultipartParser, RefusesWhatIsNoForm) {
  EXPECT_TRUE(refused("preamble\r\n--b\r\n"));
  EXPECT_TRUE(refused("--bxy"));
  EXPECT_TRUE(refused("--b \r\n"));
  EXPECT_TRUE(refused("--b\r\n\r\n\r\n"));                          // No head at all.
  EXPECT_TRUE(refused("--b\r\nContent-Type: text/plain\r\n\r\n"));  // No disposition.
  EXPECT_TRUE(refused("--b\r\nContent-Disposition: attachment; name=\"x\"\r\n\r\n"));
  EXPECT_TRUE(refused("--b\r\nContent-Disposition: form-data\r\n\r\n"));  // No name.
  EXPECT_TRUE(refused("--b\r\nContent-Disposition: form-data; name=\"x\r\n\r\n"));
  EXPECT_TRUE(refused("--b\r\nContent-Disposition: form-data; name=x; name=y\r\n\r\n"));
  EXPECT_TRUE(refused("--b\r\nno header\r\n\r\n"));
  EXPECT_TRUE(refused(std::string("--b\r\nContent-Disposition: form-data; name=\"a") + '\0' +
                      "\"\r\n\r\n"));
  EXPECT_TRUE(
      refused("--b\r\nContent-Disposition: form-data; name=x\r\n"
              "Content-Transfer-Encoding: base64\r\n\r\n"));
}

TEST(MultipartParser, BoundsHeadsAndParts) {
  EXPECT_TRUE(refused("--b\r\nX: " + std::string(MultipartParser::kPartHeadBytesMax, 'a')));
  std::string many;
  for (size_t i = 0; i <= MultipartParser::kPartsMax; ++i) {
    many += part_text("name=x", "");
  }
  EXPECT_TRUE(refused(many + "--b--"));
}

TEST(MultipartParser, IsNotDoneBeforeTheClosingBoundary) {
  MultipartParser parser("b");
  Recorder recorder;
  ASSERT_TRUE(parser.feed(part_text("name=x", "y") + "--b-", recorder));
  EXPECT_FALSE(parser.done());
}

TEST(MultipartParser, TakesTheBoundaryFromTheContentType) {
  EXPECT_EQ(*boundary_of("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*boundary_of("Multipart/Form-Data ; charset=utf-8; boundary=\"a b\""), "a b");
  EXPECT_FALSE(boundary_of("multipart/form-data"));
  EXPECT_FALSE(boundary_of("multipart/mixed; boundary=abc"));
  EXPECT_FALSE(boundary_of("multipart/form-data; boundary=a; boundary=b"));
  EXPECT_FALSE(boundary_of("multipart/form-data; boundary=" + std::string(71, 'a')));
  EXPECT_FALSE(boundary_of("multipart/form-data; boundary=\"a\x01\""));
  EXPECT_FALSE(boundary_of(""));
}

constexpr const char* kFormType = "multipart/form-data; boundary=b";

std::string part(const std::string& disposition, const std::string& value) {
  return "--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + value + "\r\n";
}

TEST(FormField, IsFoundBehindALongFile) {
  const std::string form = part(R"(name="file"; filename="a.wav")", std::string(300'000, 'x')) +
                           part(R"(name="model")", "whisper") + "--b--\r\n";
  EXPECT_EQ(form_field(kFormType, form, "model").value(), "whisper");
  EXPECT_EQ(form_field(kFormType, form, "language").value(), std::nullopt);
}

TEST(FormField, IsTheFirstOneAndNoFile) {
  const std::string form = part(R"(name="model"; filename="m")", "file") +
                           part(R"(name="model")", "first") + part(R"(name="model")", "second") +
                           "--b--\r\n";
  EXPECT_EQ(form_field(kFormType, form, "model").value(), "first");
}

TEST(FormField, NeedsAWholeForm) {
  EXPECT_EQ(form_field(kFormType, part("name=x", "y"), "model").error().message,
            "the form is malformed: it lacks its end");
  EXPECT_EQ(form_field("text/plain", "x", "model").error().message,
            "the request must be multipart/form-data");
  const std::string form =
      part("name=model", std::string(kFormFieldBytesMax + 1, 'm')) + "--b--\r\n";
  EXPECT_EQ(form_field(kFormType, form, "model").error().message,
            "the form is malformed: its field model is too long");
}

}  // namespace
}  // namespace pdjob::net
