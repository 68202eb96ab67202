// What the tests run as ranks. rank_program launch N [--end-grace MS] CASE... is the launcher; rank_program CASE... is
// a rank, placed by its environment. Cases fail by an exception, with the exit codes of the command line.
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <thread>

#include <unistd.h>

#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/dist/checking_transport.h"
#include "asterism/dist/comm.h"
#include "asterism/dist/gloo_transport.h"
#include "asterism/dist/launch.h"
#include "asterism/dist/world.h"

extern char** environ;

namespace {

using namespace asterism;
using namespace asterism::dist;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;

#define EXPECT_TRUE(condition) \
  if (!(condition)) run_error("does not hold: ", #condition, " (line ", __LINE__, ")")

volatile std::sig_atomic_t stops = 0, saves = 0;

std::optional<std::string> look_up(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::chrono::milliseconds milliseconds_of(const char* name, std::chrono::milliseconds otherwise) {
  const auto value = look_up(name);
  return value ? std::chrono::milliseconds(std::stoll(*value)) : otherwise;
}

std::shared_ptr<World> join() {
  WorldOptions options;
  options.rendezvous_timeout = milliseconds_of("TEST_RENDEZVOUS", 60s);
  options.watch.timeout = milliseconds_of("TEST_TIMEOUT", 60s);
  options.watch.exit_grace = milliseconds_of("TEST_EXIT_GRACE", options.watch.exit_grace);
  return std::make_shared<World>(find_place(look_up), options);
}

at::Tensor numbers(int64_t count, int64_t first, at::ScalarType type) {
  const at::Tensor values = at::arange(first, first + count, at::kLong).remainder(type == at::kBool ? 2 : 13);
  return values.to(at::kFloat).to(type);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& x) { return x.contiguous().view(-1).view(at::kByte); };
  return a.numel() == b.numel() && (a.numel() == 0 || at::equal(bytes(a), bytes(b)));
}

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kBFloat16, at::kLong, at::kBool, at::kFloat8_e4m3fn};

void check_all_gather(Transport& transport) {
  const int n = transport.size(), r = transport.rank();
  for (const at::ScalarType type : kTypes) {
    for (const int64_t count : {0, 1, 7, 1000, 100003}) {
      const at::Tensor out = at::zeros({n * count}, at::kFloat).to(type);
      transport.all_gather(out, numbers(count, r, type), "gather")->wait();
      for (int q = 0; q < n; ++q) EXPECT_TRUE(same_bytes(out.narrow(0, q * count, count), numbers(count, q, type)));
    }
  }
  // The caller's part of output as input.
  const at::Tensor out = at::zeros({n, 5}, at::kLong);
  out[r].fill_(r + 1);
  transport.all_gather(out, out[r], "in place")->wait();
  for (int q = 0; q < n; ++q) EXPECT_TRUE(out[q].eq(q + 1).all().item<bool>());
}

void check_all_to_all(Transport& transport) {
  const int n = transport.size(), r = transport.rank();
  // Rank a sends (3a + 2b) mod 5 rows to rank b; rank 1 nothing to anybody.
  const auto rows = [](int a, int b) -> int64_t { return a == 1 ? 0 : (3 * a + 2 * b) % 5; };
  for (const at::ScalarType type : kTypes) {
    std::vector<int64_t> sent, received;
    std::vector<at::Tensor> input, expected;
    for (int q = 0; q < n; ++q) {
      sent.push_back(rows(r, q));
      received.push_back(rows(q, r));
      input.push_back(numbers(sent.back() * 3, 10 * r + q, type).view({-1, 3}));
      expected.push_back(numbers(received.back() * 3, 10 * q + r, type).view({-1, 3}));
    }
    const auto join_rows = [&](const std::vector<at::Tensor>& parts) {
      std::vector<at::Tensor> bytes;
      for (const at::Tensor& part : parts) bytes.push_back(part.reshape({-1}).view(at::kByte));
      return at::cat(bytes).view(type).view({-1, 3});
    };
    const at::Tensor in = join_rows(input), want = join_rows(expected), out = at::zeros_like(want, at::kFloat).to(type);
    transport.all_to_all(out, in, received, sent, "exchange")->wait();
    EXPECT_TRUE(same_bytes(out, want));
  }
  const at::Tensor none = at::zeros({0, 4});
  const std::vector<int64_t> zeros(n, 0);
  transport.all_to_all(none, none, zeros, zeros, "nothing")->wait();
}

void check_broadcast(Transport& transport) {
  for (int root = 0; root < transport.size(); ++root) {
    for (const int64_t count : {0, 1, 70001}) {
      const bool mine = transport.rank() == root;
      const at::Tensor data = mine ? numbers(count, root, at::kBFloat16) : at::zeros({count}, at::kBFloat16);
      transport.broadcast(data, root, "broadcast")->wait();
      EXPECT_TRUE(same_bytes(data, numbers(count, root, at::kBFloat16)));
    }
  }
}

void check_many_in_flight(Transport& transport) {
  std::vector<at::Tensor> outputs;
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < 20; ++i) {
    outputs.push_back(at::zeros({transport.size() * 1000}));
    works.push_back(transport.all_gather(outputs.back(), at::full({1000}, 100.0 * i + transport.rank()), "many"));
  }
  for (int i = 19; i >= 0; --i) {
    works[i]->wait();
    for (int q = 0; q < transport.size(); ++q) {
      EXPECT_TRUE(outputs[i].narrow(0, q * 1000, 1000).eq(100.0 * i + q).all().item<bool>());
    }
  }
}

