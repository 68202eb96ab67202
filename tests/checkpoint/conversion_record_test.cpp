#include "asterism/checkpoint/conversion_record.h"

#include <gtest/gtest.h>

#include <functional>

#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::error_of;
using asterism::testing::TemporaryFolder;
using Ordered = nlohmann::ordered_json;

const Ordered kRequest = {{"source", "a"}, {"experts", "FP4"}};

/// A run that completes the file "x" of 3 bytes and then ends.
void begin_conversion(const TemporaryFolder& folder) {
  ConversionRecord record(folder / "out", kRequest);
  folder.write("out.incomplete/x", "abc");
  record.add("x", {3, 77, Ordered::array()});
}

TEST(ConversionRecord, AKilledRunIsContinued) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  ConversionRecord record(folder / "out", kRequest);
  EXPECT_FALSE(record.is_complete());
  ASSERT_TRUE(record.files().contains("x"));
  EXPECT_EQ(record.files().at("x").checksum, 77U);
  record.publish();
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"out"}));
  EXPECT_EQ(converted_files(folder / "out").at("x").bytes, 3U);
  EXPECT_FALSE(fs::exists(folder / "out" / kConversionJournal));
}

TEST(ConversionRecord, ALineThatWasCutOffDoesNotCount) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  const fs::path journal = folder / "out.incomplete" / kConversionJournal;
  const std::string whole = read_text(journal);
  fs::resize_file(journal, whole.size() - 5);
  {
    const ConversionRecord record(folder / "out", kRequest);
    EXPECT_TRUE(record.files().empty());
  }
  fs::resize_file(journal, 4);  // the request itself
  ConversionRecord record(folder / "out", kRequest);
  EXPECT_TRUE(record.files().empty());
  record.add("y", {0, 0, Ordered::array()});
  EXPECT_EQ(read_text(journal).find('{', 1), read_text(journal).find("{\"source"));
}

TEST(ConversionRecord, FilesThatAreGoneOrCutAreWrittenAgain) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  folder.write("out.incomplete/x", "ab");
  EXPECT_TRUE(ConversionRecord(folder / "out", kRequest).files().empty());
  fs::remove(folder / "out.incomplete" / "x");
  EXPECT_TRUE(ConversionRecord(folder / "out", kRequest).files().empty());
}

TEST(ConversionRecord, AnotherRequestIsRefusedWithTheDifference) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  Ordered other = kRequest;
  other["experts"] = "FP8";
  const std::string message = error_of<InputError>([&] { ConversionRecord(folder / "out", other); });
  EXPECT_NE(message.find("belongs to another conversion (experts was \"FP4\" and is \"FP8\")"), std::string::npos)
      << message;
  other = kRequest;
  other.erase("experts");
  EXPECT_NE(error_of<InputError>([&] {
              ConversionRecord(folder / "out", other);
            }).find("(experts was \"FP4\" and is nothing)"),
            std::string::npos);
  ConversionRecord(folder / "out", kRequest).publish();
  EXPECT_NE(error_of<InputError>([&] { ConversionRecord(folder / "out", other); }).find("exists already"),
            std::string::npos);
  EXPECT_TRUE(ConversionRecord(folder / "out", kRequest).is_complete());
}

TEST(ConversionRecord, AFolderOfSomebodyElseIsLeftAlone) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  folder.write("out/mine", "text");
  EXPECT_NE(error_of<InputError>([&] { ConversionRecord(folder / "out", kRequest); }).find("exists already"),
            std::string::npos);
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"out"}));
}

TEST(ConversionRecord, ADamagedRecordIsRefusedByName) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  ConversionRecord(folder / "out", kRequest).publish();
  const Ordered good = Ordered::parse(read_text(folder / "out" / "conversion.json"));
  const auto without = [&](const char* key) {
    Ordered json = good;
    json.erase(key);
    return json;
  };
  const auto with_name = [&](const std::string& name) {
    Ordered json = good;
    json["files"][0]["file"] = name;
    return json;
  };
  for (const Ordered& bad : {Ordered(3), Ordered::array(), without("request"), without("files"), without("version"),
                             with_name("../x"), with_name("/etc/passwd"), with_name("")}) {
    folder.write("out/conversion.json", bad.dump());
    for (const auto& read : std::vector<std::function<void()>>{[&] { ConversionRecord(folder / "out", kRequest); },
                                                               [&] { converted_files(folder / "out"); }}) {
      const std::string message = error_of<InputError>(read);
      EXPECT_NE(message.find("conversion.json: not the record of a conversion"), std::string::npos) << message;
    }
  }
}

TEST(ConversionRecord, TwoProcessesCannotShareAFolder) {
  const TemporaryFolder folder;
  const ConversionRecord first(folder / "out", kRequest);
  EXPECT_NE(error_of<InputError>([&] { ConversionRecord(folder / "out", kRequest); }).find("another process"),
            std::string::npos);
}

TEST(ConversionRecord, AKillBetweenRecordAndNameIsRepaired) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  ConversionRecord(folder / "out", kRequest).publish();
  fs::rename(folder / "out", folder / "out.incomplete");  // as if the renaming had not happened
  ConversionRecord record(folder / "out", kRequest);
  EXPECT_TRUE(record.files().contains("x"));
  record.publish();
  EXPECT_EQ(converted_files(folder / "out").size(), 1U);
}

TEST(ConversionRecord, LoadersRefuseTheUnfinishedFolder) {
  const TemporaryFolder folder;
  begin_conversion(folder);
  const std::string message = error_of<InputError>([&] { Source::open(folder / "out.incomplete"); });
  EXPECT_NE(message.find("a conversion that was not finished"), std::string::npos) << message;
  EXPECT_NE(error_of<InputError>([&] { converted_files(folder / "out.incomplete"); }).find("conversion.json"),
            std::string::npos);
}

}  // namespace
}  // namespace asterism::checkpoint
