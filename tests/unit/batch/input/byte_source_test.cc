#include "batch/input/byte_source.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

namespace pdjob::batch {
namespace {

class ByteSourceTest : public testing::Test {
 protected:
  ByteSourceTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("pdjob-byte-source-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ByteSourceTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static Result<std::string> read_all(ByteSource& source, size_t piece = 1000) {
    std::string all;
    std::string buffer(piece, '\0');
    while (true) {
      PDJOB_TRY(const size_t got, source.read(buffer));
      if (got == 0) {
        return all;
      }
      all.append(buffer, 0, got);
    }
  }

  const std::filesystem::path folder_;
};

std::string long_text() {
  std::string text;
  for (int i = 0; i < 50'000; ++i) {
    text += "row " + std::to_string(i * 7919) + "\n";
  }
  return text;
}

std::string gzipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST_F(ByteSourceTest, UnpacksWhatWasPacked) {
  const std::string text = long_text();
  const std::string gz = write("a.gz", gzipped(text) + gzipped(text));
  const std::string zst = write("a.zst", zstandard(text) + zstandard(text));
  for (const auto& [path, packing] :
       {std::pair(gz, Packing::kGzip), std::pair(zst, Packing::kZstd)}) {
    const auto source = ByteSource::open(path, packing).value();
    EXPECT_EQ(read_all(*source).value(), text + text) << path;
  }
}

TEST_F(ByteSourceTest, SaysThatAPackedFileIsCutOff) {
  const std::string text = long_text();
  const std::string gz = gzipped(text);
  const std::string zst = zstandard(text);
  const auto cut = [&](const std::string& bytes, Packing packing) {
    const std::string path = write("cut", bytes.substr(0, bytes.size() / 2));
    return read_all(*ByteSource::open(path, packing).value());
  };
  EXPECT_EQ(cut(gz, Packing::kGzip).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(cut(zst, Packing::kZstd).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(cut(text, Packing::kGzip).error().code, ErrorCode::kCorrupt);
}

TEST_F(ByteSourceTest, ItsDigestIsOfTheFileAsItIs) {
  const auto digest = [](const std::string& path, Packing packing) {
    const auto source = ByteSource::open(path, packing).value();
    EXPECT_TRUE(read_all(*source));
    return source->digest();
  };
  const std::string gz = write("a.gz", gzipped("text"));
  EXPECT_EQ(digest(gz, Packing::kGzip), digest(gz, Packing::kNone));
  EXPECT_NE(digest(gz, Packing::kNone), digest(write("b", "text"), Packing::kNone));
}

TEST_F(ByteSourceTest, NoticesThatAFileShrinks) {
  const std::string path = write("a", long_text());
  const auto source = ByteSource::open(path, Packing::kNone).value();
  std::string buffer(1000, '\0');
  ASSERT_TRUE(source->read(buffer));
  std::filesystem::resize_file(path, 2000);
  const auto rest = read_all(*source);
  ASSERT_FALSE(rest);
  EXPECT_NE(rest.error().message.find("shrank while it was read"), std::string::npos);
}

TEST_F(ByteSourceTest, NoticesThatAFileGrows) {
  const std::string path = write("a", "one\n");
  const auto source = ByteSource::open(path, Packing::kNone).value();
  std::ofstream(path, std::ios::app) << "two\n";
  EXPECT_FALSE(read_all(*source));
}

TEST_F(ByteSourceTest, AFolderIsNoFile) {
  EXPECT_EQ(ByteSource::open(folder_, Packing::kNone).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(ByteSource::open(folder_ / "nothing", Packing::kNone));
}

}  // namespace
}  // namespace pdjob::batch
