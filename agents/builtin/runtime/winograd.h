// Convolutions with 3 x 3 kernels and stride 1 by Winograd's F(2 x 2, 3 x 3): 16 multiplications for four results, not 36.
// A tile of 4 x 4 inputs d and a kernel g give the 2 x 2 results A' [(G g G') * (B' d B)] A, where * is by element, ' is
// the transpose, and the sum over input channels is a matrix product for each of the 16 elements (Lavin and Gray, Fast
// Algorithms for Convolutional Neural Networks, 2015). Each result depends on its own nine inputs only, as in the plain
// sum, so that a NaN does not spread. Results that are not finite are computed again as the plain sum, because an
// infinity enters several products with different signs. Channels are the last dimension in memory.
namespace kw {
// G g G' of each pair of channels: of w[OUT][IN][3][3], in the order [panel of OUT][16][IN][channel of the panel].
template <int64_t IN, int64_t OUT> void winograd_weights(const float* w, float* to) {
  constexpr int64_t P = Panel<OUT>::WIDTH;
  #pragma omp parallel for collapse(2)
  for (int64_t panel = 0; panel < OUT / P; panel++) for (int64_t in = 0; in < IN; in++) for (int64_t lane = 0; lane < P; lane++) {
    const float* g = w + ((panel * P + lane) * IN + in) * 9;
    float* u = to + (panel * 16 * IN + in) * P + lane;
    float rows[4][3];
    for (int j = 0; j < 3; j++) {
      rows[0][j] = g[j];
      rows[1][j] = 0.5f * (g[j] + g[3 + j] + g[6 + j]);
      rows[2][j] = 0.5f * (g[j] - g[3 + j] + g[6 + j]);
      rows[3][j] = g[6 + j];
    }
    for (int i = 0; i < 4; i++) {
      const float a = rows[i][0], b = rows[i][1], c = rows[i][2];
      u[(i * 4 + 0) * IN * P] = a;
      u[(i * 4 + 1) * IN * P] = 0.5f * (a + b + c);
      u[(i * 4 + 2) * IN * P] = 0.5f * (a - b + c);
      u[(i * 4 + 3) * IN * P] = c;
    }
  }
}

// B' d B of one tile of all channels, whose 16 pixels begin at `pixels`: to[element * step + channel].
template <int64_t IN> KW_INLINE void winograd_inputs(const float* const* pixels, float* to, int64_t step) {
  for (int64_t in = 0; in < IN; in += LANES) {
    F t[4][4];
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
      const F a = load(pixels[j] + in), b = load(pixels[4 + j] + in), c = load(pixels[8 + j] + in), d = load(pixels[12 + j] + in);
      t[0][j] = a - c; t[1][j] = b + c; t[2][j] = c - b; t[3][j] = b - d;
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
      store(to + (i * 4 + 0) * step + in, t[i][0] - t[i][2]);
      store(to + (i * 4 + 1) * step + in, t[i][1] + t[i][2]);
      store(to + (i * 4 + 2) * step + in, t[i][2] - t[i][1]);
      store(to + (i * 4 + 3) * step + in, t[i][1] - t[i][3]);
    }
  }
}

// The plain sum of one result for the channels of a panel that begins with `channel`. The inputs begin at `row` and `column`.
template <int64_t HEIGHT, int64_t WIDTH, int64_t IN, int64_t P>
__attribute__((noinline)) void plain_convolution(
    const float* image, const float* w, const float* bias, int64_t channel, int64_t row, int64_t column, float* to) {
  for (int64_t lane = 0; lane < P; lane++) {
    float sum = 0;
    for (int64_t i = 0; i < 3; i++) for (int64_t j = 0; j < 3; j++) {
      if (row + i < 0 || row + i >= HEIGHT || column + j < 0 || column + j >= WIDTH) continue;
      const float* pixel = image + ((row + i) * WIDTH + column + j) * IN;
      for (int64_t k = 0; k < IN; k++) sum += pixel[k] * w[((channel + lane) * IN + k) * 9 + i * 3 + j];
    }
    to[lane] = sum + (bias ? bias[channel + lane] : 0.0f);
  }
}

