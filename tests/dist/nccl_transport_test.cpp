#include "asterism/dist/nccl_transport.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::dist {
namespace {

TEST(NcclTransport, SaysWhatIsMissingWhereItIsNotBuilt) {
  if (has_nccl()) GTEST_SKIP() << "this build has NCCL";
  const auto world = std::make_shared<World>(Place{});
  const std::string error = testing::error_of<InputError>([&] { make_nccl_transport(world, 0); });
  EXPECT_NE(error.find("a PyTorch with CUDA and the header nccl.h"), std::string::npos) << error;
}

TEST(NcclTransport, IsOfOneRankWithoutAGroup) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  const auto transport = make_nccl_transport(std::make_shared<World>(Place{}), 0);
  const at::Tensor out = at::zeros({2, 3});
  transport->all_to_all(out, at::ones({2, 3}), {2}, {2}, "alone")->wait();
  EXPECT_EQ(out.sum().item<float>(), 6.0F);
}

}  // namespace
}  // namespace asterism::dist
