#include "tests/dist/rank_runs.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace asterism::testing {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRankProgram = "rank_program";

template <typename Condition>
bool within_ten_seconds(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Processes that carry `mark` in their environment: all that a run has started, directly or not.
std::vector<std::string> processes_with(const std::string& mark) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content(entry.path() / "environ").find(mark) != std::string::npos) found.push_back(name);
  }
  return found;
}

}  // namespace

RankRun::RankRun(std::vector<std::string> settings) : settings_(std::move(settings)) {
  static int runs = 0;
  mark_ = "TEST_RUN=" + std::to_string(::getpid()) + "-" + std::to_string(++runs) + "-";
  settings_.push_back(mark_);
}

RankRun::~RankRun() {
  programs_.clear();
  std::vector<std::string> left;
  within_ten_seconds([&] { return (left = processes_with(mark_)).empty(); });
  for (const std::string& process : left) ADD_FAILURE() << "process " << process << " of the run is left";
}

Program& RankRun::start_program(const std::string& executable, const std::vector<std::string>& arguments) {
  programs_.push_back(std::make_unique<Program>(arguments, "", executable, settings_));
  return *programs_.back();
}

Program& RankRun::launch(int ranks, const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {"launch", std::to_string(ranks)};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return start_program(kRankProgram, arguments);
}

Program& RankRun::start(int rank, int size, uint16_t port, const std::vector<std::string>& words) {
  std::vector<std::string> settings = settings_;
  for (const auto& [name, value] : {std::pair("RANK", rank), {"WORLD_SIZE", size}, {"MASTER_PORT", port}}) {
    settings.push_back(std::string(name) + "=" + std::to_string(value));
  }
  settings.emplace_back("MASTER_ADDR=127.0.0.1");
  programs_.push_back(std::make_unique<Program>(words, "", kRankProgram, settings));
  return *programs_.back();
}

ProgramResult launch_ranks(int ranks, const std::vector<std::string>& words, std::vector<std::string> settings) {
  RankRun run(std::move(settings));
  return run.launch(ranks, words).result();
}

uint16_t free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool found = ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(listener);
  if (!found) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

pid_t announced(const TemporaryFolder& folder, const std::string& name) {
  if (!within_ten_seconds([&] { return fs::exists(folder / name); })) {
    throw std::runtime_error(name + " was not announced");
  }
  return static_cast<pid_t>(std::stol(content(folder / name)));
}

bool ends(pid_t process) {
  return within_ten_seconds([&] {
    const std::string status = content("/proc/" + std::to_string(process) + "/stat");
    return status.empty() || status.find(") Z") != std::string::npos;
  });
}

}  // namespace asterism::testing
