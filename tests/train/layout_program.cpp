// A case of layout_run.h by ranks that are processes: layout_program launch N CASE EXPERT SHARD REPLICATE FOLDER.
// Rank 0 writes FOLDER/result.safetensors.
#include <iostream>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/core/error.h"
#include "asterism/dist/gloo_transport.h"
#include "asterism/dist/launch.h"
#include "asterism/dist/world.h"
#include "tests/train/layout_run.h"

extern char** environ;

namespace {

using namespace asterism;
using Arguments = std::vector<std::string>;

int launch_layout(const Arguments& arguments, const char* program) {
  dist::LaunchOptions options;
  options.ranks = std::stoi(arguments.at(1));
  options.arguments = {program};
  options.arguments.insert(options.arguments.end(), arguments.begin() + 2, arguments.end());
  for (char** entry = environ; *entry != nullptr; ++entry) options.environment.emplace_back(*entry);
  return dist::launch(options);
}

void run_rank(const Arguments& arguments) {
  const auto look_up = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto world = std::make_shared<dist::World>(dist::find_place(look_up));
  world->run([&] {
    const testing::LayoutCase& what = testing::named_layout_cases().at(arguments.at(0));
    const parallel::MeshRequest mesh{std::stoi(arguments.at(1)), std::stoi(arguments.at(2)),
                                     std::stoi(arguments.at(3))};
    const testing::LayoutResult result = testing::run_layout(what, mesh, dist::make_gloo_transport(world));
    if (world->rank() != 0) return;
    std::vector<checkpoint::NamedTensor> tensors;
    for (const auto& [name, tensor] : result.tensors) tensors.push_back({name, tensor});
    checkpoint::write_safetensors(arguments.at(4) + "/result.safetensors", tensors);
  });
  world->leave();
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  try {
    if (arguments.at(0) == "launch") return launch_layout(arguments, argv[0]);
    run_rank(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << user_message(error) << "\n";
    return 1;
  }
}
