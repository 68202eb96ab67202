#include "asterism/cli/row_answers.h"

#include <fstream>
#include <iostream>

#include "asterism/cli/chat_rows.h"
#include "asterism/cli/command_line.h"
#include "asterism/core/error.h"
#include "asterism/data/rows.h"

namespace asterism::cli {

int answer_rows(const std::string& file, const std::function<nlohmann::ordered_json(data::JsonValue row)>& answer) {
  using data::ChatError;
  std::ifstream opened;
  if (file != "-") opened.open(file, std::ios::binary);
  std::istream& rows = file == "-" ? std::cin : opened;
  if (!rows) input_error(file, ": cannot open");
  bool first = true;
  for (std::string line; std::getline(rows, line); first = false) {
    if (first && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    nlohmann::ordered_json result;
    try {
      result = answer(data::parse_row({line, file, false}));
    } catch (const ChatError& error) {
      result = error_row(error);
    } catch (const InputError& error) {
      result = error_row(ChatError("invalid_row", std::nullopt, error.what()));
    }
    std::cout << result.dump() << std::endl;
    if (!std::cout) run_error("cannot write the result to standard output");
  }
  if (rows.bad() || (file != "-" && !rows.eof())) run_error(file, ": cannot be read to its end");
  return kDone;
}

}  // namespace asterism::cli
