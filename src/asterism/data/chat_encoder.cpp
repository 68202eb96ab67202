#include "asterism/data/chat_encoder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "asterism/data/chat_markup.h"
#include "asterism/data/python_json.h"
#include "asterism/data/tool_call.h"

namespace asterism::data {
namespace {

/// Whether the assistant answers this turn. v4.1 takes a system message behind the first one for a user's.
bool opens_answer(const Turn& turn, size_t position, ChatVariant variant) {
  return turn.is_user() || (variant == ChatVariant::V4_1 && turn.role == Role::System && position > 0);
}

/// Position of the last turn that a user opened, -1 without one.
ptrdiff_t last_user(const std::vector<Turn>& turns, ChatVariant variant) {
  ptrdiff_t last = -1;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (opens_answer(turns[i], i, variant)) last = static_cast<ptrdiff_t>(i);
  }
  return last;
}

/// Earlier assistant messages lose their reasoning; earlier developer messages go, as do messages of unknown roles
/// (encoding-spec 4.3).
std::vector<Turn> without_old_reasoning(std::vector<Turn> turns, ChatVariant variant) {
  const size_t kept_from = static_cast<size_t>(std::max<ptrdiff_t>(last_user(turns, variant), 0));
  std::vector<Turn> kept;
  kept.reserve(turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    if (i < kept_from) {
      if (turns[i].role == Role::Developer || turns[i].role == Role::Unknown) continue;
      turns[i].reasoning = {};
    }
    kept.push_back(std::move(turns[i]));
  }
  return kept;
}

/// Writes turns one after the other and records what the texts are.
class Renderer {
 public:
  Renderer(const std::vector<Turn>& turns, const ChatOptions& options, bool drop)
      : turns_(turns),
        options_(options),
        tags_(dsml_tags(options.variant)),
        effort_(effort_text(options)),
        thinking_(options.thinking_mode == ThinkingMode::Thinking),
        drop_(drop),
        last_user_(last_user(turns, options.variant)) {}

  EncodedChat render(std::string_view bos, size_t first) {
    markup(bos);
    for (size_t i = first; i < turns_.size(); ++i) {
      if (i == 0) write_opening();
      write_body(i);
      write_transition(i);
    }
    out_.drops_reasoning = thinking_ && drop_;
    return std::move(out_);
  }

 private:
  void markup(std::string_view text) { out_.text.append(text); }

  void content(std::string_view text, std::optional<size_t> index) {
    if (text.empty()) return;
    out_.contents.push_back({{out_.text.size(), out_.text.size() + text.size()}, index});
    out_.text.append(text);
  }

  void write_opening() {
    const bool v4_1 = options_.variant == ChatVariant::V4_1;
    if (v4_1 && (thinking_ || turns_[0].role == Role::System)) markup(kSystemHeader);
    markup(effort_);
  }

  void write_body(size_t i) {
    const Turn& turn = turns_[i];
    switch (turn.role) {
      case Role::System:
        if (options_.variant == ChatVariant::V4_1 && i > 0) markup(kSystemHeader);
        if (!turn.blocks.empty()) write_block(turn.blocks[0]);
        return write_appendices(turn);
      case Role::Developer:
        return write_developer(turn);
      case Role::User:
        return write_user(turn);
      case Role::LatestReminder:
        markup(kReminderHeader);
        return write_block(turn.blocks[0]);
      case Role::Assistant:
        return write_assistant(i);
      case Role::SearchResults:
      case Role::Unknown:
        break;
    }
    turn_error(turn, "unknown_role",
               "the role is " + to_json(turn.message->get("role")) +
                   "; known are system, developer, user, latest_reminder, assistant and tool");
  }

  void write_block(const Block& block) {
    std::string_view separator;
    for (const TextPart& part : block.parts) {
      markup(std::exchange(separator, kBlankLine));
      part.from_row ? content(part.text, block.index) : markup(part.text);
    }
  }

  void write_developer(const Turn& turn) {
    const auto& parts = turn.blocks[0].parts;
    const auto empty = [](const TextPart& part) { return part.text.empty(); };
    if (parts.size() <= 1 && std::all_of(parts.begin(), parts.end(), empty)) {
      turn_error(turn, "empty_developer", "a developer message needs content");
    }
    markup(kUserHeader);
    write_block(turn.blocks[0]);
    write_appendices(turn);
  }

  void write_user(const Turn& turn) {
    markup(kUserHeader);
    std::string_view separator;
    for (const Block& block : turn.blocks) {
      markup(std::exchange(separator, kBlankLine));
      if (block.is_tool_result) markup("<tool_result>");
      write_block(block);
      if (block.is_tool_result) markup("</tool_result>");
    }
  }

  /// What a system or developer message tells besides its content.
  void write_appendices(const Turn& turn) {
    if (turn.tools != nullptr) write_tools(turn);
    if (turn.response_format == nullptr) return;
    markup(kBlankLine);
    markup(kResponseFormatIntroduction);
    content(to_json(*turn.response_format), turn.index);
  }

  void write_tools(const Turn& turn) {
    if (!turn.tools->is_array()) turn_error(turn, "bad_tool", "tools must be a list");
    const ToolsFrame frame = tools_frame(options_.variant);
    markup(kBlankLine);
    markup(frame.before);
    std::string_view separator;
    for (const JsonValue& tool : turn.tools->as_array()) {
      const JsonValue* function = tool.find("function");
      if (function == nullptr || !function->is_object()) {
        turn_error(turn, "bad_tool", "a tool must be {\"type\": \"function\", \"function\": {...}}");
      }
      markup(std::exchange(separator, "\n"));
      content(to_json(*function), turn.index);
    }
    markup(frame.after);
  }

