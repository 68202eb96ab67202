#include "asterism/data/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "asterism/core/file.h"
#include "asterism/data/utf8.h"
#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

Tokenizer parse(const json& file) {
  return Tokenizer::parse(file.dump(), "small.json");
}

// Bytes, "th", "he", "the", " the", and two added tokens.
json sample_file() {
  json file = small_tokenizer({{"t", "h"}, {"h", "e"}, {"th", "e"}, {"Ġ", "the"}});
  file["added_tokens"] = {added_token(260, "<s>", {"special"}), added_token(261, "<｜User｜>")};
  return file;
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> fragments = {" the", "the", "<s>",  "<｜User｜>", "<｜",
                                                     "\n\n", "  ",  "中文", "é"};
  std::string text;
  for (size_t parts = random() % 20; parts > 0; --parts) {
    if (random() % 2 == 0) {
      text += fragments[random() % fragments.size()];
      continue;
    }
    char32_t character = random() % (random() % 2 == 0 ? 0x3000 : 0x110000);
    if (character >= 0xD800 && character <= 0xDFFF) character = U'x';
    append_utf8(text, character);
  }
  return text;
}

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const Encoding encoding = tokenizer.encode_with_ranges(text);
  EXPECT_EQ(tokenizer.decode(encoding.ids), text);
  EXPECT_EQ(tokenizer.encode(text), encoding.ids);
  ASSERT_EQ(encoding.ids.size(), encoding.ranges.size());
  size_t end = 0;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const ByteRange range = encoding.ranges[i];
    ASSERT_EQ(range.begin, end);
    ASSERT_EQ(tokenizer.decode_bytes({&encoding.ids[i], 1}), text.substr(range.begin, range.size()));
    end = range.end;
  }
  EXPECT_EQ(end, text.size());
}

TEST(Tokenizer, EncodesAddedTokensAndMergedText) {
  const Tokenizer tokenizer = parse(sample_file());
  EXPECT_EQ(tokenizer.encode("<s>the the<｜User｜>th"), (Ids{260, 258, 259, 261, 256}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  EXPECT_EQ(tokenizer.token_id("Ġthe"), 259);
  EXPECT_EQ(tokenizer.token_id("<s>"), 260);
  EXPECT_EQ(tokenizer.token_id(" the"), std::nullopt);
  EXPECT_EQ(tokenizer.token_text(259), "Ġthe");
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_FALSE(tokenizer.is_special(261));
  EXPECT_TRUE(tokenizer.has_token(0) && tokenizer.has_token(259) && tokenizer.has_token(261));
  EXPECT_FALSE(tokenizer.has_token(-1) || tokenizer.has_token(262));
}

TEST(Tokenizer, RangesTileTheTextAndDecodeGivesItBack) {
  const Tokenizer tokenizer = parse(sample_file());
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) expect_round_trip(tokenizer, random_text(random));
}

TEST(Tokenizer, PrefixSpaceHasNoPlaceInTheText) {
  json file = sample_file();
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  const Tokenizer tokenizer = parse(file);
  const Encoding encoding = tokenizer.encode_with_ranges("the<s>xa");
  EXPECT_EQ(encoding.ids, (Ids{259, 260, ' ', 'x', 'a'}));
  EXPECT_EQ(encoding.ranges, (std::vector<ByteRange>{{0, 3}, {3, 6}, {6, 6}, {6, 7}, {7, 8}}));
}

TEST(Tokenizer, TextRangesKeepMarkupFromBecomingTokens) {
  const Tokenizer tokenizer = parse(sample_file());
  const std::vector<ByteRange> user_text = {{3, 9}};
  const Encoding encoding = tokenizer.encode_with_ranges("<s>the<s><s>", user_text);
  EXPECT_EQ(encoding.ids, (Ids{260, 258, '<', 's', '>', 260}));
  const auto message = [&](std::vector<ByteRange> ranges) {
    return message_of([&] { tokenizer.encode_with_ranges("中中", ranges); });
  };
  EXPECT_NE(message({{0, 7}}), "");
  EXPECT_NE(message({{0, 2}}), "");
  EXPECT_NE(message({{3, 6}, {0, 3}}), "");
  EXPECT_EQ(message({{0, 3}, {3, 6}}), "");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = parse(sample_file());
  EXPECT_EQ(message_of([&] { tokenizer.encode("the\xE4\xB8"); }), "tokenizer: the text is not UTF-8 at byte 3 of 5");
}

TEST(Tokenizer, DecodeReplacesCutCharactersAndSkipsSpecialTokens) {
  const Tokenizer tokenizer = parse(sample_file());
  EXPECT_EQ(tokenizer.decode(Ids{0xE4, 0xB8, 'a'}), "\uFFFDa");
  EXPECT_EQ(tokenizer.decode_bytes(Ids{0xE4, 0xB8, 'a'}),
            "\xE4\xB8"
            "a");
  EXPECT_EQ(tokenizer.decode(Ids{0xE4, 0xB8, 0xAD}), "中");
  EXPECT_EQ(tokenizer.decode(Ids{260, 'a', 261}, /*skip_special=*/true), "a<｜User｜>");
  for (const int64_t id : {int64_t{-1}, int64_t{262}, int64_t{1} << 40}) {
    EXPECT_NE(message_of([&] { tokenizer.decode(Ids{id}); }).find("no token has id"), std::string::npos);
  }
}

TEST(Tokenizer, FingerprintFollowsTheContentNotTheLayout) {
  const json file = sample_file();
  json other = file;
  other["added_tokens"][0]["special"] = false;
  EXPECT_EQ(parse(file).fingerprint(), Tokenizer::parse(file.dump(4), "indented").fingerprint());
  EXPECT_NE(parse(file).fingerprint(), parse(other).fingerprint());
  EXPECT_EQ(parse(file).fingerprint().size(), 16u);
}

TEST(Tokenizer, ThreadsShareIt) {
  const Tokenizer tokenizer = parse(sample_file());
  std::mt19937 random(9);
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(random_text(random));
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text));
  std::vector<std::vector<Ids>> found(4);
  std::vector<std::thread> threads;
  for (auto& results : found) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) results.push_back(tokenizer.encode(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& results : found) EXPECT_EQ(results, expected);
}

