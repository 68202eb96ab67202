#include "asterism/ops/gemm.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "asterism/ops/cpu/level.h"
#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

using testing::random_tensor;
using testing::relative_difference;

// Level and number of threads as they were, afterwards.
struct MachineGuard {
  cpu::Level level = cpu::level();
  int threads = at::get_num_threads();
  ~MachineGuard() {
    cpu::choose_level(level);
    at::set_num_threads(threads);
  }
};

std::vector<cpu::Level> levels() {
  std::vector<cpu::Level> all;
  for (const auto level : {cpu::Level::kPortable, cpu::Level::kAvx2, cpu::Level::kAvx512, cpu::Level::kAvx512Bf16}) {
    if (level <= cpu::highest_level()) all.push_back(level);
  }
  return all;
}

// How a matrix lies in memory.
enum class Layout { kRows, kColumns, kSlice, kStrided };
constexpr Layout kLayouts[] = {Layout::kRows, Layout::kColumns, Layout::kSlice, Layout::kStrided};

at::Tensor laid_out(const at::Tensor& x, Layout layout) {
  const int64_t m = x.size(0), n = x.size(1);
  at::Tensor place;
  switch (layout) {
    case Layout::kRows:
      return x.contiguous();
    case Layout::kColumns:
      return x.t().contiguous().t();
    case Layout::kSlice:  // rows begin at odd places
      place = at::full({m, n + 5}, 1e30, x.options()).narrow(1, 3, n);
      break;
    case Layout::kStrided:
      place = at::full({2 * m, 3 * n}, 1e30, x.options()).slice(0, 0, 2 * m, 2).slice(1, 0, 3 * n, 3);
      break;
  }
  return place.copy_(x);
}

at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a.to(at::kDouble), b.to(at::kDouble));
}

struct Shape {
  int64_t m, k, n;
};

void check_every_layout(const Shape& shape, at::ScalarType a_type, at::ScalarType b_type) {
  const at::Tensor a = random_tensor({shape.m, shape.k}, "a").to(a_type);
  const at::Tensor b = random_tensor({shape.k, shape.n}, "b").to(b_type);
  const at::Tensor want = exact(a, b);
  for (const Layout a_layout : kLayouts) {
    for (const Layout b_layout : kLayouts) {
      // Between walls that nothing may write to.
      const at::Tensor wide = at::full({shape.m, shape.n + 7}, 7.0, at::kFloat), c = wide.narrow(1, 2, shape.n);
      run_products({{.c = c, .terms = {{laid_out(a, a_layout), laid_out(b, b_layout)}}}});
      EXPECT_LE(relative_difference(c, want), 1e-6);
      EXPECT_TRUE(wide.narrow(1, 0, 2).eq(7.0).all().item<bool>());
      EXPECT_TRUE(wide.narrow(1, shape.n + 2, 5).eq(7.0).all().item<bool>());
      const at::Tensor rounded = at::empty({shape.m, shape.n}, at::kBFloat16);
      run_products({{.c = rounded, .terms = {{laid_out(a, a_layout), laid_out(b, b_layout)}}}});
      EXPECT_TRUE(at::equal(rounded, c.to(at::kBFloat16)));
    }
  }
}

// Around the edges of tiles, panels, stretches of the sum and blocks.
TEST(RunProducts, EveryLayoutTypeShapeAndLevelMatchesTheDefinition) {
  const MachineGuard guard;
  const Shape shapes[] = {{1, 1, 1},     {5, 3, 17},    {6, 16, 64},    {7, 33, 65},
                          {13, 257, 31}, {12, 513, 80}, {64, 515, 130}, {145, 40, 300}};
  for (const cpu::Level level : levels()) {
    cpu::choose_level(level);
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(::testing::Message() << cpu::level_name(level) << " " << shape.m << " " << shape.k << " "
                                        << shape.n);
      for (const at::ScalarType a_type : {at::kFloat, at::kBFloat16}) {
        for (const at::ScalarType b_type : {at::kFloat, at::kBFloat16}) check_every_layout(shape, a_type, b_type);
      }
    }
  }
}

TEST(RunProducts, TwoTermsAndWhatIsThereMakeOneSum) {
  const MachineGuard guard;
  const at::Tensor a = random_tensor({40, 300}, "a").to(at::kFloat), b = random_tensor({300, 70}, "b").to(at::kFloat);
  const at::Tensor h = random_tensor({40, 8}, "h").to(at::kFloat), g = random_tensor({8, 70}, "g").to(at::kFloat);
  const at::Tensor before = random_tensor({40, 70}, "c").to(at::kFloat);
  for (const cpu::Level level : levels()) {
    cpu::choose_level(level);
    const at::Tensor c = before.clone();
    run_products({{.c = c, .terms = {{a, b}, {h, g}}}});
    EXPECT_LE(relative_difference(c, exact(a, b) + exact(h, g)), 1e-6);
    c.copy_(before);
    run_products({{.c = c, .terms = {{a, b}, {h, g}}, .add = true}});
    EXPECT_LE(relative_difference(c, before + exact(a, b) + exact(h, g)), 1e-6);
  }
}

