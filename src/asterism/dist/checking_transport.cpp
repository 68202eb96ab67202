#include "asterism/dist/checking_transport.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "asterism/core/error.h"
#include "asterism/dist/roster.h"

namespace asterism::dist {

namespace {

constexpr size_t kTextBytes = 240;

enum class Kind : int64_t { kAllGather, kAllToAll, kBroadcast, kSubgroup };

/// What a rank is about to start, as it travels: fixed size, so that the comparison itself cannot disagree.
struct Descriptor {
  int64_t number = 0;
  Kind kind = Kind::kAllGather;
  int64_t root = 0;
  int64_t bytes = 0;  // each rank's input; of a row in all_to_all
  char what[kTextBytes] = {};
  char type[16] = {};
};

void put(std::string_view text, char* field, size_t size) {
  std::memcpy(field, text.data(), std::min(text.size(), size - 1));
}

std::string describe(const Descriptor& descriptor) {
  const std::string what = text(" '", descriptor.what, "'");
  const std::string size = text(" of ", descriptor.bytes, " bytes (", descriptor.type, ")");
  switch (descriptor.kind) {
    case Kind::kAllGather:
      return text("all_gather", what, size);
    case Kind::kAllToAll:
      return text("all_to_all", what, " of rows", size);
    case Kind::kBroadcast:
      return text("broadcast", what, size, " from rank ", descriptor.root);
    default:
      return text("a new group", what);
  }
}

/// The descriptors of all ranks and, of each rank, how many rows it expects from and sends to each.
struct Issued {
  std::vector<Descriptor> calls;
  std::vector<std::vector<int64_t>> output_rows, input_rows;
};

class CheckingTransport : public Transport {
 public:
  explicit CheckingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  std::unique_ptr<Work> all_gather(const at::Tensor& output, const at::Tensor& input, std::string_view what) override {
    compare(describe_call(Kind::kAllGather, what, static_cast<int64_t>(input.nbytes()), input), {}, {});
    return inner_->all_gather(output, input, what);
  }

  std::unique_ptr<Work> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_rows, const std::vector<int64_t>& input_rows,
                                   std::string_view what) override {
    int64_t row = static_cast<int64_t>(input.element_size());
    for (int64_t d = 1; d < input.dim(); ++d) row *= input.size(d);
    compare(describe_call(Kind::kAllToAll, what, row, input), output_rows, input_rows);
    return inner_->all_to_all(output, input, output_rows, input_rows, what);
  }

  std::unique_ptr<Work> broadcast(const at::Tensor& data, int root, std::string_view what) override {
    Descriptor call = describe_call(Kind::kBroadcast, what, static_cast<int64_t>(data.nbytes()), data);
    call.root = root;
    compare(call, {}, {});
    return inner_->broadcast(data, root, what);
  }

  std::shared_ptr<Transport> subgroup(const std::vector<int>& members, const std::string& name) override {
    compare(describe_call(Kind::kSubgroup, name, 0, {}), {}, {});
    return std::make_shared<CheckingTransport>(inner_->subgroup(members, name));
  }

  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  Descriptor describe_call(Kind kind, std::string_view what, int64_t bytes, const at::Tensor& tensor) {
    Descriptor call;
    call.number = ++number_;
    call.kind = kind;
    call.bytes = bytes;
    put(what, call.what, sizeof(call.what));
    if (tensor.defined()) put(tensor.dtype().name(), call.type, sizeof(call.type));
    return call;
  }

  Issued exchange(const Descriptor& call, const std::vector<int64_t>& output_rows,
                  const std::vector<int64_t>& input_rows) {
    const auto ranks = static_cast<size_t>(size());
    const size_t counts = ranks * sizeof(int64_t), bytes = sizeof(Descriptor) + 2 * counts;
    const at::Tensor mine = at::zeros({static_cast<int64_t>(bytes)}, at::kByte);
    const at::Tensor all = at::empty({size(), static_cast<int64_t>(bytes)}, at::kByte);
    auto* record = mine.data_ptr<uint8_t>();
    std::memcpy(record, &call, sizeof(call));
    if (output_rows.size() == ranks) std::memcpy(record + sizeof(call), output_rows.data(), counts);
    if (input_rows.size() == ranks) std::memcpy(record + sizeof(call) + counts, input_rows.data(), counts);
    inner_->all_gather(all, mine, text("the check of movement ", call.number))->wait();
    Issued issued;
    for (size_t r = 0; r < ranks; ++r) {
      const uint8_t* from = all.const_data_ptr<uint8_t>() + r * bytes;
      issued.calls.emplace_back();
      std::memcpy(&issued.calls.back(), from, sizeof(Descriptor));
      const auto* rows = reinterpret_cast<const int64_t*>(from + sizeof(Descriptor));
      issued.output_rows.emplace_back(rows, rows + ranks);
      issued.input_rows.emplace_back(rows + ranks, rows + 2 * ranks);
    }
    return issued;
  }

  void compare(const Descriptor& call, const std::vector<int64_t>& output_rows,
               const std::vector<int64_t>& input_rows) {
    const Issued issued = exchange(call, output_rows, input_rows);
    std::string difference = different_calls(issued);
    if (difference.empty() && call.kind == Kind::kAllToAll) difference = different_rows(issued);
    if (difference.empty()) return;
    const std::string message = text("the ranks do not make the same calls: movement ", call.number, ": ", difference);
    inner_->abort(message);
    run_error(message);
  }

  // Empty when all agree; else the calls, those of fewer ranks (the suspects) first.
  static std::string different_calls(const Issued& issued) {
    std::map<std::string, std::vector<int>> ranks_by_call;
    for (size_t r = 0; r < issued.calls.size(); ++r) {
      ranks_by_call[describe(issued.calls[r])].push_back(static_cast<int>(r));
    }
    if (ranks_by_call.size() == 1) return "";
    std::vector<std::pair<std::string, std::vector<int>>> groups(ranks_by_call.begin(), ranks_by_call.end());
    // Of two camps of one size, rank 0's is taken for the right one.
    std::ranges::stable_sort(
        groups, {}, [](const auto& group) { return std::pair(group.second.size(), group.second.front() == 0); });
    std::string result;
    for (const auto& [made, ranks] : groups) {
      result += text(result.empty() ? "" : ", ", describe_ranks(ranks), " issued ", made);
    }
    return result;
  }

  static std::string different_rows(const Issued& issued) {
    for (size_t from = 0; from < issued.calls.size(); ++from) {
      for (size_t to = 0; to < issued.calls.size(); ++to) {
        const int64_t sent = issued.input_rows[from][to], expected = issued.output_rows[to][from];
        if (sent == expected) continue;
        return text("all_to_all '", issued.calls[from].what, "': rank ", from, " sends ", sent, " rows to rank ", to,
                    ", which expects ", expected);
      }
    }
    return "";
  }

  std::shared_ptr<Transport> inner_;
  int64_t number_ = 0;
};

}  // namespace

std::shared_ptr<Transport> make_checking_transport(std::shared_ptr<Transport> inner) {
  return std::make_shared<CheckingTransport>(std::move(inner));
}

}  // namespace asterism::dist
