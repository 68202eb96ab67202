#include "asterism/dist/address.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::dist {
namespace {

TEST(Address, IsANumericOneOfThisMachine) {
  const std::string address = address_towards(machine_name());
  EXPECT_FALSE(address.empty());
  EXPECT_EQ(address.find_first_not_of("0123456789abcdef.:"), std::string::npos) << address;
}

TEST(Address, NamesAHostThatIsUnknown) {
  const std::string error = testing::error_of<RunError>([] { address_towards("no-such-host.invalid"); });
  EXPECT_NE(error.find("MASTER_ADDR: no-such-host.invalid"), std::string::npos) << error;
}

}  // namespace
}  // namespace asterism::dist