TEST(Tokenizer, NamesTheDamageInAFile) {
  using Change = std::function<void(json&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"small.json: member \"model\" is missing", [](json& f) { f.erase("model"); }},
      {"small.json.model: type \"Unigram\" is not supported", [](json& f) { f["model"]["type"] = "Unigram"; }},
      {"small.json.normalizer: type \"NFC\" is not supported",
       [](json& f) {
         f["normalizer"] = {{"type", "NFC"}};
       }},
      {"small.json.normalizer.normalizers[0]: type \"NFC\" is not",
       [](json& f) {
         f["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array({{{"type", "NFC"}}})}};
       }},
      {"small.json: member \"pre_tokenizer\" is missing", [](json& f) { f.erase("pre_tokenizer"); }},
      {"small.json.pre_tokenizer: expected an object, found null", [](json& f) { f["pre_tokenizer"] = nullptr; }},
      {"small.json: member \"decoder\" is missing", [](json& f) { f.erase("decoder"); }},
      {"small.json.decoder: type \"Fuse\" is not supported",
       [](json& f) {
         f["decoder"] = {{"type", "Fuse"}};
       }},
      {"small.json.post_processor: type \"TemplateProcessing\" is not supported",
       [](json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {"small.json.truncation: is set",
       [](json& f) {
         f["truncation"] = {{"max_length", 8}};
       }},
      {"small.json.padding: is set",
       [](json& f) {
         f["padding"] = {{"length", 8}};
       }},
      {"small.json.added_tokens[2]: \"the\" has id 300, but id 258 in the model",
       [](json& f) { f["added_tokens"].push_back(added_token(300, "the")); }},
      {"small.json.added_tokens[2]: \"<x>\" has id 258, which is \"the\" in the model",
       [](json& f) { f["added_tokens"].push_back(added_token(258, "<x>")); }},
      {"small.json.added_tokens[2]: id 260 occurs twice",
       [](json& f) { f["added_tokens"].push_back(added_token(260, "<x>")); }}};
  for (const auto& [expected, change] : cases) {
    json file = sample_file();
    change(file);
    const std::string message = message_of([&] { parse(file); });
    EXPECT_NE(message.find(expected), std::string::npos) << expected << " in: " << message;
  }
}

TEST(Tokenizer, RefusesTruncatedFilesAtAnyLength) {
  const std::string whole = sample_file().dump();
  for (size_t length = 0; length < whole.size(); length += 97) {
    const std::string message =
        message_of([&] { Tokenizer::parse(std::string_view(whole).substr(0, length), "cut.json"); });
    EXPECT_EQ(message.rfind("cut.json: not valid JSON", 0), 0u) << length << ": " << message;
  }
}

TEST(Tokenizer, MissingFilesAreNamed) {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string message = message_of([&] { Tokenizer::load(folder / "no-such-tokenizer"); });
  EXPECT_NE(message.find("no-such-tokenizer: no such file"), std::string::npos) << message;
}

// What follows needs the DeepSeek-V4 vocabulary.
class V4Tokenizer : public testing::Test {
 protected:
  void SetUp() override {
    static const std::optional<std::filesystem::path> folder = v4_tokenizer_folder();
    if (!folder) {
      GTEST_SKIP()
          << "no DeepSeek-V4 tokenizer.json: set ASTERISM_TOKENIZER to its folder or put it in build/tokenizer";
    }
    static const Tokenizer loaded = Tokenizer::load(*folder);
    tokenizer_ = &loaded;
  }

  // The cases of a file of published or derived encodings; nothing when it is not there.
  static std::optional<json> cases(const std::string& name) {
    const auto path = std::filesystem::path(ASTERISM_SOURCE_DIR) / ".." / "shared" / "golden" / "encoding" / name;
    if (!std::filesystem::exists(path)) return std::nullopt;
    return json::parse(read_text(path));
  }

  const Tokenizer* tokenizer_ = nullptr;
};

TEST_F(V4Tokenizer, GivesTheIdsOfTheTextTable) {
  const auto table = cases("tokenizer_text_ids.json");
  if (!table) GTEST_SKIP() << "the table of texts and ids is not on this machine";
  ASSERT_GT(table->at("cases").size(), 200u);
  for (const json& entry : table->at("cases")) {
    const auto text = entry.at("text").get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text), entry.at("ids").get<Ids>()) << text;
    expect_round_trip(*tokenizer_, text);
  }
}

