#include "asterism/cli/commands.h"

#include <gtest/gtest.h>

#include <set>

namespace asterism::cli {
namespace {

/// Every command that does work, with its words: "chat encode".
void collect(const Command& command, const std::string& parent, std::vector<std::pair<std::string, Command>>& found) {
  const std::string words = parent.empty() ? command.name : parent + " " + command.name;
  if (command.children.empty()) found.emplace_back(words, command);
  for (const Command& child : command.children) collect(child, words, found);
}

std::vector<std::pair<std::string, Command>> all_commands() {
  std::vector<std::pair<std::string, Command>> found;
  for (const Command& command : {init_command(), convert_command(), export_command(), train_command(), eval_command(),
                                 generate_command(), diff_command(), chat_command()})
    collect(command, "", found);
  return found;
}

TEST(Commands, HaveASummaryAnExampleOfThemselvesAndWork) {
  for (const auto& [words, command] : all_commands()) {
    EXPECT_FALSE(command.summary.empty()) << words;
    EXPECT_NE(command.example.find("asterism " + words), std::string::npos) << command.example;
    EXPECT_TRUE(command.run) << words;
  }
}

TEST(Commands, OptionsAreExplainedAndUnique) {
  for (const auto& [words, command] : all_commands()) {
    std::set<std::string> names;
    for (const Option& option : command.options) {
      EXPECT_TRUE(names.insert(option.name).second) << words << " " << option.name;
      EXPECT_FALSE(option.help.empty()) << words << " " << option.name;
    }
  }
}

}  // namespace
}  // namespace asterism::cli
