#include "asterism/data/marker_search.h"

#include <gtest/gtest.h>

#include <array>

namespace asterism::data {
namespace {

constexpr std::array<std::string_view, 3> kMarkers = {"\n\n<call", "<call", "</end>"};

TEST(MarkerSearch, TheFirstToBeginWins) {
  const MarkerMatch blank_line = find_marker("ab\n\n<call</end>", kMarkers);
  EXPECT_EQ(blank_line.begin, 2u);
  EXPECT_EQ(blank_line.marker, 0u);
  const MarkerMatch bare = find_marker("ab\n<call", kMarkers);
  EXPECT_EQ(bare.begin, 3u);
  EXPECT_EQ(bare.marker, 1u);
}

TEST(MarkerSearch, HoldsBackWhatMayBecomeAMarkerAndNoMore) {
  for (const auto& [text, begin] : {std::pair<std::string_view, size_t>{"ab", 2},
                                    {"", 0},
                                    {"ab\n", 2},
                                    {"ab\n\n\n", 3},
                                    {"ab\n\n<cal", 2},
                                    {"a<ca<", 4},
                                    {"a</en", 1},
                                    {"a</ex", 5}}) {
    const MarkerMatch match = find_marker(text, kMarkers);
    EXPECT_EQ(match.begin, begin) << text;
    EXPECT_FALSE(match.marker) << text;
  }
}

TEST(MarkerSearch, WithoutMarkersAllIsText) {
  EXPECT_EQ(find_marker("a<call", {}).begin, 6u);
}

}  // namespace
}  // namespace asterism::data
