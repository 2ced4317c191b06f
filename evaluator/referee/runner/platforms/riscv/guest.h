/* The parts of a guest that C cannot express, for RISC-V. */

static inline long call(long number, long a, long b, long c, long d, long e, long f) {
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a3 __asm__("a3") = d;
    register long a4 __asm__("a4") = e, a5 __asm__("a5") = f, a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(a7) : "memory");
    return a0;
}

static inline void set_thread_pointer(char *area) { __asm__ volatile("mv tp, %0" : : "r"(area)); }

#define SWITCH_STACK_AND_RUN(stack) __asm__ volatile("mv sp, %0\n\tj run_all" : : "r"(stack))

static inline void watch_memory(void) {} /* the plugin sees each access */

__asm__(".globl _start\n.type _start,@function\n_start:\n\tmv a0, sp\n\tj begin\n");