  void write_assistant(size_t i) {
    const Turn& turn = turns_[i];
    const bool after_last_user = static_cast<ptrdiff_t>(i) > last_user_;
    const bool answers_task = i > 0 && turns_[i - 1].task != nullptr;
    const size_t begin = out_.text.size();
    AssistantBody body{*turn.index, begin, begin, after_last_user, {}};
    if (thinking_ && !answers_task && (!drop_ || after_last_user)) {
      content(turn.reasoning, turn.index);
      end_part(body, Component::Reasoning);
      if (!stays_in_reasoning(i)) markup(kThinkClose);
      end_part(body, Component::ThinkClose);
    }
    write_block(turn.blocks[0]);
    end_part(body, Component::Content);
    if (turn.tool_calls != nullptr) write_tool_calls(turn);
    end_part(body, Component::ToolCalls);
    if (turn.write_eos) markup(kEos);
    end_part(body, Component::Eos);
    out_.bodies.push_back(std::move(body));
  }

  /// Whether the reader of the text is to go on with the reasoning of the last message.
  bool stays_in_reasoning(size_t i) const {
    const Turn& turn = turns_[i];
    return options_.continue_reasoning && i + 1 == turns_.size() && !turn.write_eos && turn.tool_calls == nullptr &&
           std::all_of(turn.blocks[0].parts.begin(), turn.blocks[0].parts.end(),
                       [](const TextPart& part) { return part.text.empty(); });
  }

  /// What was written since the last part of the body.
  void end_part(AssistantBody& body, Component component) {
    const size_t end = out_.text.size();
    if (end == body.end) return;
    body.parts.push_back({component, body.end, end});
    body.end = end;
  }

  void write_tool_calls(const Turn& turn) {
    if (!turn.tool_calls->is_array()) turn_error(turn, "bad_tool_call", "tool_calls must be a list");
    markup("\n\n<");
    markup(tags_.calls);
    markup(">\n");
    for (const JsonValue& entry : turn.tool_calls->as_array()) {
      const ToolCall call = read_tool_call(entry, options_.variant, turn.index);
      if (options_.reject_unframeable) check_frameable(call, turn.index);
      write_tool_call(call, turn.index);
    }
    markup("</");
    markup(tags_.calls);
    markup(">");
  }

  void write_tool_call(const ToolCall& call, std::optional<size_t> index) {
    open_tag(tags_.invoke, call.name, index);
    markup(">\n");
    std::string_view separator;
    for (const CallParameter& parameter : call.parameters) {
      markup(std::exchange(separator, "\n"));
      open_tag(tags_.parameter, parameter.name, index);
      markup(parameter.is_text ? " string=\"true\">" : " string=\"false\">");
      content(parameter.value, index);
      markup("</");
      markup(tags_.parameter);
      markup(">");
    }
    markup("\n</");
    markup(tags_.invoke);
    markup(">\n");
  }

  void open_tag(std::string_view tag, std::string_view name, std::optional<size_t> index) {
    markup("<");
    markup(tag);
    markup(" name=\"");
    content(name, index);
    markup("\"");
  }

  /// The header of an answer belongs to the turn in front of it (encoding-spec 6.1).
  void write_transition(size_t i) {
    const Turn& turn = turns_[i];
    if (i + 1 < turns_.size()) {
      const Role next = turns_[i + 1].role;
      if (next != Role::Assistant && next != Role::LatestReminder) return;
    }
    if (turn.task != nullptr) return write_task(turn);
    if (!opens_answer(turn, i, options_.variant)) return;
    markup(kAssistantHeader);
    markup(thinking_ && (!drop_ || static_cast<ptrdiff_t>(i) >= last_user_) ? kThinkOpen : kThinkClose);
  }

  void write_task(const Turn& turn) {
    const std::string token = turn.task->is_string() ? task_token(turn.task->as_string()) : "";
    if (token.empty()) {
      turn_error(
          turn, "invalid_task",
          "the task is " + to_json(*turn.task) + "; known are action, query, authority, domain, title and read_url");
    }
    if (turn.task->as_string() == kActionTask) {
      markup(kAssistantHeader);
      markup(thinking_ ? kThinkOpen : kThinkClose);
    }
    markup(token);
  }

  const std::vector<Turn>& turns_;
  const ChatOptions& options_;
  const DsmlTags& tags_;
  const std::string effort_;
  const bool thinking_, drop_;
  const ptrdiff_t last_user_;
  EncodedChat out_;
};

}  // namespace

EncodedChat encode_chat(const Conversation& conversation, const ChatOptions& options, size_t num_messages) {
  auto [turns, num_context] = read_turns(conversation, options, num_messages);
  const bool drop = options.drop_thinking &&
                    std::none_of(turns.begin(), turns.end(), [](const Turn& turn) { return turn.tools != nullptr; });
  size_t num_written = turns.size() - num_context;
  if (drop && options.thinking_mode == ThinkingMode::Thinking) {
    // The official module filters the context alone and with what follows it, and takes the difference for the number
    // of messages to write. Both may drop different messages.
    const auto context_end = turns.begin() + static_cast<ptrdiff_t>(num_context);
    const size_t kept_context = without_old_reasoning({turns.begin(), context_end}, options.variant).size();
    turns = without_old_reasoning(std::move(turns), options.variant);
    num_written = turns.size() - std::min(kept_context, turns.size());
  }
  const std::string_view bos = options.add_default_bos_token && num_context == 0 ? kBos : "";
  return Renderer(turns, options, drop).render(bos, turns.size() - num_written);
}

}  // namespace asterism::data
