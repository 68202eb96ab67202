#include "asterism/data/row_review.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/data/chat_encoder.h"
#include "asterism/data/excerpt.h"
#include "asterism/data/python_json.h"
#include "asterism/data/tool_schema.h"

namespace asterism::data {
namespace {

constexpr size_t kShownName = 40;
constexpr std::string_view kSpecialBegin = "<｜";
constexpr std::string_view kThinkTags[] = {"<think>", "</think>"};

struct DeclaredTool {
  std::string_view name;
  const JsonValue* parameters;
};

bool has_role(const JsonValue& message, std::string_view role) {
  const JsonValue& value = message.get("role");
  return value.is_string() && value.as_string() == role;
}

void add_tools(const JsonValue& tools, std::vector<DeclaredTool>& declared) {
  if (!tools.is_array()) return;
  for (const JsonValue& tool : tools.as_array()) {
    const JsonValue& function = tool.get("function");
    const JsonValue& name = function.get("name");
    if (name.is_string()) declared.push_back({name.as_string(), &function.get("parameters")});
  }
}

bool has_reasoning_text(const JsonValue& message) {
  return is_truthy(message.get("reasoning_content")) || is_truthy(message.get("reasoning"));
}

/// Looks through one conversation.
class Review {
 public:
  explicit Review(const ChatRow& row) : row_(row), messages_(row.conversation.messages.as_array()) {
    add_tools(row.conversation.tools, declared_);
    if (row.conversation.context.is_array()) {
      for (const JsonValue& message : row.conversation.context.as_array()) add_tools(message.get("tools"), declared_);
    }
    for (const JsonValue& message : messages_) add_tools(message.get("tools"), declared_);
  }

  std::vector<RowWarning> warnings() && {
    size_t open_calls =
        row_.conversation.context.size() > 0 ? messages_.size() : 0;  // those of the context are unknown
    for (size_t i = 0; i < messages_.size(); ++i) {
      const JsonValue& message = messages_[i];
      if (has_role(message, "assistant")) {
        review_answer(message, i);
        open_calls = message.get("tool_calls").size();
      }
      if (!has_role(message, "tool")) continue;
      if (open_calls == 0) add("result_without_call", i, "is a tool result without a call in front of it");
      open_calls -= open_calls > 0;
    }
    review_reasoning();
    return std::move(warnings_);
  }

 private:
  void add(const char* code, size_t message, const std::string& explanation) {
    const auto same = [&](const RowWarning& warning) { return std::string_view(warning.code) == code; };
    if (std::any_of(warnings_.begin(), warnings_.end(), same)) return;
    warnings_.push_back({code, text("message ", message, " ", explanation)});
  }

  void review_answer(const JsonValue& message, size_t index) {
    const JsonValue& content = message.get("content");
    const JsonValue& calls = message.get("tool_calls");
    if (!is_truthy(content) && calls.size() == 0 && !has_reasoning_text(message)) {
      add("empty_answer", index, "is an answer that says nothing");
    }
    if (content.is_string()) review_text(content.as_string(), index);
    if (!calls.is_array()) return;
    for (const JsonValue& call : calls.as_array()) review_call(call, index);
  }

  void review_text(std::string_view content, size_t index) {
    for (const std::string_view tag : kThinkTags) {
      if (content.find(tag) == std::string_view::npos) continue;
      add("think_tags_in_content", index,
          text("has ", tag, " in its content; reasoning belongs into reasoning_content"));
    }
    const size_t special = content.find(kSpecialBegin);
    if (special == std::string_view::npos) return;
    add("special_token_in_content", index, "has " + readable_prefix(content.substr(special), kShownName));
  }

  void review_call(const JsonValue& call, size_t index) {
    const JsonValue& function = call.get("function");
    const JsonValue& name = function.get("name");
    if (!name.is_string()) return;
    const auto named = [&](const DeclaredTool& tool) { return tool.name == name.as_string(); };
    const auto tool = std::find_if(declared_.begin(), declared_.end(), named);
    const std::string called = readable_prefix(name.as_string(), kShownName);
    if (tool == declared_.end()) {
      add("undeclared_tool", index, text("calls ", called, ", which is not among the tools"));
    }
    JsonValue parsed;
    const JsonValue* arguments = &function.get("arguments");
    if (arguments->is_string() && !parse_json(arguments->as_string(), parsed)) arguments = &parsed;
    if (arguments->is_null() && !function.get("arguments").is_string()) {  // no arguments
      parsed = JsonValue::object();
      arguments = &parsed;
    }
    if (!arguments->is_object()) {
      add("arguments_not_json", index, text("calls ", called, " with arguments that are no JSON object"));
      return;
    }
    if (tool == declared_.end()) return;
    const std::string mismatch = schema_mismatch(*arguments, *tool->parameters, "arguments");
    if (!mismatch.empty()) add("arguments_mismatch", index, text("calls ", called, ": ", mismatch));
  }

  void review_reasoning() {
    const auto reasons = [](const JsonValue& message) {
      return has_role(message, "assistant") && has_reasoning_text(message);
    };
    const auto total = static_cast<size_t>(std::count_if(messages_.begin(), messages_.end(), reasons));
    const bool thinking = row_.chat.thinking_mode == ThinkingMode::Thinking;
    if (total == 0 || (thinking && row_.loss.history == History::Split)) return;
    const size_t written = thinking ? reasoning_written() : 0;
    if (written >= total) return;
    warnings_.push_back({"reasoning_dropped",
                         text("the reasoning of ", total - written, " of ", total, " answers is not written: ",
                              thinking ? "drop_thinking leaves that of earlier turns out (history: split trains it)"
                                       : "thinking_mode is chat")});
  }

  size_t reasoning_written() const {
    size_t count = 0;
    for (const AssistantBody& body : encode_chat(row_.conversation, row_.chat).bodies) {
      const auto is_reasoning = [](const BodyPart& part) { return part.component == Component::Reasoning; };
      count += std::any_of(body.parts.begin(), body.parts.end(), is_reasoning);
    }
    return count;
  }

  const ChatRow& row_;
  const JsonValue::Array& messages_;
  std::vector<DeclaredTool> declared_;
  std::vector<RowWarning> warnings_;
};

}  // namespace

std::vector<RowWarning> review_conversation(const ChatRow& row) {
  return Review(row).warnings();
}

}  // namespace asterism::data