// Rows and columns alone, other threads, other neighbours: the bits of a number are its own.
TEST(RunProducts, BitsDependOnTheFactorsOfANumberOnly) {
  const MachineGuard guard;
  for (const cpu::Level level : levels()) {
    if (level == cpu::Level::kPortable) continue;  // the library promises nothing of the kind
    cpu::choose_level(level);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor a = random_tensor({700, 600}, "a").to(type), b = random_tensor({600, 330}, "b").to(type);
      const auto multiply = [](const at::Tensor& left, const at::Tensor& right) {
        at::Tensor c = at::empty({left.size(0), right.size(1)}, at::kFloat);
        run_products({{.c = c, .terms = {{left, right}}}});
        return c;
      };
      at::set_num_threads(1);
      const at::Tensor whole = multiply(a, b);
      for (const int threads : {2, 3, 4}) {
        at::set_num_threads(threads);
        EXPECT_TRUE(at::equal(multiply(a, b), whole)) << threads;
      }
      EXPECT_TRUE(at::equal(multiply(a.narrow(0, 401, 1), b), whole.narrow(0, 401, 1)));
      EXPECT_TRUE(at::equal(multiply(a, b.narrow(1, 77, 20)), whole.narrow(1, 77, 20)));
    }
  }
}

TEST(RunProducts, ManyProductsOfAllSizesAtOnce) {
  std::vector<Product> products;
  std::vector<at::Tensor> wants;
  for (int64_t i = 0; i < 30; ++i) {
    const at::Tensor a = random_tensor({i * 7 % 50, 20 + i}, "a").to(at::kFloat);
    const at::Tensor b = random_tensor({20 + i, i * 11 % 90}, "b").to(at::kFloat);
    products.push_back({.c = at::full({a.size(0), b.size(1)}, 5.0F), .terms = {{a, b}}});
    wants.push_back(exact(a, b));
  }
  run_products(products);
  for (size_t i = 0; i < products.size(); ++i) EXPECT_LE(relative_difference(products[i].c, wants[i]), 1e-6) << i;
}

TEST(RunProducts, SumsOfNothingAreZeroOrWhatWasThere) {
  const at::Tensor c = at::full({3, 20}, 5.0F);
  run_products({{.c = c, .terms = {{at::empty({3, 0}), at::empty({0, 20})}}, .add = true}});
  EXPECT_TRUE(c.eq(5.0).all().item<bool>());
  run_products({{.c = c, .terms = {{at::empty({3, 0}), at::empty({0, 20})}}}});
  EXPECT_TRUE(c.eq(0.0).all().item<bool>());
}

TEST(RunProducts, NotANumberStaysInItsRowAndColumn) {
  at::Tensor a = random_tensor({20, 40}, "a").to(at::kFloat), b = random_tensor({40, 33}, "b").to(at::kFloat);
  a[4][7] = std::numeric_limits<float>::quiet_NaN();
  b[9][30] = std::numeric_limits<float>::infinity();
  const at::Tensor c = at::empty({20, 33}, at::kFloat);
  run_products({{.c = c, .terms = {{a, b}}}});
  at::Tensor finite = at::isfinite(c);
  EXPECT_TRUE(at::isnan(c[4]).all().item<bool>());
  EXPECT_TRUE(at::isinf(c.select(1, 30)).sum().item<int64_t>() == 19);
  finite[4] = true;
  finite.select(1, 30).fill_(true);
  EXPECT_TRUE(finite.all().item<bool>());
}

TEST(RunProducts, RefusesWhatDoesNotFit) {
  const at::Tensor c = at::empty({2, 3}), a = at::empty({2, 4}), b = at::empty({4, 3});
  EXPECT_THROW(run_products({{.c = c, .terms = {{a, at::empty({5, 3})}}}}), c10::Error);
  EXPECT_THROW(run_products({{.c = c, .terms = {{at::empty({3, 4}), b}}}}), c10::Error);
  if (cpu::level() == cpu::Level::kPortable) return;
  EXPECT_THROW(run_products({{.c = c, .terms = {{a.to(at::kHalf), b}}}}), c10::Error);
  EXPECT_THROW(run_products({{.c = at::empty({3, 2}).t(), .terms = {{a, b}}}}), c10::Error);
  EXPECT_THROW(run_products({{.c = c.to(at::kBFloat16), .terms = {{a, b}}, .add = true}}), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
