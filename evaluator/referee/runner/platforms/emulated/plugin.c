/* The TCG plugin of emulated platforms: counts the instructions that a guest executes, and holds it to its memory.

   The guest is foreign code in qemu-user, whose loads and stores go to the memory of the emulator's own process. So every
   access is compared with a table of the ranges that the guest may use, and every system call is refused but those of
   `driver.c`. The first violation ends the process. An access is seen after it has happened: a guest has one blind access
   to an address that it cannot know, as the kernel places the emulator at random. Of arm64, QEMU 7.2 shows no accesses of
   vectors, but checks that their pages are the guest's: the guest's handler of signals tells of those that are not.

   The report is memory that the guest has no mapping of. The launcher (`guest.py`) writes the ranges there and reads the
   counts. Freestanding but for a few functions of the C library that the emulator has loaded, so that no headers of the
   host are needed. API version 1, QEMU 6 to 9. */
#include <stddef.h>
#include <stdint.h>

#include "decode.h"

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint32_t meminfo;
int qemu_plugin_version = 1;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, meminfo, uint64_t, void *), int, int,
                                      void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(meminfo);
_Bool qemu_plugin_mem_is_store(meminfo);
void *mmap(void *, size_t, int, int, int, long);
_Noreturn void _exit(int);

enum { RANGES = 512, LAPS = 256, NO_REGISTERS = 0, READ_AND_WRITE = 3, ADD = 0, ENDED = 97 };
enum { MMAP = 222, SIGACTION = 134, SIGALTSTACK = 132, EXIT_GROUP = 94, ARM = 19287, LAP = 19288, FAULT = 19289 };
enum { READABLE = 1, WRITABLE = 2 };
enum fault { NONE, READ_OUTSIDE, WRITE_OUTSIDE, SYSTEM_CALL, TRAP, CLOCK, TOUCHED };

struct range {
    uint64_t start, end, allows;
};
struct report {
    uint64_t armed, finished, fault, address, size, pc;
    uint64_t loaded_bytes, stored_bytes, lap_count;
    uint64_t counts[KINDS];
    uint64_t laps[LAPS];
    uint64_t range_count;
    struct range ranges[RANGES];
};

static struct report *report;
static struct range ranges[RANGES];
static uint64_t range_count, counts[KINDS], loaded_bytes, stored_bytes, hint;
static _Bool armed;

static _Noreturn void end(enum fault fault, uint64_t pc, uint64_t address, uint64_t size) {
    report->pc = pc;
    report->address = address;
    report->size = size;
    report->fault = fault;
    _exit(ENDED);
}

static void on_memory(unsigned cpu, meminfo info, uint64_t address, void *pc) {
    if (!armed) return;
    uint64_t size = 1ull << qemu_plugin_mem_size_shift(info), last = address + size;
    _Bool store = qemu_plugin_mem_is_store(info);
    if (store) stored_bytes += size;
    else loaded_bytes += size;
    uint64_t needs = store ? WRITABLE : READABLE;
    const struct range *near = &ranges[hint];
    if (address >= near->start && last <= near->end && last > address && (near->allows & needs)) return;
    for (uint64_t i = 0; i < range_count; i++)
        if (address >= ranges[i].start && last <= ranges[i].end && last > address && (ranges[i].allows & needs)) {
            hint = i;
            return;
        }
    end(store ? WRITE_OUTSIDE : READ_OUTSIDE, (uint64_t)pc, address, size);
}

static void on_trap(unsigned cpu, void *pc) { end(TRAP, (uint64_t)pc, 0, 0); }
static void on_clock(unsigned cpu, void *pc) { end(CLOCK, (uint64_t)pc, 0, 0); }

static void on_translation(plugin_id id, struct qemu_plugin_tb *block) {
    uint64_t kinds[KINDS] = {0};
    size_t number = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < number; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        const uint8_t *data = qemu_plugin_insn_data(insn);
        size_t size = qemu_plugin_insn_size(insn);
        void *pc = (void *)qemu_plugin_insn_vaddr(insn);
        enum kind kind = kind_of(data, size);
        kinds[TOTAL]++;
        if (kind != TOTAL) kinds[kind]++;
        if (traps(data, size)) qemu_plugin_register_vcpu_insn_exec_cb(insn, on_trap, NO_REGISTERS, pc);
        if (reads_clock(data, size)) qemu_plugin_register_vcpu_insn_exec_cb(insn, on_clock, NO_REGISTERS, pc);
        qemu_plugin_register_vcpu_mem_cb(insn, on_memory, NO_REGISTERS, READ_AND_WRITE, pc);
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (kinds[kind]) qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &counts[kind], kinds[kind]);
}

static void lap(void) {
    if (report->lap_count < LAPS) report->laps[report->lap_count++] = counts[TOTAL];
}

static void on_system_call(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                           uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    if (!armed) {
        if (number == ARM) {
            for (int kind = 0; kind < KINDS; kind++) counts[kind] = 0;
            loaded_bytes = stored_bytes = 0;
            armed = 1;
            report->armed = 1;
            return;
        }
        if (number == MMAP || number == SIGACTION || number == SIGALTSTACK) return;
        end(SYSTEM_CALL, 0, (uint64_t)number, 0);
    }
    if (number == LAP) {
        lap();
        return;
    }
    if (number == FAULT) end(TOUCHED, b, a, 0);
    if (number != EXIT_GROUP) end(SYSTEM_CALL, 0, (uint64_t)number, 0);
    for (int kind = 0; kind < KINDS; kind++) report->counts[kind] = counts[kind];
    report->loaded_bytes = loaded_bytes;
    report->stored_bytes = stored_bytes;
    report->finished = 1;
    _exit(0);
}

static long digits(const char *text) {
    long value = 0;
    while (*text >= '0' && *text <= '9') value = 10 * value + (*text++ - '0');
    return value;
}

int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments) {
    if (count != 1) return -1;
    const char *text = arguments[0]; /* report=FD */
    while (*text && *text != '=') text++;
    report = mmap(0, sizeof *report, 3, 1, (int)digits(text + (*text == '=')), 0);
    if (report == (void *)-1 || report->range_count > RANGES) return -1;
    range_count = report->range_count;
    for (uint64_t i = 0; i < range_count; i++) ranges[i] = report->ranges[i];
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_system_call);
    return 0;
}
