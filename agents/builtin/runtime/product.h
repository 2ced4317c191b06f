// Products with a matrix that was packed before: its columns lie in panels, whose sums fit into registers.
namespace kw {
constexpr int64_t SHORT = 1 << 18;  // multiplications that take no longer than the start of other threads

template <int64_t COLUMNS> struct Panel {
  static constexpr int REGISTERS = COLUMNS % (2 * LANES) == 0 ? 2 : 1;
  static constexpr int WIDTH = REGISTERS * LANES;
  static constexpr int ROWS = LANES == 16 || REGISTERS == 1 ? 12 : 6;  // computed at once
};

// sums[ROWS][WIDTH] = a[ROWS][COUNT] b[COUNT][WIDTH]; the rows of a are `step` apart.
template <int ROWS, int REGISTERS, int64_t COUNT>
KW_INLINE void multiply(const float* a, int64_t step, const float* b, F (&sums)[ROWS][REGISTERS]) {
  _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) _Pragma("GCC unroll 2") for (int j = 0; j < REGISTERS; j++) sums[i][j] = F{};
  for (int64_t k = 0; k < COUNT; k++) {
    F right[REGISTERS];
    _Pragma("GCC unroll 2") for (int j = 0; j < REGISTERS; j++) right[j] = load(b + (k * REGISTERS + j) * LANES);
    _Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) {
      const F left = all(a[i * step + k]);
      _Pragma("GCC unroll 2") for (int j = 0; j < REGISTERS; j++) sums[i][j] = fma(left, right[j], sums[i][j]);
    }
  }
}

// b[INNER][COLUMNS] in the order [panel][INNER][column of the panel].
template <int64_t INNER, int64_t COLUMNS, int64_t STEP_INNER, int64_t STEP_COLUMN> void pack_matrix(const float* b, float* to) {
  constexpr int64_t P = Panel<COLUMNS>::WIDTH;
  #pragma omp parallel for
  for (int64_t panel = 0; panel < COLUMNS / P; panel++)
    for (int64_t k = 0; k < INNER; k++) for (int64_t j = 0; j < P; j++)
      to[(panel * INNER + k) * P + j] = b[k * STEP_INNER + (panel * P + j) * STEP_COLUMN];
}

// Rows `i` to `last` of out = base + a b for one panel and COUNT terms of the sums. `base` may be null, which means zeros.
template <int ROWS, int REGISTERS, int64_t COUNT, int64_t STEP_A, int64_t STEP_OUT>
KW_INLINE int64_t product_rows(int64_t i, int64_t last, const float* a, const float* b, const float* base, int64_t step_base, float* out) {
  for (; i + ROWS <= last; i += ROWS) {
    F sums[ROWS][REGISTERS];
    multiply<ROWS, REGISTERS, COUNT>(a + i * STEP_A, STEP_A, b, sums);
    _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++) _Pragma("GCC unroll 2") for (int j = 0; j < REGISTERS; j++) {
      const F before = base ? load(base + (i + r) * step_base + j * LANES) : F{};
      store(out + (i + r) * STEP_OUT + j * LANES, before + sums[r][j]);
    }
  }
  return i;
}

template <int64_t COLUMNS, int64_t COUNT, int64_t STEP_A, int64_t STEP_OUT>
KW_INLINE void product_panel(int64_t first, int64_t last, const float* a, const float* b, const float* base, int64_t step_base, float* out) {
  constexpr int R = Panel<COLUMNS>::REGISTERS;
  int64_t i = product_rows<Panel<COLUMNS>::ROWS, R, COUNT, STEP_A, STEP_OUT>(first, last, a, b, base, step_base, out);
  i = product_rows<4, R, COUNT, STEP_A, STEP_OUT>(i, last, a, b, base, step_base, out);
  product_rows<1, R, COUNT, STEP_A, STEP_OUT>(i, last, a, b, base, step_base, out);
}

// out[ROWS][COLUMNS] = base + a b, where b was packed by `pack_matrix`. The rows of `base` are STEP_BASE apart (0: all are
// the same row); it may be null.
template <int64_t ROWS, int64_t INNER, int64_t COLUMNS, int64_t STEP_A, int64_t STEP_BASE, int64_t STEP_OUT>
void packed_product(const float* a, const float* b, const float* base, float* out) {
  constexpr int64_t P = Panel<COLUMNS>::WIDTH, LEAST = Panel<COLUMNS>::ROWS;
  constexpr int64_t TERMS = 1024;  // of a sum in one register: longer ones are added up from parts, which is more exact
  constexpr int64_t SOME = 49152 / (INNER < TERMS ? INNER : TERMS) / LEAST * LEAST;  // their terms stay in a second-level cache
  constexpr int64_t BLOCK = SOME < LEAST ? LEAST : SOME > 96 ? 96 : SOME;
  #pragma omp parallel for collapse(2) if (ROWS * INNER * COLUMNS > SHORT)
  for (int64_t block = 0; block < (ROWS + BLOCK - 1) / BLOCK; block++) for (int64_t panel = 0; panel < COLUMNS / P; panel++) {
    const int64_t first = block * BLOCK, last = first + BLOCK < ROWS ? first + BLOCK : ROWS;
    const float *from = b + panel * INNER * P, *before = base ? base + panel * P : nullptr;
    float* to = out + panel * P;
    int64_t k = 0, step = STEP_BASE;
    for (; k + TERMS <= INNER; k += TERMS) {
      product_panel<COLUMNS, TERMS, STEP_A, STEP_OUT>(first, last, a + k, from + k * P, before, step, to);
      before = to;
      step = STEP_OUT;
    }
    if constexpr (INNER % TERMS != 0)
      product_panel<COLUMNS, INNER % TERMS, STEP_A, STEP_OUT>(first, last, a + k, from + k * P, before, step, to);
  }
}
}  // namespace kw
