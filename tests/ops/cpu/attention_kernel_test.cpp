#include "asterism/ops/cpu/attention_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "asterism/ops/cpu/level.h"

namespace asterism::ops::cpu {
namespace {

enum class Sees { kNothing, kAll, kSelected };

// Uniform numbers of variance 1, different for every seed.
std::vector<float> scattered_numbers(int64_t count, uint64_t seed) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t x = (seed << 40) + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15U;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    numbers.push_back(static_cast<float>((static_cast<double>(x >> 11) * 0x1p-52 - 1.0) * std::sqrt(3.0)));
  }
  return numbers;
}

// One document of T tokens, entries of `ratio` tokens, and the formulas of model-spec 2.7 in fp64.
struct Problem {
  int64_t tokens, heads, width, window, ratio;
  Sees sees;
  std::vector<float> q, kv, entries, sink, grad_o;
  std::vector<int64_t> begin, end, selected;
  int64_t list_length = 0;

  Problem(int64_t t, int64_t h, int64_t p, int64_t w, Sees s, int64_t k)
      : tokens(t), heads(h), width(p), window(w), ratio(2), sees(s), list_length(k) {
    q = scattered_numbers(t * h * p, 1), kv = scattered_numbers(t * p, 2), sink = scattered_numbers(h, 3);
    entries = scattered_numbers(t / ratio * p, 4), grad_o = scattered_numbers(t * h * p, 5);
    for (int64_t i = 0; i < t; ++i) {
      begin.push_back(0);
      end.push_back((i + 1) / ratio);
      for (int64_t j = 0; j < k; ++j) {
        const int64_t entry = (i * 5 + j * 3) % std::max<int64_t>(t / ratio, 1);
        selected.push_back(entry < end.back() ? entry : -1);
      }
    }
  }

  // Row numbers of what query t sees: raw keys, then entries as T + number.
  std::vector<int64_t> keys_of(int64_t t) const {
    std::vector<int64_t> keys;
    for (int64_t j = std::max<int64_t>(t - window + 1, 0); j <= t; ++j) keys.push_back(j);
    for (int64_t c = 0; c < end[t] && sees != Sees::kNothing; ++c) {
      const int64_t* list = selected.data() + t * list_length;
      if (sees == Sees::kAll || std::find(list, list + list_length, c) != list + list_length)
        keys.push_back(tokens + c);
    }
    return keys;
  }
  const float* key(int64_t row) const {
    return row < tokens ? kv.data() + row * width : entries.data() + (row - tokens) * width;
  }
};

struct Results {
  std::vector<double> o, lse, grad_q, grad_key, grad_sink;  // grad_key: raw keys, then entries

  explicit Results(const Problem& p)
      : o(p.q.size()),
        lse(p.tokens * p.heads),
        grad_q(p.q.size()),
        grad_key(p.kv.size() + p.entries.size()),
        grad_sink(p.heads) {}
};

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

Results literal_attention_sums(const Problem& p, double scale) {
  Results r(p);
  for (int64_t row = 0; row < p.tokens * p.heads; ++row) {
    const std::vector<int64_t> keys = p.keys_of(row / p.heads);
    const float *q = p.q.data() + row * p.width, *grad_o = p.grad_o.data() + row * p.width;
    const double sink = p.sink[row % p.heads];
    double total = std::exp(sink), delta = 0;
    for (const int64_t j : keys) total += std::exp(scale * dot(q, p.key(j), p.width));
    r.lse[row] = std::log(total);
    const auto weight = [&](int64_t j) { return std::exp(scale * dot(q, p.key(j), p.width)) / total; };
    for (const int64_t j : keys) {
      delta += weight(j) * dot(grad_o, p.key(j), p.width);
      for (int64_t i = 0; i < p.width; ++i) r.o[row * p.width + i] += weight(j) * p.key(j)[i];
    }
    r.grad_sink[row % p.heads] -= std::exp(sink) / total * delta;
    for (const int64_t j : keys) {
      const double grad_z = weight(j) * (dot(grad_o, p.key(j), p.width) - delta) * scale;
      for (int64_t i = 0; i < p.width; ++i) {
        r.grad_q[row * p.width + i] += grad_z * p.key(j)[i];
        r.grad_key[j * p.width + i] += grad_z * q[i] + weight(j) * grad_o[i];
      }
    }
  }
  return r;
}

