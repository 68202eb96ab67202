#include "asterism/data/chat_markup.h"

#include <algorithm>
#include <iterator>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

constexpr std::string_view kAbsoluteEffort =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
constexpr std::string_view kBeyondEffort =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no assumption remains unchecked and no error remains undiscovered.\n\n";

constexpr std::string_view kTasks[] = {"action", "query", "authority", "domain", "title", "read_url"};

constexpr int kLowNumber = 50, kStandardNumber = 75, kMaxNumber = 100;

[[noreturn]] void effort_error(const std::string& explanation) {
  throw ChatError("invalid_reasoning_effort", std::nullopt, explanation);
}

int effort_number(const ReasoningEffort& effort) {
  if (effort.level == EffortLevel::Number) return effort.number;
  if (effort.level == EffortLevel::Low) return kLowNumber;
  return effort.level == EffortLevel::Max ? kMaxNumber : kStandardNumber;
}

std::string_view worded_effort(ChatVariant variant, EffortLevel level) {
  const bool preview = variant == ChatVariant::V4Preview;
  if (level == EffortLevel::Number) effort_error("reasoning_effort as a number needs the variant v4.1");
  if (preview && (level == EffortLevel::Low || level == EffortLevel::Empty)) {
    effort_error("v4-preview knows the reasoning efforts none, high and max; low needs v4-0731");
  }
  if (level == EffortLevel::Max) return preview ? kAbsoluteEffort : kBeyondEffort;
  return level == EffortLevel::High && !preview ? kAbsoluteEffort : "";
}

}  // namespace

const DsmlTags& dsml_tags(ChatVariant variant) {
  static const DsmlTags kTags{"｜DSML｜tool_calls", "｜DSML｜invoke", "｜DSML｜parameter"};
  static const DsmlTags kSpacedTags{"｜DSML｜ calls", "｜DSML｜ invoke", "｜DSML｜ parameter"};
  return variant == ChatVariant::V4_1 ? kSpacedTags : kTags;
}

std::string task_token(std::string_view task) {
  if (std::find(std::begin(kTasks), std::end(kTasks), task) == std::end(kTasks)) return "";
  return std::string("<｜").append(task).append("｜>");
}

ToolsFrame tools_frame(ChatVariant variant) {
  const auto& [calls, invoke, parameter] = dsml_tags(variant);
  return {
      text("## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by "
           "writing a \"<",
           calls, ">\" block like the following:\n\n<", calls, ">\n<", invoke, " name=\"$TOOL_NAME\">\n<", parameter,
           " name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</", parameter, ">\n...\n</", invoke,
           ">\n<", invoke, " name=\"$TOOL_NAME2\">\n...\n</", invoke, ">\n</", calls,
           ">\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, "
           "booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\nIf thinking_mode "
           "is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> "
           "BEFORE any tool calls or final response.\n\nOtherwise, output directly after </think> with tool calls or "
           "final response.\n\n### Available Tool Schemas\n\n"),
      "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"};
}

std::string effort_text(const ChatOptions& options) {
  const bool thinking = options.thinking_mode == ThinkingMode::Thinking;
  if (options.variant == ChatVariant::V4_1) {
    if (!thinking) return "";
    return text("Reasoning Effort: ", effort_number(options.reasoning_effort),
                " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
  }
  const std::string_view words = worded_effort(options.variant, options.reasoning_effort.level);
  return thinking ? std::string(words) : "";
}

}  // namespace asterism::data
