#include "launcher/ray/own_files.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pdjob::launcher {
namespace {

const OwnFile* find(const std::vector<OwnFile>& files, const std::string& start) {
  const auto found = std::ranges::find_if(
      files, [&](const OwnFile& file) { return file.name.starts_with(start); });
  return found == files.end() ? nullptr : &*found;
}

TEST(OwnFiles, AreTheProgramItsLibrariesAndTheirLoader) {
  const auto files = open_own_files();
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->front().name, "pdjob");
  std::error_code failed;
  EXPECT_TRUE(std::filesystem::equivalent("/proc/self/fd/" + std::to_string((*files)[0].file.get()),
                                          "/proc/self/exe", failed));
  for (const char* library : {"lib/libc.so.", "lib/libstdc++.so.", "lib/ld-linux"}) {
    const OwnFile* file = find(*files, library);
    ASSERT_NE(file, nullptr) << library;
    std::array<char, 4> start{};
    EXPECT_EQ(pread(file->file.get(), start.data(), start.size(), 0), 4);
    EXPECT_EQ(std::string(start.data(), start.size()),
              "\x7f"
              "ELF");
  }
  EXPECT_EQ(find(*files, "lib/linux-vdso"), nullptr) << "the kernel's own has no file";
}

}  // namespace
}  // namespace pdjob::launcher
