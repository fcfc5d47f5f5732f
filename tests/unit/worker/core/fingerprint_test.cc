#include "worker/core/fingerprint.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "net/control/kv_fingerprint.h"

namespace pdjob::worker {
namespace {

engine::ModelFacts facts() {
  return {.name = "m", .digest = "d", .kv_type = "q8_0", .layers = 2, .cpu = "AVX2"};
}

TEST(Fingerprint, IsTheSameForTheSameFactsWhateverTheModelIsCalled) {
  engine::ModelFacts renamed = facts();
  renamed.name = "other";
  EXPECT_EQ(fingerprint_of(facts(), Weights::kFixed), fingerprint_of(renamed, Weights::kFixed));
  EXPECT_EQ(fingerprint_of(facts(), Weights::kFixed).size(), 25U);
}

TEST(Fingerprint, DiffersWithEachFactThatALinkCompares) {
  const std::string same = fingerprint_of(facts(), Weights::kFixed);
  for (const auto& change : std::vector<std::function<void(engine::ModelFacts&)>>{
           [](auto& one) { one.digest = "e"; }, [](auto& one) { one.kv_type = "f16"; },
           [](auto& one) { one.layers = 3; }, [](auto& one) { one.cpu = "AVX512"; },
           [](auto& one) { one.cpu = ""; }, [](auto& one) { one.library = "2"; },
           [](auto& one) { one.rope = "yarn"; }}) {
    engine::ModelFacts changed = facts();
    change(changed);
    EXPECT_NE(fingerprint_of(changed, Weights::kFixed), same);
  }
}

TEST(Fingerprint, OfAGpuFitsEachCpusButOneCpusNotAnothers) {
  const auto with_cpu = [](const std::string& cpu, uint32_t layers = 2) {
    engine::ModelFacts one = facts();
    one.cpu = cpu;
    one.layers = layers;
    return fingerprint_of(one, Weights::kFixed);
  };
  EXPECT_TRUE(net::same_kv(with_cpu(""), with_cpu("AVX2")));
  EXPECT_TRUE(net::same_kv(with_cpu("AVX512"), with_cpu("")));
  EXPECT_FALSE(net::same_kv(with_cpu("AVX512"), with_cpu("AVX2")));
  EXPECT_FALSE(net::same_kv(with_cpu("", 3), with_cpu("AVX2"))) << "another model";
  EXPECT_TRUE(net::same_kv("", "")) << "engines of other makes tell none";
}

TEST(Fingerprint, OfAJobThatUpdatesItsWeightsDoesNotChangeWithThem) {
  engine::ModelFacts updated = facts();
  updated.digest = "e";
  EXPECT_EQ(fingerprint_of(facts(), Weights::kUpdated), fingerprint_of(updated, Weights::kUpdated));
}

}  // namespace
}  // namespace pdjob::worker
