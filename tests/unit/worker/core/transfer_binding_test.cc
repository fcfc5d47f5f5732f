#include "worker/core/transfer_binding.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::worker {
namespace {

TEST(TransferBinding, BothEndsMakeTheSameNameOfTheSameRequest) {
  const std::vector<Token> prompt = {1, 2, 3};
  EXPECT_EQ(bound_transfer({1, 2}, prompt, "alice"), bound_transfer({1, 2}, prompt, "alice"));
}

TEST(TransferBinding, ATransferKeepsItsName) {
  const std::vector<Token> prompt = {1, 2, 3};
  EXPECT_EQ(bound_transfer({1, 2}, prompt, "alice").low, 2U);
}

TEST(TransferBinding, AnotherPromptTenantOrIdIsAnotherTransfer) {
  const std::vector<Token> prompt = {1, 2, 3}, same_length = {1, 2, 4}, shorter = {1, 2};
  const std::set<TransferId> bound = {
      bound_transfer({1, 2}, prompt, "alice"),  bound_transfer({1, 2}, prompt, "bob"),
      bound_transfer({1, 2}, prompt, ""),       bound_transfer({1, 2}, same_length, "alice"),
      bound_transfer({1, 2}, shorter, "alice"), bound_transfer({2, 1}, prompt, "alice"),
      bound_transfer({1, 3}, prompt, "alice")};
  EXPECT_EQ(bound.size(), 7U);
  // A token of one binding must not look like the tenant's bytes of another.
  EXPECT_NE(bound_transfer({1, 2}, std::vector<Token>{0x61}, ""),
            bound_transfer({1, 2}, std::vector<Token>{}, std::string_view("a\0\0\0", 4)));
}

}  // namespace
}  // namespace pdjob::worker
