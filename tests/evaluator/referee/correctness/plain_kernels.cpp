// Kernels of every category as a model writes them first: libm, one plain loop, float32 accumulators, `omp simd` sums.
// Nothing is clever, so the accuracy rule may refuse none of them.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" {

void gelu(const float* x, float* out, int64_t n) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

void silu(const float* x, float* out, int64_t n) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) out[i] = x[i] / (1.0f + expf(-x[i]));
}

void mish(const float* x, float* out, int64_t n) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * tanhf(x[i] > 20.0f ? x[i] : log1pf(expf(x[i])));
}

void scaled_and_shifted(const float* x, const float* row, const float* column, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) out[i * m + j] = x[i * m + j] * row[j] + column[i];
}

void distance_root(const float* a, const float* b, float* out, int64_t n) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) out[i] = sqrtf(a[i] * a[i] + b[i] * b[i]) * cosf(a[i]);
}

void conv3x3(const float* x, const float* w, float* out, int64_t batch, int64_t in, int64_t channels, int64_t size) {
#pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < batch; b++)
        for (int64_t o = 0; o < channels; o++)
            for (int64_t y = 0; y < size - 2; y++)
                for (int64_t z = 0; z < size - 2; z++) {
                    float sum = 0.0f;
                    for (int64_t c = 0; c < in; c++)
                        for (int64_t u = 0; u < 3; u++)
                            for (int64_t v = 0; v < 3; v++)
                                sum += x[((b * in + c) * size + y + u) * size + z + v] * w[((o * in + c) * 3 + u) * 3 + v];
                    out[((b * channels + o) * (size - 2) + y) * (size - 2) + z] = sum;
                }
}

void bias_gelu_residual(const float* x, const float* bias, const float* other, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            float v = x[i * m + j] + bias[j];
            out[i * m + j] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v))) + other[i * m + j];
        }
}

void cross_entropy(const float* x, const int64_t* target, float* out, int64_t n, int64_t m) {
    float loss = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        float most = x[i * m], sum = 0.0f;
        for (int64_t j = 0; j < m; j++)
            if (!(x[i * m + j] <= most)) most = x[i * m + j];
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < m; j++) sum += expf(x[i * m + j] - most);
        loss += most + logf(sum) - x[i * m + target[i]];
    }
    *out = loss / n;
}

void mean_squared(const float* a, const float* b, float* out, int64_t n) {
    float sum = 0.0f;
#pragma omp parallel for simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    *out = sum / n;
}

void product(const float* a, const float* b, float* out, int64_t n, int64_t k, int64_t m) {
    memset(out, 0, n * m * sizeof(float));
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < m; j++) out[i * m + j] += a[i * k + l] * b[l * m + j];
}

void layer_norm(const float* x, const float* w, const float* b, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        const float* row = x + i * m;
        float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < m; j++) sum += row[j];
        float mean = sum / m;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < m; j++) squares += (row[j] - mean) * (row[j] - mean);
        float scale = 1.0f / sqrtf(squares / m + 1e-5f);
        for (int64_t j = 0; j < m; j++) out[i * m + j] = (row[j] - mean) * scale * w[j] + b[j];
    }
}

void rms_norm(const float* x, const float* w, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < m; j++) squares += x[i * m + j] * x[i * m + j];
        float scale = 1.0f / sqrtf(squares / m + 1e-6f);
        for (int64_t j = 0; j < m; j++) out[i * m + j] = x[i * m + j] * scale * w[j];
    }
}

void adam(const float* p, const float* g, const float* m, const float* v, float* po, float* mo, float* vo, int64_t n) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        mo[i] = 0.9f * m[i] + 0.1f * g[i];
        vo[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
        po[i] = p[i] - 1e-2f * mo[i] / (sqrtf(vo[i]) + 1e-8f);
    }
}

void average_pool(const float* x, float* out, int64_t planes, int64_t size) {
    int64_t half = size / 2;
#pragma omp parallel for
    for (int64_t p = 0; p < planes; p++)
        for (int64_t y = 0; y < half; y++)
            for (int64_t z = 0; z < half; z++) {
                const float* at = x + (p * size + 2 * y) * size + 2 * z;
                out[(p * half + y) * half + z] = (at[0] + at[1] + at[size] + at[size + 1]) * 0.25f;
            }
}

