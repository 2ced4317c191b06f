// What handing work over to another process takes at least: shared memory and a futex, with and without stopping the
// process between calls as the referee does. Build and run: gcc -O2 -o /tmp/handover handover.c && /tmp/handover
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 4000 };
typedef struct { _Atomic uint32_t asked, answered; } Shared;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void wait_while(_Atomic uint32_t *word, uint32_t value) {
    while (atomic_load(word) == value) syscall(SYS_futex, word, FUTEX_WAIT, value, 0, 0, 0);
}

static void set(_Atomic uint32_t *word, uint32_t value) {
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0);
}

static int stopped(int pid) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY);
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    char *end = strrchr(text, ')');
    return end && end[2] == 'T';
}

static void use_core(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(int same_core, int stop) {
    Shared *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int pid = fork();
    if (!pid) {
        use_core(1);
        for (uint32_t call = 0;; call++) {
            wait_while(&shared->asked, call);
            set(&shared->answered, call + 1);
        }
    }
    use_core(same_core);
    if (stop) {
        kill(pid, SIGSTOP);
        while (!stopped(pid)) sched_yield();
    }
    static double answered_us[CALLS], all_us[CALLS];
    for (int call = 0; call < CALLS; call++) {
        usleep(200);
        double start = now_us();
        if (stop) kill(pid, SIGCONT);
        set(&shared->asked, call + 1);
        wait_while(&shared->answered, call);
        answered_us[call] = now_us() - start;
        if (stop) {
            kill(pid, SIGSTOP);
            while (!stopped(pid)) sched_yield();
        }
        all_us[call] = now_us() - start;
    }
    kill(pid, SIGKILL);
    qsort(answered_us, CALLS, sizeof *answered_us, compare);
    qsort(all_us, CALLS, sizeof *all_us, compare);
    printf("| %s | %s | %.1f | %.1f | %.1f |\n", same_core ? "the same core" : "another core",
           stop ? "stopped between calls" : "never stopped", answered_us[CALLS / 2], all_us[CALLS / 2],
           all_us[CALLS * 9 / 10]);
}

int main(void) {
    printf("| referee on | process | answer seen, µs | and stopped, µs | 90 %% within, µs |\n|---|---|---|---|---|\n");
    for (int same_core = 0; same_core < 2; same_core++)
        for (int stop = 0; stop < 2; stop++) measure(same_core, stop);
}