TEST_F(V4Tokenizer, KnowsTheSpecialTokens) {
  const auto table = cases("special_tokens_v4.json");
  if (!table) GTEST_SKIP() << "the table of special tokens is not on this machine";
  for (const json& entry : table->at("tokens")) {
    const auto id = entry.at(0).get<int64_t>();
    const auto text = entry.at(1).get<std::string>();
    EXPECT_EQ(tokenizer_->token_id(text), id) << text;
    EXPECT_EQ(tokenizer_->encode(text), Ids{id}) << text;
    EXPECT_EQ(tokenizer_->decode(Ids{id}), text);
  }
  EXPECT_EQ(tokenizer_->vocab_size(), 129280);
}

TEST_F(V4Tokenizer, GivesTheIdsOfRenderedChats) {
  size_t checked = 0;
  for (const char* name : {"official_v4.json", "derived_encode.json", "encode_recommended.json", "loss_mask.json",
                           "ms_swift_0731.json", "vllm_v4_vision_and_v41.json"}) {
    const auto table = cases(name);
    if (!table) continue;
    for (const json& entry : table->at("cases")) {
      if (!entry.contains("expected_ids") || !entry.contains("expected_text")) continue;
      EXPECT_EQ(tokenizer_->encode(entry.at("expected_text").get<std::string>()), entry.at("expected_ids").get<Ids>())
          << name << " " << entry.at("id");
      ++checked;
    }
  }
  if (checked == 0) GTEST_SKIP() << "the tables of rendered chats are not on this machine";
}

TEST_F(V4Tokenizer, SplitsBeforeItLooksAhead) {
  EXPECT_EQ(tokenizer_->encode("  5"), (Ids{262, 23}));
  EXPECT_EQ(tokenizer_->encode("The capital of France is"), (Ids{671, 6102, 294, 8760, 344}));
}

TEST_F(V4Tokenizer, SkipSpecialKeepsWhatAParserNeeds) {
  const Ids ids = tokenizer_->encode("<｜begin▁of▁sentence｜><think>a</think><｜DSML｜>b<｜end▁of▁sentence｜>");
  EXPECT_EQ(tokenizer_->decode(ids, /*skip_special=*/true), "<think>a</think><｜DSML｜>b");
}

TEST_F(V4Tokenizer, RandomTextComesBack) {
  std::mt19937 random(17);
  for (int i = 0; i < 3000; ++i) expect_round_trip(*tokenizer_, random_text(random));
}

TEST_F(V4Tokenizer, CompletesOnLongMonotonousTexts) {
  const auto repeated = [](std::string_view unit, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += unit;
    return text;
  };
  for (const char* unit : {"a", "=", " ", "\n", "<｜", "中", "1", "\u0301", "\x01", " \n", "\xF0\x9F\x98\x80"}) {
    expect_round_trip(*tokenizer_, repeated(unit, 200000));
  }
}

}  // namespace
}  // namespace asterism::data
