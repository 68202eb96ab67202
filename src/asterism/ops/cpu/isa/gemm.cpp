#include "asterism/ops/cpu/gemm_panels.h"
#include "asterism/ops/cpu/isa/products.h"
#include "asterism/ops/cpu/isa/transpose.h"

// One stretch of a product, after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): b
// is packed into panels of kPanel columns that stay in the second cache, rows of a stay in the first, and a tile of c
// in the registers.

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

// A stretch as units: pairs of steps for bf16.
struct Units {
  int64_t whole;  // units with all their numbers
  int64_t all;
};

Units units_of(int64_t count) {
  return {count / kPerUnit, (count + kPerUnit - 1) / kPerUnit};
}

// The unit of the numbers at `x` and, where there is another one, `stride` further.
template <typename From>
inline Unit unit_at(const From* x, [[maybe_unused]] int64_t stride, [[maybe_unused]] bool whole) {
#ifdef __AVX512BF16__
  return x[0] | (whole ? static_cast<uint32_t>(x[stride]) << 16 : 0U);
#else
  return widen(*x);
#endif
}

// Columns [begin, end) of units [first, last) of a panel, whatever the strides.
template <typename From>
void pack_numbers(const From* from, const GemmMatrix& b, int64_t begin, int64_t end, int64_t first, int64_t last,
                  int64_t whole, Unit* panel) {
  for (int64_t u = first; u < last; ++u) {
    const From* row = from + u * kPerUnit * b.row_stride;
    for (int64_t j = begin; j < end; ++j) {
      panel[u * kPanel + j] = unit_at(row + j * b.column_stride, b.row_stride, u < whole);
    }
  }
}

// Rows of unit stride: the compiler makes vectors of the loop.
template <typename From>
void pack_contiguous(const From* from, int64_t stride, int64_t width, const Units& units, Unit* panel) {
  for (int64_t u = 0; u < units.all; ++u) {
    const From* row = from + u * kPerUnit * stride;
    Unit* to = panel + u * kPanel;
    if (u < units.whole) {
      for (int64_t j = 0; j < width; ++j) to[j] = unit_at(row + j, stride, true);
    } else {
      for (int64_t j = 0; j < width; ++j) to[j] = unit_at(row + j, stride, false);
    }
  }
}

// Columns of unit stride, of the type that is multiplied.
void pack_transposed(const Element* from, const GemmMatrix& b, int64_t width, const Units& units, Unit* panel) {
  const int64_t squares = width / 8 * 8, steps = units.whole / 8 * 8;
  for (int64_t j = 0; j < squares; j += 8) {
    const Element* column = from + j * b.column_stride;
    for (int64_t u = 0; u < steps; u += 8) {
      transpose_square(column + u * kPerUnit, b.column_stride * sizeof(Element), panel + u * kPanel + j, kPanel);
    }
  }
  pack_numbers(from, b, 0, squares, steps, units.all, units.whole, panel);
  pack_numbers(from, b, squares, width, 0, units.all, units.whole, panel);
}

template <typename From>
void pack_panel(const GemmStretch& s, int64_t column, int64_t width, const Units& units, Unit* panel) {
  const From* from = static_cast<const From*>(s.b.data) + s.first * s.b.row_stride + column * s.b.column_stride;
  if (s.b.column_stride == 1) {
    pack_contiguous(from, s.b.row_stride, width, units, panel);
  } else if (s.b.row_stride == 1 && sizeof(From) == sizeof(Element)) {
    pack_transposed(reinterpret_cast<const Element*>(from), s.b, width, units, panel);
  } else {
    pack_numbers(from, s.b, 0, width, 0, units.all, units.whole, panel);
  }
  const int64_t padded = round_up(width, kLanes);
  for (int64_t u = 0; u < units.all && width < padded; ++u) {
    for (int64_t j = width; j < padded; ++j) panel[u * kPanel + j] = Unit{0};
  }
}

template <typename From>
void pack_rows_of_a(const GemmStretch& s, int64_t begin, int64_t end, const Units& units, Unit* tile) {
  const From* from = static_cast<const From*>(s.a.data) + begin * s.a.row_stride + s.first * s.a.column_stride;
  for (int64_t u = 0; u < units.all; ++u) {
    for (int64_t r = 0; r < end - begin; ++r) {
      const From* x = from + r * s.a.row_stride + u * kPerUnit * s.a.column_stride;
      tile[u * kMaxRows + r] = unit_at(x, s.a.column_stride, u < units.whole);
    }
  }
}

