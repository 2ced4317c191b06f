// What a call takes longer because of the state of the caches: y = a / 2 + b over n floats by all cores, repeated, and
// after what happens between two timed calls. Build and run: gcc -O3 -march=native -fopenmp -o /tmp/caches caches.c &&
// OMP_PROC_BIND=true /tmp/caches 1250000
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { TIMES = 101, PLACES = 8, PAGES = 6000, PAGE = 4096 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static char *memory(size_t bytes) {
    char *found = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(found, 1, bytes);
    return found;
}

static void call(const float *a, const float *b, float *y, size_t count) {
    #pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) y[i] = a[i] * 0.5f + b[i];
}

// Not by memcpy, which may go past the caches. By the first core alone, or each part by the core whose part of a call it is.
static void copy(float *to, const float *from, size_t count, int alone) {
    #pragma omp parallel for schedule(static) num_threads(alone ? 1 : omp_get_max_threads())
    for (size_t i = 0; i < count / 16; i++) {
        for (size_t j = 0; j < 16; j++) to[16 * i + j] = from[16 * i + j];
        __asm__ volatile("" ::: "memory");
    }
}

int main(int argc, char **argv) {
    size_t count = argc > 1 ? strtoul(argv[1], 0, 10) : 1250000, inputs = 2 * count;
    float *places = (float *)memory(PLACES * inputs * sizeof(float)), *fresh = (float *)memory(PLACES * inputs * sizeof(float));
    float *y = (float *)memory(count * sizeof(float)), *read = (float *)memory(count * sizeof(float));
    volatile char *pages = memory((size_t)PAGES * PAGE);
    const char *names[] = {
        "the same call just before",
        "and other pages touched by every core since",
        "inputs written anew at the same place",
        "inputs written anew at the next of eight places",
        "and the outputs read before",
        "the same, each part by the core that works on it",
    };
    printf("| before the call | µs, median | middle half |\n|---|---|---|\n");
    for (int way = 0; way < 6; way++) {
        double took_us[TIMES];
        for (int time = 0; time < TIMES; time++) {
            size_t place = way > 2 ? time % PLACES * inputs : 0;
            float *a = places + place;
            if (way < 2) call(a, a + count, y, count);
            if (way == 1) {
                #pragma omp parallel
                for (size_t page = 0; page < PAGES; page++) (void)pages[page * PAGE + page % 64 * 64];
            }
            if (way > 3) copy(read, y, count, way == 4);
            for (size_t each = 0; way > 1 && each < 2; each++)
                copy(a + each * count, fresh + place + each * count, count, way < 5);
            double start = now_us();
            call(a, a + count, y, count);
            took_us[time] = now_us() - start;
        }
        qsort(took_us, TIMES, sizeof *took_us, compare);
        printf("| %s | %.0f | %.0f to %.0f |\n", names[way], took_us[TIMES / 2], took_us[TIMES / 4], took_us[TIMES * 3 / 4]);
    }
    return 0;
}
