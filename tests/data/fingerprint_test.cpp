#include "asterism/data/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

namespace asterism::data {
namespace {

uint64_t of(const std::vector<std::string>& parts) {
  Fingerprint fingerprint;
  for (const std::string& part : parts) fingerprint.add(part);
  return fingerprint.value();
}

TEST(Fingerprint, DependsOnEveryByteAndOnWhereAPartEnds) {
  const std::set<uint64_t> values = {of({}),
                                     of({""}),
                                     of({"a"}),
                                     of({"a", ""}),
                                     of({"ab", "c"}),
                                     of({"a", "bc"}),
                                     of({"abc"}),
                                     of({"12345678"}),
                                     of({"12345679"}),
                                     of({"123456789"}),
                                     of({std::string(1, '\0')}),
                                     of({std::string(2, '\0')})};
  EXPECT_EQ(values.size(), 12u);
}

TEST(Fingerprint, IsTheSameOnEveryMachine) {
  Fingerprint fingerprint;
  fingerprint.add(uint64_t{1});
  EXPECT_EQ(fingerprint.text(), "910a2dec89025cc1");
}

}  // namespace
}  // namespace asterism::data