std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> codes;
  for (const float value : values) codes.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  return codes;
}
double value_of(float x) {
  return x;
}
double value_of(uint16_t x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

// Numbers that bf16 holds exactly, so that both types have the same problem.
void truncate(std::vector<float>& values) {
  for (float& value : values) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000);
}

struct Table {
  std::vector<std::byte> memory;
  KeyTable table;

  Table(const void* rows, int64_t num_rows, int64_t width, bool bf16) {
    const int64_t stride = packed_stride(width, bf16);
    memory.resize((num_rows + 1) * stride * (packs_bf16(bf16) ? 2 : 4));
    table = {.rows = memory.data(), .num_rows = num_rows, .stride = stride};
    pack_keys({.source = rows, .source_stride = width, .width = width, .bf16 = bf16, .table = table}, 0, num_rows + 1);
  }
};

// Every array is exactly as long as it must be, so that a sanitizer notices a read or write beyond it.
template <typename T>
Results computed(const Problem& p, const std::vector<T>& q, const std::vector<T>& kv, const std::vector<T>& entries,
                 const std::vector<T>& grad_o, double scale) {
  const bool bf16 = sizeof(T) == 2;
  const Table raw(kv.data(), p.tokens, p.width, bf16), rows(entries.data(), p.tokens / p.ratio, p.width, bf16);
  const bool list = p.sees == Sees::kSelected, some = p.sees != Sees::kNothing;
  const AttentionArgs args{.num_heads = p.heads,
                           .width = p.width,
                           .window = p.window,
                           .scale = static_cast<float>(scale),
                           .bf16 = bf16,
                           .q = q.data(),
                           .sink = p.sink.data(),
                           .raw = raw.table,
                           .entries = some ? rows.table : KeyTable{},
                           .visible_begin = some ? p.begin.data() : nullptr,
                           .visible_end = some ? p.end.data() : nullptr,
                           .selected = list ? p.selected.data() : nullptr,
                           .list_length = list ? p.list_length : 0};
  std::vector<QueryBlock> blocks;
  for (int64_t first = 0; first < p.tokens; first = blocks.back().last) {
    const int64_t last = std::min(first + attention_queries_per_block(p.heads, p.width), p.tokens);
    blocks.push_back({.first = first, .last = last, .key_first = std::max<int64_t>(first - p.window + 1, 0)});
    if (some) blocks.back().entry_last = p.end[last - 1];
  }
  std::vector<T> o(q.size()), grad_q(q.size());
  std::vector<float> lse(p.tokens * p.heads);
  attention_forward(args, {.o = o.data(), .lse = lse.data()}, blocks);
  std::vector<float> grad_raw(p.tokens * raw.table.stride), grad_entries(p.tokens / p.ratio * raw.table.stride);
  Results r(p);
  attention_backward(args,
                     {.o = o.data(),
                      .lse = lse.data(),
                      .grad_o = grad_o.data(),
                      .grad_q = grad_q.data(),
                      .raw = {.rows = grad_raw.data()},
                      .entries = {.rows = grad_entries.data()},
                      .grad_sink = r.grad_sink.data()},
                     blocks);
  std::transform(o.begin(), o.end(), r.o.begin(), [](T x) { return value_of(x); });
  std::transform(grad_q.begin(), grad_q.end(), r.grad_q.begin(), [](T x) { return value_of(x); });
  std::copy(lse.begin(), lse.end(), r.lse.begin());
  for (int64_t row = 0; row < p.tokens + p.tokens / p.ratio; ++row) {
    const float* source = row < p.tokens ? grad_raw.data() + row * raw.table.stride
                                         : grad_entries.data() + (row - p.tokens) * raw.table.stride;
    std::copy(source, source + p.width, r.grad_key.begin() + row * p.width);
  }
  return r;
}

double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double gap = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    gap += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(gap / std::max(size, 1e-300));
}

void expect_near(const Results& got, const Results& expected, double tolerance) {
  EXPECT_LT(relative_error(got.o, expected.o), tolerance);
  EXPECT_LT(relative_error(got.lse, expected.lse), 1e-5);
  EXPECT_LT(relative_error(got.grad_q, expected.grad_q), 2 * tolerance);
  EXPECT_LT(relative_error(got.grad_key, expected.grad_key), 2 * tolerance);
  EXPECT_LT(relative_error(got.grad_sink, expected.grad_sink), 6 * tolerance);
}