// The convolution of x[BATCH][HEIGHT][WIDTH][IN] with w[OUT][IN][3][3], of which u is what `winograd_weights` made,
// with zeros at the edges.
template <int64_t BATCH, int64_t HEIGHT, int64_t WIDTH, int64_t IN, int64_t OUT, int64_t PAD_Y, int64_t PAD_X>
void winograd(const float* x, const float* u, const float* w, const float* bias, float* out) {
  constexpr int64_t P = Panel<OUT>::WIDTH, LEAST = Panel<OUT>::ROWS, ROWS = HEIGHT + 2 * PAD_Y - 2, COLUMNS = WIDTH + 2 * PAD_X - 2;
  constexpr int64_t DOWN = (ROWS + 1) / 2, ACROSS = (COLUMNS + 1) / 2, TILES = BATCH * DOWN * ACROSS;
  constexpr int64_t MOST = 4096 / IN > LEAST ? 4096 / IN : LEAST;  // their inputs stay in a second-level cache (256 KiB)
  static const float zeros[IN] = {};
  const int64_t threads = omp_get_max_threads();
  int64_t blocks = ((TILES + MOST - 1) / MOST + threads - 1) / threads * threads;
  const int64_t size = ((TILES + blocks - 1) / blocks + LEAST - 1) / LEAST * LEAST;
  blocks = (TILES + size - 1) / size;
  #pragma omp parallel if (16 * TILES * IN * OUT > SHORT)
  {
    static thread_local std::unique_ptr<float, void (*)(void*)> scratch(nullptr, std::free);
    static thread_local int64_t held = 0;
    if (held < size * 16 * (IN + P)) {
      held = size * 16 * (IN + P);
      scratch.reset(static_cast<float*>(std::aligned_alloc(64, (held * 4 + 63) / 64 * 64)));
      TORCH_CHECK(scratch, "no memory for a convolution");
    }
    float *v = scratch.get(), *m = v + size * 16 * IN;
    #pragma omp for schedule(dynamic)
    for (int64_t block = 0; block < blocks; block++) {
      const int64_t first = block * size, count = TILES - first < size ? TILES - first : size;
      const int64_t whole = (count + LEAST - 1) / LEAST * LEAST;
      for (int64_t t = 0; t < whole; t++) {
        const int64_t n = (first + t) / (DOWN * ACROSS), top = (first + t) / ACROSS % DOWN * 2 - PAD_Y, left = (first + t) % ACROSS * 2 - PAD_X;
        const float* pixels[16];
        for (int64_t i = 0; i < 4; i++) for (int64_t j = 0; j < 4; j++) {
          const int64_t row = top + i, column = left + j;
          const bool inside = t < count && row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
          pixels[i * 4 + j] = inside ? x + ((n * HEIGHT + row) * WIDTH + column) * IN : zeros;
        }
        winograd_inputs<IN>(pixels, v + t * IN, size * IN);
      }
      for (int64_t panel = 0; panel < OUT / P; panel++) {
        for (int64_t p = 0; p < 16; p++) for (int64_t t = 0; t < whole; t += LEAST) {
          F sums[LEAST][Panel<OUT>::REGISTERS];
          multiply<LEAST, Panel<OUT>::REGISTERS, IN>(v + (p * size + t) * IN, IN, u + (panel * 16 + p) * IN * P, sums);
          _Pragma("GCC unroll 12") for (int i = 0; i < LEAST; i++) _Pragma("GCC unroll 2") for (int j = 0; j < Panel<OUT>::REGISTERS; j++)
            store(m + (p * size + t + i) * P + j * LANES, sums[i][j]);
        }
        for (int64_t t = 0; t < count; t++) {
          const int64_t n = (first + t) / (DOWN * ACROSS), top = (first + t) / ACROSS % DOWN * 2, left = (first + t) % ACROSS * 2;
          F spoilt = F{};
          for (int64_t lane = 0; lane < P; lane += LANES) {
            const F added = bias ? load(bias + panel * P + lane) : F{};
            F s[2][4];
            _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
              const float* from = m + (j * size + t) * P + lane;
              const F b = load(from + 4 * size * P), c = load(from + 8 * size * P);
              s[0][j] = load(from) + b + c;
              s[1][j] = b - c - load(from + 12 * size * P);
            }
            _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) {
              float* to = out + ((n * ROWS + top + i) * COLUMNS + left) * OUT + panel * P + lane;
              const F here = s[i][0] + s[i][1] + s[i][2] + added, right = s[i][1] - s[i][2] - s[i][3] + added;
              if (top + i < ROWS) store(to, here);
              if (top + i < ROWS && left + 1 < COLUMNS) store(to + OUT, right);
              spoilt += (here - here) + (right - right);  // 0, or NaN
            }
          }
          const auto wrong = bits<std::array<uint32_t, LANES>>(spoilt != spoilt);
          uint32_t any = 0;
          for (uint32_t each : wrong) any |= each;
          if (C10_UNLIKELY(any)) {
            for (int64_t i = 0; i < 2 && top + i < ROWS; i++) for (int64_t j = 0; j < 2 && left + j < COLUMNS; j++)
              plain_convolution<HEIGHT, WIDTH, IN, P>(
                  x + n * HEIGHT * WIDTH * IN, w, bias, panel * P, top + i - PAD_Y, left + j - PAD_X,
                  out + ((n * ROWS + top + i) * COLUMNS + left + j) * OUT + panel * P);
          }
        }
      }
    }
  }
}
}  // namespace kw
