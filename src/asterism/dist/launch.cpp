#include "asterism/dist/launch.h"

#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>

#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/dist/address.h"
#include "asterism/dist/environment.h"
#include "asterism/dist/rank_process.h"
#include "asterism/dist/roster.h"

namespace asterism::dist {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 130;
constexpr int kStopSignals[] = {SIGINT, SIGTERM};

/// The signals of this process as something to read, while this lives.
class SignalReader {
 public:
  SignalReader() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&wanted, signal);
    // Before the store starts its threads: they inherit the mask, so that no signal goes to them.
    ::pthread_sigmask(SIG_BLOCK, &wanted, &previous_);
    descriptor_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (descriptor_ < 0) run_error("cannot read signals: ", std::strerror(errno));
    // A run that stands still while its ranks go on would only look stopped.
    previous_stop_ = std::signal(SIGTSTP, SIG_IGN);
  }
  ~SignalReader() {
    read();
    ::close(descriptor_);
    std::signal(SIGTSTP, previous_stop_);
    ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int descriptor() const { return descriptor_; }

  std::vector<int> read() {
    std::vector<int> signals;
    signalfd_siginfo info;
    while (::read(descriptor_, &info, sizeof(info)) == sizeof(info))
      signals.push_back(static_cast<int>(info.ssi_signo));
    return signals;
  }

 private:
  sigset_t previous_;
  int descriptor_ = -1;
  void (*previous_stop_)(int) = nullptr;
};

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

