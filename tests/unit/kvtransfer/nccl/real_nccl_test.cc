// The real libnccl and libcudart, as far as they work without a GPU. Data cannot move: NCCL has no
// CPU backend. It is built where `./dev nccl` has fetched them.
#include <cstdlib>

#include <gtest/gtest.h>

#include "gpu/gpu_api.h"
#include "kvtransfer/nccl/nccl_api.h"
#include "kvtransfer/nccl/nccl_device.h"

namespace pdjob::kvtransfer {
namespace {

class RealNccl : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Loopback is enough. The machine-wide service for tools is not needed.
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    ::setenv("NCCL_RAS_ENABLE", "0", 1);
  }
  void skip_with_gpu() const {
    if (const auto gpu = GpuApi::open(config_.cuda.library); gpu && gpu->has_device(0)) {
      GTEST_SKIP() << "there is a GPU";
    }
  }
  const NcclConfig config_{.library = PDJOB_NCCL_LIB "/libnccl.so.2",
                           .cuda = {.library = PDJOB_NCCL_LIB "/libcudart.so.13"}};
};

TEST_F(RealNccl, HasEveryFunctionAndAVersionThatWillDo) {
  const Result<NcclApi> nccl = NcclApi::open(config_.library);
  ASSERT_TRUE(nccl.has_value()) << nccl.error().message;
  EXPECT_EQ(nccl->version, NcclApi::kVersionMin);
  EXPECT_STREQ(nccl->get_error_string(kNcclSuccess), "no error");
  const Result<GpuApi> gpu = GpuApi::open(config_.cuda.library);
  ASSERT_TRUE(gpu.has_value()) << gpu.error().message;
  EXPECT_STREQ(gpu->get_error_string(kGpuNotReady), "device not ready");
}

TEST_F(RealNccl, UniqueIdsDiffer) {
  const Result<NcclApi> nccl = NcclApi::open(config_.library);
  ASSERT_TRUE(nccl.has_value());
  NcclUniqueId first{}, second{};
  ASSERT_EQ(nccl->get_unique_id(&first), kNcclSuccess);
  ASSERT_EQ(nccl->get_unique_id(&second), kNcclSuccess);
  EXPECT_NE(std::string(first.internal, sizeof first), std::string(second.internal, sizeof second));
}

TEST_F(RealNccl, WithoutAGpuNothingStartsAndTheReasonIsTold) {
  skip_with_gpu();
  const Status there = nccl_is_there(config_);
  ASSERT_FALSE(there.has_value());
  EXPECT_EQ(there.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(
      there.error().message.find("kvtransfer.transport is nccl, but there is no usable GPU: "), 0)
      << there.error().message;
}

TEST_F(RealNccl, WithoutAGpuACommunicatorIsAnErrorAndNoCrash) {
  skip_with_gpu();
  const Result<NcclApi> nccl = NcclApi::open(config_.library);
  ASSERT_TRUE(nccl.has_value());
  NcclUniqueId id{};
  ASSERT_EQ(nccl->get_unique_id(&id), kNcclSuccess);
  NcclComm* communicator = nullptr;
  NcclCommConfig config;
  config.blocking = 0;
  config.max_ctas = 4;
  EXPECT_EQ(nccl->comm_init_rank_config(&communicator, 2, id, 0, &config), kNcclUnhandledCudaError);
  EXPECT_FALSE(nccl->explain(kNcclUnhandledCudaError, communicator).empty());
}

}  // namespace
}  // namespace pdjob::kvtransfer
