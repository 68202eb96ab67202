#include "tests/support/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace asterism::testing {

namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, const std::string& input, const std::string& executable,
                 const std::vector<std::string>& settings) {
  const std::string in = folder_.write("in", input), out = folder_.write("out", ""), err = folder_.write("err", "");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY, 0);
  std::vector<std::string> words = {ASTERISM_BINARY_DIR "/" + executable};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables = settings;  // the first of two values of one name counts
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  const int failure = ::posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw std::runtime_error("cannot start " + words[0]);
}

Program::~Program() {
  if (!status_ && !wait(WNOHANG)) {
    send(SIGKILL);
    wait(0);
  }
}

void Program::send(int signal) const {
  if (!status_) ::kill(process_, signal);
}

bool Program::wait(int flags) {
  int status = 0;
  const pid_t ended = ::waitpid(process_, &status, flags);
  if (ended == process_) status_ = status;
  return ended != 0;
}

bool Program::runs() {
  return !status_ && !wait(WNOHANG);
}

bool Program::wait_until(const std::function<bool()>& ready) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!ready()) {
    if (!runs()) return false;
    if (std::chrono::steady_clock::now() > deadline) send(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

ProgramResult Program::result() {
  if (!status_) wait(0);
  if (!status_) throw std::runtime_error("lost the program");
  ProgramResult result;
  result.exit_code = WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_);
  result.out = content_of(folder_ / "out");
  result.err = content_of(folder_ / "err");
  return result;
}

std::string ProgramResult::last_error_line() const {
  const size_t end = err.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t begin = err.find_last_of('\n', end);
  return err.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

ProgramResult run_asterism(const std::vector<std::string>& arguments, const std::string& input) {
  return Program(arguments, input).result();
}

ProgramResult interrupt_asterism(const std::vector<std::string>& arguments, int signal,
                                 const std::function<bool()>& ready) {
  Program program(arguments);
  if (program.wait_until(ready)) program.send(signal);
  return program.result();
}

Kills kill_while_it_writes(const std::vector<std::string>& arguments, const std::filesystem::path& begun,
                           const std::filesystem::path& result) {
  namespace fs = std::filesystem;
  const auto count = [&] {
    size_t files = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(begun, none)) files += entry.is_regular_file(none) ? 1 : 0;
    return files;
  };
  Kills kills;
  kills.rounds = std::getenv("ASTERISM_LONG") != nullptr ? 50 : 3;
  for (int round = 0; round < kills.rounds; ++round) {
    const size_t before = count();
    const ProgramResult ended = interrupt_asterism(arguments, SIGKILL, [&] { return count() > before + 2; });
    kills.killed += ended.exit_code == 128 + SIGKILL ? 1 : 0;
    if (ended.exit_code == 0) break;
    EXPECT_FALSE(fs::exists(result));
  }
  return kills;
}

}  // namespace asterism::testing