void check_all(Transport& transport) {
  check_all_gather(transport);
  check_all_to_all(transport);
  check_broadcast(transport);
  check_many_in_flight(transport);
}

void movements(World& world, const std::shared_ptr<Transport>& transport) {
  world.compare({{"recipe", "A"}, {"program", "1.0"}});
  check_all(*transport);
  // Groups {0, 2, ...} and {1, 3, ...}, twice under one name, then one of each rank alone.
  std::vector<int> alike;
  for (int q = world.rank() % 2; q < world.size(); q += 2) alike.push_back(q);
  for (int i = 0; i < 2; ++i) {
    const auto group = transport->subgroup(alike, "alike");
    EXPECT_TRUE(group->size() == static_cast<int>(alike.size()) && alike[group->rank()] == world.rank());
    check_all(*group);
  }
  const auto alone = transport->subgroup({world.rank()}, "alone");
  EXPECT_TRUE(alone->size() == 1 && alone->rank() == 0);
  check_all(*alone);
  Comm comm(transport, "world");
  const at::Tensor sum = at::full({100000}, world.rank() + 0.5);
  comm.all_reduce(sum, Reduction::kSum, "sum");
  EXPECT_TRUE(sum.eq(world.size() * (world.size() - 1) / 2.0 + 0.5 * world.size()).all().item<bool>());
  comm.barrier("end");
}

// Goes on until something ends it.
void gather_for_ever(Transport& transport, int64_t count = 1000) {
  const at::Tensor out = at::zeros({transport.size() * count});
  while (true) transport.all_gather(out, at::zeros({count}), "the loop")->wait();
}

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(1s);
}

void use_processor_for(double seconds) {
  const double end = static_cast<double>(std::clock()) / CLOCKS_PER_SEC + seconds;
  while (static_cast<double>(std::clock()) / CLOCKS_PER_SEC < end) {
  }
}

void announce(const std::string& folder, const std::string& name) {
  std::ofstream(folder + "/" + name + ".part") << ::getpid();
  std::rename((folder + "/" + name + ".part").c_str(), (folder + "/" + name).c_str());
}