// Whether rows of a can be read where they lie, a unit at a time.
bool reads_in_place(const GemmStretch& s, const Units& units) {
  if (s.a.column_stride != 1) return false;
#ifdef __AVX512BF16__
  return units.whole == units.all && s.a.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(s.a.data) % 4 == 0;
#else
  (void)units;
  return s.a.type == GemmType::kFloat;
#endif
}

void point_at_rows(const GemmStretch& s, int64_t begin, int64_t end, const Units& units, Unit* tile, ProductRows& p) {
  p.first = 0;
  p.last = units.all;
  if (reads_in_place(s, units)) {
    p.step = 1;
    for (int64_t r = begin; r < end; ++r) {
      const Element* row = static_cast<const Element*>(s.a.data) + r * s.a.row_stride + s.first;
      p.a[r - begin] = reinterpret_cast<const Unit*>(row);
    }
    return;
  }
  if (s.a.type == GemmType::kBf16) {
    pack_rows_of_a<uint16_t>(s, begin, end, units, tile);
  } else {
#ifndef __AVX512BF16__
    pack_rows_of_a<float>(s, begin, end, units, tile);
#endif
  }
  p.step = kMaxRows;
  for (int64_t r = 0; r < end - begin; ++r) p.a[r] = tile + r;
}

template <Into kInto>
void multiply_panel(const ProductRows& p, int64_t num_rows, const Unit* panel, int64_t vectors) {
  const UnitRows b{panel, kPanel};
  switch (vectors) {
    case 1:
      return multiply_rows<kInto, 1>(p, num_rows, b, 0);
#ifdef __AVX512F__
    case 2:
      return multiply_rows<kInto, 2>(p, num_rows, b, 0);
    case 3:
      return multiply_rows<kInto, 3>(p, num_rows, b, 0);
#endif
    default:
      return multiply_rows<kInto, kMaxVectors>(p, num_rows, b, 0);
  }
}

// A tile whose columns are no whole vectors: through `rim`, rows of kPanel.
void multiply_rim(ProductRows& p, int64_t num_rows, const Unit* panel, int64_t width, bool add, float* rim) {
  float* c[kMaxRows];
  for (int64_t r = 0; r < num_rows; ++r) {
    c[r] = p.c[r];
    p.c[r] = rim + r * kPanel;
    for (int64_t j = 0; j < width; ++j) p.c[r][j] = add ? c[r][j] : 0.0F;
  }
  multiply_panel<Into::kAdd>(p, num_rows, panel, (width + kLanes - 1) / kLanes);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t j = 0; j < width; ++j) c[r][j] = p.c[r][j];
  }
}

}  // namespace

void gemm_stretch(const GemmStretch& s) {
  const Units units = units_of(s.count);
  Unit* panels = static_cast<Unit*>(s.scratch);
  const int64_t panel_size = kGemmSteps * kPanel, num_panels = (s.columns + kPanel - 1) / kPanel;
  Unit* tile = panels + num_panels * panel_size;
  float* rim = reinterpret_cast<float*>(tile + kGemmSteps * kMaxRows);
  for (int64_t i = 0; i < num_panels; ++i) {
    const int64_t column = i * kPanel, width = smallest(kPanel, s.columns - column);
#ifdef __AVX512BF16__
    pack_panel<uint16_t>(s, column, width, units, panels + i * panel_size);
#else
    if (s.b.type == GemmType::kBf16) {
      pack_panel<uint16_t>(s, column, width, units, panels + i * panel_size);
    } else {
      pack_panel<float>(s, column, width, units, panels + i * panel_size);
    }
#endif
  }
  for_each_row_tile(s.rows, [&](int64_t begin, int64_t end) {
    ProductRows p{};
    point_at_rows(s, begin, end, units, tile, p);
    for (int64_t i = 0; i < num_panels; ++i) {
      const int64_t column = i * kPanel, width = smallest(kPanel, s.columns - column);
      for (int64_t r = begin; r < end; ++r) p.c[r - begin] = s.c + r * s.c_stride + column;
      if (width % kLanes != 0) {
        multiply_rim(p, end - begin, panels + i * panel_size, width, s.add, rim);
      } else if (s.add) {
        multiply_panel<Into::kAdd>(p, end - begin, panels + i * panel_size, width / kLanes);
      } else {
        multiply_panel<Into::kSet>(p, end - begin, panels + i * panel_size, width / kLanes);
      }
    }
  });
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
