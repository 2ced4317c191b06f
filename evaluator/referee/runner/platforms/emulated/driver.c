/* What runs before a candidate's kernels in the guest: it maps the arena and calls the kernels one after the other.

   `guest.py` lays the arena out and generates `kw_launch`, which calls kernel number `index`. Three system calls of no
   Linux tell the plugin where counting begins, where a launch has ended, and where memory was touched that is not mapped. */
#include <stdint.h>

#define ARENA 0x4000000000ul
enum { MMAP = 222, EXIT_GROUP = 94, ARM = 19287, LAP = 19288, FAULT = 19289 };
enum { LOCAL_BYTES = 4096 + 64, MAPPINGS = 0x60000 };

union argument {
    void *pointer;
    int64_t integer;
    double number;
};
struct launch {
    uint64_t index;
    union argument arguments[31];
};
struct header {
    uint64_t launch_count, stack_end;
    struct launch launches[];
};
struct mappings { /* of the arena beside the one that the program's arguments tell; lies at MAPPINGS in the header */
    uint64_t count;
    struct {
        uint64_t offset, size, rights;
    } each[];
};
void kw_launch(uint64_t index, const union argument *arguments);
static char thread_local_area[LOCAL_BYTES] __attribute__((aligned(64)));

#include "guest.h"

__attribute__((used, noreturn)) static void run_all(void) {
    const struct header *header = (const struct header *)ARENA;
    set_thread_pointer(thread_local_area);
    call(ARM, 0, 0, 0, 0, 0, 0);
    for (uint64_t i = 0; i < header->launch_count; i++) {
        kw_launch(header->launches[i].index, header->launches[i].arguments);
        call(LAP, 0, 0, 0, 0, 0, 0);
    }
    for (;;) call(EXIT_GROUP, 0, 0, 0, 0, 0, 0);
}

/* What the compiler and the mathematical functions of the C library call; there is no other part of a C library here. */

_Thread_local int errno;
long __stack_chk_guard = 0x2b992ddfa23249d6;
_Noreturn void __stack_chk_fail(void) { __builtin_trap(); }

void *memset(void *to, int value, unsigned long size) {
    for (unsigned long i = 0; i < size; i++) ((char *)to)[i] = (char)value;
    return to;
}
void *memcpy(void *restrict to, const void *restrict from, unsigned long size) {
    for (unsigned long i = 0; i < size; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memmove(void *to, const void *from, unsigned long size) {
    if ((unsigned long)to - (unsigned long)from >= size) return memcpy(to, from, size);
    for (unsigned long i = size; i-- > 0;) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
int memcmp(const void *one, const void *other, unsigned long size) {
    const unsigned char *a = one, *b = other;
    for (unsigned long i = 0; i < size; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* The number of the arena's descriptor and the size of its first mapping are the arguments of the program. */
__attribute__((used, noreturn)) static void begin(long *stack) {
    long count = stack[0], descriptor = 0, size = 0;
    char **words = (char **)(stack + 1);
    if (count == 3) {
        for (const char *c = words[1]; *c; c++) descriptor = 10 * descriptor + (*c - '0');
        for (const char *c = words[2]; *c; c++) size = 10 * size + (*c - '0');
    }
    enum { READ_WRITE = 3, SHARED_FIXED = 0x11 };
    if (call(MMAP, (long)ARENA, size, READ_WRITE, SHARED_FIXED, descriptor, 0) != (long)ARENA) __builtin_trap();
    const struct mappings *mappings = (const struct mappings *)(ARENA + MAPPINGS);
    for (uint64_t i = 0, count = mappings->count; i < count; i++) {
        uint64_t offset = mappings->each[i].offset;
        if (call(MMAP, (long)(ARENA + offset), (long)mappings->each[i].size, (long)mappings->each[i].rights, SHARED_FIXED,
                 descriptor, (long)offset) != (long)(ARENA + offset))
            __builtin_trap();
    }
    watch_memory();
    const struct header *header = (const struct header *)ARENA;
    SWITCH_STACK_AND_RUN(header->stack_end);
    __builtin_unreachable();
}