// The rank `who` does `what`, the others wait for it in a collective.
void misbehave(World& world, Transport& transport, int who, const std::string& what) {
  const at::Tensor out = at::zeros({world.size() * 10});
  transport.all_gather(out, at::zeros({10}), "before")->wait();
  if (world.rank() != who) {
    if (what == "stays-out-of") return sleep_for_ever();  // the run ends even those who do not look
    gather_for_ever(transport);
  }
  if (what == "throws") run_error("the disk is full");
  if (what == "refuses") input_error("no such file");
  if (what == "dies") std::raise(SIGKILL);
  if (what == "stops") std::raise(SIGSTOP);
  if (what == "leaves") std::_Exit(0);
  if (what == "sleeps") sleep_for_ever();
  if (what == "stays-out-of") run_error("a reason");
  if (what == "renames") transport.all_gather(out, at::zeros({10}), "another name")->wait();
  if (what == "resizes") transport.all_gather(at::zeros({world.size() * 9}), at::zeros({9}), "the loop")->wait();
  run_error("nothing happened after ", what);
}

// Rank 1 computes, rank 2 says that it goes on, for longer than the time-out.
void slow(World& world, Transport& transport) {
  const at::Tensor out = at::zeros({world.size()});
  if (world.rank() == 1) use_processor_for(2.0);
  for (int i = 0; world.rank() == 2 && i < 20; ++i) {
    std::this_thread::sleep_for(100ms);
    world.show_progress();
  }
  transport.all_gather(out, at::zeros({1}), "after a long time")->wait();
}

// Counts its signals until a while after the first stop.
int count_signals(const std::string& folder, const std::string& rank) {
  std::signal(SIGINT, [](int) { stops = stops + 1; });
  std::signal(SIGTERM, [](int) { stops = stops + 1; });
  std::signal(SIGUSR1, [](int) { saves = saves + 1; });
  announce(folder, "ready-" + rank);
  while (stops == 0) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(300ms);
  std::ofstream(folder + "/signals-" + rank) << stops << " stops, " << saves << " saves";
  return 130;
}

int run_case(const Words& words) {
  const std::string& name = words.at(0);
  if (name == "signals") return count_signals(words.at(1), look_up("RANK").value_or(""));
  if (name == "idle") {
    announce(words.at(1), "ready-" + look_up("RANK").value_or(""));
    sleep_for_ever();
  }
  const auto world = join();
  if (name == "place") {
    std::cout << "rank " << world->rank() << " of " << world->size() << ", local " << world->local_rank() << " of "
              << world->local_size() << std::endl;
    world->leave();
    return 0;
  }
  world->run([&] {
    if (name == "compare") {
      world->compare(
          {{"recipe", text("recipe ", world->rank() == std::stoi(words.at(1)) ? "B" : "A")}, {"program", "1.0"}});
      return;
    }
    auto transport = make_gloo_transport(world);
    if (name == "loop") {
      announce(words.at(1), text("ready-", world->rank()));
      gather_for_ever(*transport, 100000);
    }
    if (name == "movements") movements(*world, transport);
    if (name == "checked") transport = make_checking_transport(transport);
    if (name == "misbehave" || name == "checked") misbehave(*world, *transport, std::stoi(words.at(1)), words.at(2));
    if (name == "slow") slow(*world, *transport);
  });
  world->leave();
  return 0;
}

int launch_case(const Words& words, const std::string& program) {
  // As a shell does with a job: a terminal's signals go to the group.
  ::setpgid(0, 0);
  LaunchOptions options;
  options.ranks = std::stoi(words.at(1));
  options.arguments = {program};
  options.arguments.insert(options.arguments.end(), words.begin() + 2, words.end());
  options.end_grace = milliseconds_of("TEST_END_GRACE", options.end_grace);
  for (char** entry = environ; *entry != nullptr; ++entry) options.environment.emplace_back(*entry);
  return launch(options);
}

}  // namespace

int main(int argc, char** argv) {
  const Words words(argv + 1, argv + argc);
  try {
    return words.at(0) == "launch" ? launch_case(words, argv[0]) : run_case(words);
  } catch (const InputError& error) {
    process_log().error(error.what());
    return 2;
  } catch (const std::exception& error) {
    process_log().error(user_message(error));
    return 1;
  }
}
