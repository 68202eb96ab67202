#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/core/memory.h"
#include "asterism/ops/tensor_memory.h"

int main(int argc, char** argv) {
  using namespace asterism;
  keep_freed_memory();
  ops::pool_tensor_memory();
  return cli::run_command_line(
      {argv + 1, argv + argc},
      {cli::init_command(), cli::convert_command(), cli::export_command(), cli::train_command(), cli::eval_command(),
       cli::generate_command(), cli::diff_command(), cli::chat_command()});
}