TEST(AttentionKernel, EqualsTheFormulasAtEveryLevel) {
  if (highest_level() < Level::kAvx2) GTEST_SKIP() << "no kernels for this CPU";
  const Level before = level();
  for (const Sees sees : {Sees::kNothing, Sees::kAll, Sees::kSelected}) {
    for (const auto& [tokens, heads, width] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 16}, {37, 3, 20}, {50, 8, 33}, {21, 17, 64}, {9, 64, 96}}) {
      for (const int64_t list_length : {2, 20}) {
        if (sees != Sees::kSelected && list_length > 2) continue;
        Problem p(tokens, heads, width, 7, sees, list_length);
        for (std::vector<float>* values : {&p.q, &p.kv, &p.entries, &p.grad_o}) truncate(*values);
        const double scale = 1.0 / std::sqrt(static_cast<double>(width));
        const Results expected = literal_attention_sums(p, scale);
        for (const Level level : {Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16}) {
          if (level > highest_level()) continue;
          choose_level(level);
          SCOPED_TRACE(std::string(level_name(level)) + " heads " + std::to_string(heads) + " width " +
                       std::to_string(width) + " sees " + std::to_string(static_cast<int>(sees)));
          expect_near(computed(p, p.q, p.kv, p.entries, p.grad_o, scale), expected, 1e-5);
          expect_near(computed(p, to_bf16(p.q), to_bf16(p.kv), to_bf16(p.entries), to_bf16(p.grad_o), scale), expected,
                      tokens == 1 ? 2e-2 : 5e-3);  // a single rounding does not average out
        }
      }
    }
  }
  choose_level(before);
}

// log of the sum over heads of p, for entry c of query t.
double literal_log_mass(const Problem& p, const std::vector<float>& lse, double scale, int64_t t, int64_t c) {
  double mass = 0;
  for (int64_t row = t * p.heads; row < (t + 1) * p.heads; ++row) {
    mass += std::exp(scale * dot(p.q.data() + row * p.width, p.key(p.tokens + c), p.width) - lse[row]);
  }
  return std::log(mass);
}

TEST(AttentionKernel, LogMassIsThatOfAllHeadsTogether) {
  if (highest_level() < Level::kAvx2) GTEST_SKIP() << "no kernels for this CPU";
  const Level before = level();
  for (const int64_t heads : {1, 8, 19}) {
    const Problem p(60, heads, 20, 7, Sees::kSelected, 5);
    const double scale = 0.2;
    std::vector<float> lse = scattered_numbers(p.tokens * heads, 6);
    for (float& value : lse) value = value * 40 + 100;  // far below what exp of a float can hold
    for (const Level level : {Level::kAvx2, Level::kAvx512}) {
      if (level > highest_level()) continue;
      choose_level(level);
      const Table entries(p.entries.data(), p.tokens / p.ratio, p.width, /*bf16=*/false);
      AttentionArgs args{.num_heads = heads,
                         .width = p.width,
                         .window = 1,
                         .scale = static_cast<float>(scale),
                         .bf16 = false,
                         .q = p.q.data(),
                         .sink = p.sink.data(),
                         .raw = {},
                         .entries = entries.table,
                         .visible_begin = p.begin.data(),
                         .visible_end = p.end.data(),
                         .selected = p.selected.data(),
                         .list_length = p.list_length};
      for (const bool lists : {false, true}) {
        const QueryBlock block{
            .first = 5, .last = 57, .key_first = 57, .entry_first = 0, .entry_last = p.end[56], .lists = lists};
        const int64_t columns = lists ? p.list_length : block.num_visible_entries();
        std::vector<float> mass(block.num_queries() * columns);
        attention_log_mass(args, lse.data(), block, mass.data(), columns);
        for (int64_t t = block.first; t < block.last; ++t) {
          for (int64_t k = 0; k < columns; ++k) {
            const int64_t entry = lists ? p.selected[t * p.list_length + k] : k;
            const float got = mass[(t - block.first) * columns + k];
            if (entry < 0 || entry >= p.end[t]) {
              EXPECT_EQ(got, -INFINITY);
            } else {
              EXPECT_NEAR(got, literal_log_mass(p, lse, scale, t, entry), 1e-4) << "query " << t << " entry " << entry;
            }
          }
        }
      }
    }
  }
  choose_level(before);
}

}  // namespace
}  // namespace asterism::ops::cpu
