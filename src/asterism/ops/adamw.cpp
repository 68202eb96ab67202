#include "asterism/ops/adamw.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "asterism/ops/cpu/adamw_kernel.h"
#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

constexpr int64_t kBlock = 16384;

template <typename T>
void update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
            const AdamWArgs& args) {
  const double step = static_cast<double>(args.step);
  const cpu::AdamWKernelArgs<T> kernel_args{.param = param.mutable_data_ptr<T>(),
                                            .grad = grad.const_data_ptr<T>(),
                                            .exp_avg = exp_avg.mutable_data_ptr<T>(),
                                            .exp_avg_sq = exp_avg_sq.mutable_data_ptr<T>(),
                                            .grad_scale = static_cast<T>(args.grad_scale),
                                            .beta1 = static_cast<T>(args.beta1),
                                            .rest1 = static_cast<T>(1.0 - args.beta1),
                                            .beta2 = static_cast<T>(args.beta2),
                                            .rest2 = static_cast<T>(1.0 - args.beta2),
                                            .decay = static_cast<T>(1.0 - args.lr * args.weight_decay),
                                            .step_size = static_cast<T>(args.lr / (1.0 - std::pow(args.beta1, step))),
                                            .correction2 = static_cast<T>(1.0 / (1.0 - std::pow(args.beta2, step))),
                                            .eps = static_cast<T>(args.eps)};
  at::parallel_for(0, param.numel(), kBlock,
                   [&](int64_t begin, int64_t end) { cpu::adamw_range(kernel_args, begin, end); });
}

template <typename T>
double ordered_sum_of_squares(const at::Tensor& values) {
  const T* data = values.const_data_ptr<T>();
  const int64_t numel = values.numel(), num_blocks = (numel + kBlock - 1) / kBlock;
  std::vector<double> block_sums(num_blocks);
  at::parallel_for(0, num_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      block_sums[b] = cpu::sum_squares(data + b * kBlock, std::min(kBlock, numel - b * kBlock));
    }
  });
  double total = 0.0;
  for (const double sum : block_sums) total += sum;
  return total;
}

}  // namespace

void adamw(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
           const AdamWArgs& args) {
  TORCH_CHECK(param.scalar_type() == at::kFloat || param.scalar_type() == at::kDouble,
              "[adamw] param must be fp32 or fp64, got ", param.scalar_type());
  TORCH_CHECK(args.step >= 1, "[adamw] steps count from 1, got ", args.step);
  const auto check = [&](const char* name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.is_contiguous(), "[adamw] ", name, " must be contiguous, got strides ", tensor.strides());
    TORCH_CHECK(tensor.sizes() == param.sizes() && tensor.scalar_type() == param.scalar_type(), "[adamw] ", name,
                " must be ", param.sizes(), " ", param.scalar_type(), " like param, got ", tensor.sizes(), " ",
                tensor.scalar_type());
  };
  check("param", param);
  check("grad", grad);
  check("exp_avg", exp_avg);
  check("exp_avg_sq", exp_avg_sq);
  const auto run = param.scalar_type() == at::kDouble ? update<double> : update<float>;
  run(param, grad, exp_avg, exp_avg_sq, args);
}

double sum_of_squares(const at::Tensor& values) {
  const at::ScalarType type = sum_type(values.scalar_type());
  const at::Tensor dense = values.to(type).contiguous();
  return type == at::kDouble ? ordered_sum_of_squares<double>(dense) : ordered_sum_of_squares<float>(dense);
}

}  // namespace asterism::ops