bool is_set(const std::vector<std::string>& environment, const std::string& name) {
  return std::ranges::any_of(environment, [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

void put(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return entry.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
}

std::vector<std::string> environment_of_rank(const LaunchOptions& options, int rank, uint16_t port) {
  std::vector<std::string> environment = options.environment;
  put(environment, "RANK", std::to_string(rank));
  put(environment, "WORLD_SIZE", std::to_string(options.ranks));
  put(environment, "LOCAL_RANK", std::to_string(rank));
  put(environment, "MASTER_ADDR", "127.0.0.1");
  put(environment, "MASTER_PORT", std::to_string(port));
  put(environment, kLauncherVariable, text(::getpid(), "-", port));
  const int cores = options.cores > 0 ? options.cores : usable_cores();
  if (!is_set(environment, "OMP_NUM_THREADS")) {
    put(environment, "OMP_NUM_THREADS", std::to_string(std::max(1, cores / options.ranks)));
  }
  // Threads that wait at full speed take the cores of others when there are more of them than cores.
  if (options.ranks > cores && !is_set(environment, "OMP_WAIT_POLICY")) put(environment, "OMP_WAIT_POLICY", "passive");
  return environment;
}

bool is_stop(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code == kInterrupted || std::ranges::any_of(kStopSignals, [&](int signal) { return code == 128 + signal; });
}

std::string last_line(const std::string& output) {
  const size_t end = output.find_last_not_of("\n\r ");
  if (end == std::string::npos) return "";
  const size_t begin = output.find_last_of('\n', end);
  std::string line = output.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
  const std::string mark = "error: ";
  return line.starts_with(mark) ? line.substr(mark.size()) : line;
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options),
        store_(Store::serve(0, /*local=*/true, "")),
        run_(text(::getpid(), "-", store_->port())),
        roster_(Store::connect("127.0.0.1", store_->port(), run_, std::chrono::seconds(10)), options.ranks) {}

  int run() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      ranks_.emplace_back(ProcessStart{.program = options_.program,
                                       .arguments = options_.arguments,
                                       .environment = environment_of_rank(options_, rank, store_->port()),
                                       .keep_output = rank > 0});
    }
    while (any_runs()) {
      wait_for_news();
      for (const int signal : signals_.read()) pass_on(signal);
      for (int rank = 0; rank < options_.ranks; ++rank) {
        ranks_[rank].read_output();
        if (ranks_[rank].poll_end()) take_note_of_end(rank);
      }
      if (failed_at_) end_stragglers();
    }
    return first_failure_ ? report_failure() : exit_code_without_failure();
  }

 private:
  bool any_runs() const {
    return std::ranges::any_of(ranks_, [](const RankProcess& rank) { return rank.runs(); });
  }

  void wait_for_news() {
    std::vector<pollfd> news = {{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const RankProcess& rank : ranks_) {
      if (rank.output() >= 0) news.push_back({.fd = rank.output(), .events = POLLIN, .revents = 0});
    }
    // Not without end: a process that has ended before its signal was read would be waited for.
    constexpr int kMilliseconds = 200;
    ::poll(news.data(), news.size(), kMilliseconds);
  }

  void pass_on(int signal) {
    if (signal == SIGCHLD) return;
    if (signal == SIGINT || signal == SIGTERM) stopping_ = true;
    for (const RankProcess& rank : ranks_) rank.send(signal);
  }

  void take_note_of_end(int rank) {
    const int status = ranks_[rank].status();
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kInterrupted)) return;
    if (!failed_at_) failed_at_ = Clock::now();
    // What the rank itself has reported comes first.
    const Failure found = roster_.report({rank, text(describe(member(rank)), " ", how_it_ended(rank))});
    if (!first_failure_) first_failure_ = found;
  }

  Member member(int rank) const { return {rank, machine_name(), ranks_[rank].id(), ""}; }

  std::string how_it_ended(int rank) const {
    const int status = ranks_[rank].status();
    if (WIFSIGNALED(status)) {
      return text("was killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")",
                  WTERMSIG(status) == SIGKILL ? "; the kernel does so when memory runs out" : "");
    }
    const std::string line = last_line(ranks_[rank].kept_output());
    return text("ended with exit code ", WEXITSTATUS(status), line.empty() ? "" : ": " + line);
  }

  void end_stragglers() {
    const auto waited = Clock::now() - *failed_at_;
    if (waited >= options_.end_grace && !terminated_) {
      terminated_ = true;
      for (const RankProcess& rank : ranks_) rank.send(SIGTERM);
    }
    if (waited < options_.end_grace + options_.kill_grace) return;
    for (const RankProcess& rank : ranks_) rank.send(SIGKILL);
  }

  int exit_code_without_failure() const {
    return std::ranges::any_of(ranks_, [](const RankProcess& rank) { return rank.status() != 0; }) ? kInterrupted : 0;
  }

  int report_failure() {
    const int first = first_failure_->rank;
    const int status = ranks_[first].status();
    if (stopping_ && is_stop(status)) return kInterrupted;
    for (int rank = 1; rank < options_.ranks; ++rank) {
      if (rank != first && has_own_reason(rank)) show_output(rank);
    }
    if (first > 0) show_output(first);
    const bool said = first == 0 && WIFEXITED(status);  // rank 0 has told its own error
    if (!said) process_log().error(first_failure_->reason);
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
  }

  // Most of the others only repeat why the first one failed; with an error of rank 0 all who were not killed do.
  bool has_own_reason(int rank) const {
    const int status = ranks_[rank].status(), first = first_failure_->rank;
    if (status == 0 || (first == 0 && !WIFSIGNALED(status))) return false;
    const std::string output = ranks_[rank].kept_output();
    return output.find(first_failure_->reason) == std::string::npos &&
           last_line(output) != last_line(ranks_[first].kept_output());
  }

  void show_output(int rank) const {
    std::istringstream lines(ranks_[rank].kept_output());
    for (std::string line; std::getline(lines, line);) std::cerr << "rank " << rank << ": " << line << '\n';
    std::cerr << std::flush;
  }

  const LaunchOptions& options_;
  SignalReader signals_;
  std::shared_ptr<Store> store_;
  std::string run_;
  Roster roster_;
  std::vector<RankProcess> ranks_;
  std::optional<Failure> first_failure_;
  std::optional<Clock::time_point> failed_at_;
  bool stopping_ = false, terminated_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) {
  TORCH_CHECK(options.ranks >= 1 && !options.arguments.empty(), "[launch] expected ranks and arguments");
  return Launch(options).run();
}

}  // namespace asterism::dist
