// Checks that the pinned NVRTC makes row_sum_ptx.inc from row_sum_kernel.cu. It is built where
// `./dev nccl` has fetched NVRTC, which needs no GPU.
//
// PDJOB_WRITE_PTX=FILE row_sum_ptx_test    rewrites it
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "common/os/dynamic_library.h"

namespace pdjob {
namespace {

const char* const kCommitted =
#include "gpu/row_sum_ptx.inc"
    ;

struct Nvrtc {
  explicit Nvrtc(const DynamicLibrary& library) {
    EXPECT_TRUE(library.load("nvrtcCreateProgram", create_program));
    EXPECT_TRUE(library.load("nvrtcCompileProgram", compile_program));
    EXPECT_TRUE(library.load("nvrtcGetPTXSize", get_ptx_size));
    EXPECT_TRUE(library.load("nvrtcGetPTX", get_ptx));
  }
  int (*create_program)(void**, const char*, const char*, int, const char* const*,
                        const char* const*) = nullptr;
  int (*compile_program)(void*, int, const char* const*) = nullptr;
  int (*get_ptx_size)(void*, size_t*) = nullptr;
  int (*get_ptx)(void*, char*) = nullptr;
};

// Compiles for the oldest GPU that this NVRTC supports. A driver then compiles it for its own GPU.
std::string compile(const Nvrtc& nvrtc, const std::string& source) {
  void* program = nullptr;
  EXPECT_EQ(
      nvrtc.create_program(&program, source.c_str(), "row_sum_kernel.cu", 0, nullptr, nullptr), 0);
  const char* const options[] = {"--gpu-architecture=compute_75", "--std=c++17"};
  EXPECT_EQ(nvrtc.compile_program(program, 2, options), 0);
  size_t bytes = 1;
  EXPECT_EQ(nvrtc.get_ptx_size(program, &bytes), 0);
  std::string ptx(bytes, '\0');
  EXPECT_EQ(nvrtc.get_ptx(program, ptx.data()), 0);
  ptx.pop_back();
  return ptx;
}

TEST(RowSumPtx, IsMadeOfTheKernelsSource) {
  // The wheel's other libraries are found beside it.
  const auto builtins = DynamicLibrary::open(PDJOB_NVRTC_LIB "/libnvrtc-builtins.so.13.0");
  ASSERT_TRUE(builtins) << builtins.error().message;
  const auto library = DynamicLibrary::open(PDJOB_NVRTC_LIB "/libnvrtc.so.13");
  ASSERT_TRUE(library) << library.error().message;
  std::ifstream file(PDJOB_KERNEL);
  const std::string source((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  const std::string made = compile(Nvrtc(*library), source);
  if (const char* to = std::getenv("PDJOB_WRITE_PTX"); to != nullptr) {
    std::ofstream(to) << "R\"ptx(" << made << ")ptx\"\n";
    return;
  }
  EXPECT_EQ(made, kCommitted);
}

}  // namespace
}  // namespace pdjob
