#include "asterism/dist/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "asterism/core/error.h"

namespace asterism::dist {

namespace {

constexpr size_t kKeptBytes = 64 * 1024;
constexpr int kNotStarted = 127;

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// In the child, between fork and exec, where only what is safe in a signal handler may be called.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment, pid_t parent,
                         int output, int failure) {
  // Whatever happens to the parent, no rank stays behind. It may have gone before this call.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  if (output >= 0) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
  }
  // A request to save that comes before the program listens to it is not to end the program; and a terminal that stops
  // what writes from the background is not to stop rank 0.
  ::signal(SIGUSR1, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGTSTP}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program, arguments, environment);
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = ::write(failure, &reason, sizeof(reason));
  ::_exit(kNotStarted);
}

void make_pipe(int (&ends)[2]) {
  if (::pipe2(ends, O_CLOEXEC) != 0) run_error("cannot make a pipe: ", std::strerror(errno));
}

}  // namespace

RankProcess::RankProcess(const ProcessStart& start) {
  const std::vector<char*> arguments = pointers(start.arguments), environment = pointers(start.environment);
  int failure[2] = {-1, -1}, output[2] = {-1, -1};
  make_pipe(failure);
  if (start.keep_output) make_pipe(output);
  const pid_t parent = ::getpid();
  id_ = ::fork();
  if (id_ == 0) become(start.program.c_str(), arguments.data(), environment.data(), parent, output[1], failure[1]);
  const int fork_failure = errno;
  ::close(failure[1]);
  if (output[1] >= 0) ::close(output[1]);
  output_ = output[0];
  int reason = id_ < 0 ? fork_failure : 0;
  // Ends with nothing when the program has been started: its copy of the descriptor is closed then.
  while (id_ > 0 && ::read(failure[0], &reason, sizeof(reason)) < 0 && errno == EINTR) {
  }
  ::close(failure[0]);
  if (reason == 0) {
    if (output_ >= 0) ::fcntl(output_, F_SETFL, O_NONBLOCK);
    return;
  }
  if (id_ > 0) ::waitpid(id_, nullptr, 0);
  id_ = -1;
  close_output();
  run_error("cannot start ", start.program, ": ", std::strerror(reason));
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      status_(std::exchange(other.status_, std::nullopt)),
      output_(std::exchange(other.output_, -1)),
      kept_(std::move(other.kept_)) {}

RankProcess::~RankProcess() {
  if (runs()) {
    ::kill(id_, SIGKILL);
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  close_output();
}

void RankProcess::send(int signal) const {
  if (runs()) ::kill(id_, signal);
}

bool RankProcess::poll_end() {
  if (!runs()) return false;
  int status = 0;
  if (::waitpid(id_, &status, WNOHANG) != id_) return false;
  status_ = status;
  read_output();
  close_output();  // a process that it has started may hold the other end open
  return true;
}

void RankProcess::read_output() {
  char buffer[4096];
  while (output_ >= 0) {
    const ssize_t count = ::read(output_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // nothing more for now
    if (count == 0) return close_output();
    kept_.append(buffer, static_cast<size_t>(count));
    if (kept_.size() > 2 * kKeptBytes) kept_.erase(0, kept_.size() - kKeptBytes);
  }
}

std::string RankProcess::kept_output() const {
  if (kept_.size() <= kKeptBytes) return kept_;
  const std::string last = kept_.substr(kept_.size() - kKeptBytes);
  const size_t line = last.find('\n');
  return line == std::string::npos ? last : last.substr(line + 1);
}

void RankProcess::close_output() {
  if (output_ >= 0) ::close(output_);
  output_ = -1;
}

}  // namespace asterism::dist
