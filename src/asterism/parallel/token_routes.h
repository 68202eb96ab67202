#pragma once

#include <vector>

#include "asterism/dist/comm.h"
#include "asterism/model/placement.h"
#include "asterism/ops/experts.h"

namespace asterism::parallel {

/// How the tokens of one layer travel to the ranks of their experts and back: made once a layer and step, by one
/// exchange of counts, and taken again under recomputation.
struct TokenRoutes : model::ExchangeLayout {
  // On the way out: rows by expert, in (token, slot) order, and so by owner.
  ops::Dispatch outgoing;
  std::vector<int64_t> send_rows, receive_rows;  // to and from every rank of the expert group

  // What came, as calls of ops::grouped_experts with one slot a row. One call for everything, or, in an order of sums
  // that no layout changes, one for each sender.
  struct Call {
    int64_t first_row = 0, rows = 0;  // of the received ones
    ops::Dispatch dispatch;           // of the experts of this rank
  };
  std::vector<Call> calls;
};

/// expert_TK int64 [T, K]: the experts chosen by this rank's tokens. All ranks of `group` call it.
TokenRoutes make_token_routes(const at::Tensor& expert_TK, int num_experts, bool call_per_sender, dist::Comm& group,
                              const std::string& name);

}  // namespace asterism::parallel
