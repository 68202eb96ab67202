#include "asterism/core/content_hash.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism {
namespace {

std::string hash_of(std::string_view content) {
  ContentHash hash;
  hash.update(content);
  return hash.hex();
}

TEST(ContentHash, IsTheHashThatXxhsumPrints) {
  // printf '' | xxhsum -H128 and printf abc | xxhsum -H128, of xxHash 0.8.1.
  EXPECT_EQ(hash_of(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_of("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(ContentHash, DoesNotDependOnHowTheContentIsCut) {
  std::string content;
  for (int i = 0; i < 5000; ++i) content += static_cast<char>(i * 7);
  for (const size_t cut : {0, 1, 240, 241, 1024, 4999}) {
    ContentHash hash;
    hash.update(content.substr(0, cut));
    hash.update(content.substr(cut));
    EXPECT_EQ(hash.hex(), hash_of(content)) << cut;
  }
}

TEST(ContentHash, ChangesWithEveryBit) {
  const std::string content(300, 'a');
  std::set<std::string> hashes{hash_of(content)};
  for (size_t bit = 0; bit < 8 * content.size(); ++bit) {
    std::string changed = content;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    hashes.insert(hash_of(changed));
  }
  EXPECT_EQ(hashes.size(), 8 * content.size() + 1);
}

TEST(ContentHash, OfAFile) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(content_hash_of_file(folder.write("a", "abc")), hash_of("abc"));
  EXPECT_EQ(content_hash_of_file(folder.write("empty", "")), hash_of(""));
  EXPECT_THROW(content_hash_of_file(folder / "absent"), InputError);
}

}  // namespace
}  // namespace asterism