void max_pool(const float* x, float* out, int64_t planes, int64_t size) {
    int64_t half = size / 2;
#pragma omp parallel for
    for (int64_t p = 0; p < planes; p++)
        for (int64_t y = 0; y < half; y++)
            for (int64_t z = 0; z < half; z++) {
                float most = -INFINITY;
                for (int64_t u = 0; u < 2; u++)
                    for (int64_t v = 0; v < 2; v++) {
                        float found = x[(p * size + 2 * y + u) * size + 2 * z + v];
                        if (found > most || std::isnan(found)) most = found;
                    }
                out[(p * half + y) * half + z] = most;
            }
}

void rows_added(const float* x, const int64_t* index, float* out, int64_t n, int64_t m, int64_t rows) {
    memset(out, 0, rows * m * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) out[index[i] * m + j] += x[i * m + j];
}

void twice_as_large(const float* x, float* out, int64_t planes, int64_t size) {
    int64_t wide = 2 * size;
#pragma omp parallel for
    for (int64_t p = 0; p < planes; p++)
        for (int64_t y = 0; y < wide; y++)
            for (int64_t z = 0; z < wide; z++) {
                float fy = fmaxf((y + 0.5f) * 0.5f - 0.5f, 0.0f), fz = fmaxf((z + 0.5f) * 0.5f - 0.5f, 0.0f);
                int64_t y0 = (int64_t)fy, z0 = (int64_t)fz;
                int64_t y1 = y0 + (y0 < size - 1), z1 = z0 + (z0 < size - 1);
                float u = fy - y0, v = fz - z0;
                const float* at = x + p * size * size;
                float top = at[y0 * size + z0] * (1 - v) + at[y0 * size + z1] * v;
                float low = at[y1 * size + z0] * (1 - v) + at[y1 * size + z1] * v;
                out[(p * wide + y) * wide + z] = top * (1 - u) + low * u;
            }
}

void row_sum(const float* x, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < m; j++) sum += x[i * m + j];
        out[i] = sum;
    }
}

void row_variance(const float* x, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f, squares = 0.0f;
        for (int64_t j = 0; j < m; j++) sum += x[i * m + j];
        float mean = sum / m;
        for (int64_t j = 0; j < m; j++) squares += (x[i * m + j] - mean) * (x[i * m + j] - mean);
        out[i] = squares / (m - 1);
    }
}

void log_sum_exp(const float* x, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float most = x[i * m], sum = 0.0f;
        for (int64_t j = 0; j < m; j++)
            if (!(x[i * m + j] <= most)) most = x[i * m + j];
        float base = std::isinf(most) ? 0.0f : most;
        for (int64_t j = 0; j < m; j++) sum += expf(x[i * m + j] - base);
        out[i] = base + logf(sum);
    }
}

void attention(const float* q, const float* k, const float* v, float* out, int64_t heads, int64_t n, int64_t d) {
    float scale = 1.0f / sqrtf((float)d);
#pragma omp parallel for collapse(2)
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < n; i++) {
            std::vector<float> score(n);
            const float *row = q + (h * n + i) * d, *keys = k + h * n * d, *values = v + h * n * d;
            float most = -INFINITY, sum = 0.0f, *to = out + (h * n + i) * d;
            for (int64_t j = 0; j < n; j++) {
                float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
                for (int64_t c = 0; c < d; c++) dot += row[c] * keys[j * d + c];
                score[j] = dot * scale;
                if (!(score[j] <= most)) most = score[j];
            }
            memset(to, 0, d * sizeof(float));
            for (int64_t j = 0; j < n; j++) {
                float weight = expf(score[j] - most);
                sum += weight;
                for (int64_t c = 0; c < d; c++) to[c] += weight * values[j * d + c];
            }
            for (int64_t c = 0; c < d; c++) to[c] /= sum;
        }
}

void running_sum(const float* x, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int64_t j = 0; j < m; j++) out[i * m + j] = sum += x[i * m + j];
    }
}

void running_product(const float* x, float* out, int64_t n, int64_t m) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        float product = 1.0f;
        for (int64_t j = 0; j < m; j++) out[i * m + j] = product *= x[i * m + j];
    }
}
}
