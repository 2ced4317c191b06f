/* The parts of a guest that C cannot express, for arm64. */

static inline long call(long number, long a, long b, long c, long d, long e, long f) {
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e, x5 __asm__("x5") = f, x8 __asm__("x8") = number;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8) : "memory");
    return x0;
}

static inline void set_thread_pointer(char *area) { __asm__ volatile("msr tpidr_el0, %0" : : "r"(area)); }

#define SWITCH_STACK_AND_RUN(stack) __asm__ volatile("mov sp, %0\n\tb run_all" : : "r"(stack))

/* An access of a vector to a page that the guest has not mapped is a signal: the handler tells the plugin which address
   it was, and which instruction (`si_addr`, and `pc` behind the fault's address, 31 registers and sp in the context). */
static char signal_stack[64 << 10] __attribute__((aligned(64)));

static void on_signal(int number, const char *info, const char *context) {
    call(FAULT, *(const long *)(info + 16), *(const long *)(context + 440), 0, 0, 0, 0);
}

static inline void watch_memory(void) {
    enum { SIGSEGV = 11, SIGACTION = 134, SIGALTSTACK = 132, SIGINFO = 4, ON_STACK = 0x08000000 };
    struct {
        void *start;
        long flags;
        unsigned long size;
    } stack = {signal_stack, 0, sizeof signal_stack};
    struct {
        void (*handler)(int, const char *, const char *);
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } action = {on_signal, SIGINFO | ON_STACK, 0, 0};
    if (call(SIGALTSTACK, (long)&stack, 0, 0, 0, 0, 0) || call(SIGACTION, SIGSEGV, (long)&action, 0, 8, 0, 0))
        __builtin_trap();
}

__asm__(".globl _start\n.type _start,@function\n_start:\n\tmov x0, sp\n\tb begin\n");
