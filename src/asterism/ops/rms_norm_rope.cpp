#include "asterism/ops/rms_norm_rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/rotation.h"

namespace asterism::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNormRope : torch::autograd::Function<RmsNormRope> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double eps, const RopeTable& table) {
    const at::Tensor in = x.contiguous(), out = at::empty_like(in);
    const at::Tensor rstd_R = at::empty({in.numel() / in.size(-1)}, in.options().dtype(sum_type(in.scalar_type())));
    for_rotated_rows(in, table, /*inverse=*/false,
                     [&]<typename S, typename T>(S, const cpu::Rotation<T>& rotation, int64_t begin, int64_t end) {
                       cpu::norm_rotate_rows<S, T>(rotation, eps, values_of<S>(in), results_of<S>(out),
                                                   rstd_R.mutable_data_ptr<T>(), begin, end);
                     });
    ctx->save_for_backward({out, rstd_R, table.cos, table.sin});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &y = saved[0], &rstd_R = saved[1];
    const at::Tensor grad_y = dense(grads[0], y.scalar_type()), grad_x = at::empty_like(y);
    for_rotated_rows(y, {saved[2], saved[3]}, /*inverse=*/false,
                     [&]<typename S, typename T>(S, const cpu::Rotation<T>& rotation, int64_t begin, int64_t end) {
                       cpu::norm_rotate_grad_rows<S, T>(rotation, values_of<S>(y), rstd_R.const_data_ptr<T>(),
                                                        values_of<S>(grad_y), results_of<S>(grad_x), begin, end);
                     });
    return {grad_x, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm_rope(const at::Tensor& x, double eps, const RopeTable& table) {
  check_rope("rms_norm_rope", x, table);
  return RmsNormRope::apply(x, eps, table);
}

}  // namespace asterism::ops
