/* What the plugin has to know of an instruction of arm64: fields as in the Arm Architecture Reference Manual, C4. */

enum kind { TOTAL, VECTOR_ARITHMETIC, VECTOR_MEMORY, VECTOR_PREDICATES, SCALAR_FLOAT, SCALAR_MEMORY, KINDS };

static uint32_t word_of(const uint8_t *data) {
    return data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24;
}

/* The kind of an instruction beside TOTAL; 0: none that is counted apart. Loads and stores of 128 bits, and those of
   several elements, count as a vector's. */
static enum kind kind_of(const uint8_t *data, size_t size) {
    uint32_t word = word_of(data), group = word >> 25 & 15;
    if (group == 2) { /* SVE */
        if (word >> 31) return VECTOR_MEMORY;
        _Bool immediate = (word >> 21 & 1) && (word >> 14 & 3) == 3;
        return word >> 24 == 0x25 && !immediate ? VECTOR_PREDICATES : VECTOR_ARITHMETIC;
    }
    if ((group & 7) == 7) return group & 8 ? SCALAR_FLOAT : VECTOR_ARITHMETIC;
    if ((group & 5) != 4) return TOTAL;
    _Bool structure = (word & 0xbe000000) == 0x0c000000;
    _Bool pair = (word >> 27 & 7) == 5, whole = pair ? word >> 30 == 2 : word >> 30 == 0 && (word >> 23 & 1);
    return structure || ((word >> 26 & 1) && whole) ? VECTOR_MEMORY : SCALAR_MEMORY;
}

/* An instruction that leaves the machine for the emulator (hlt begins its semihosting), or whose stores the emulator
   neither checks nor shows: dc zva, and what sets the tags of memory. */
static _Bool traps(const uint8_t *data, size_t size) {
    uint32_t word = word_of(data);
    return (word & 0xffe0001f) == 0xd4400000 || (word & 0xffe0001f) == 0xd4200000 || (word & 0xffd80000) == 0xd5080000 ||
           (word & 0xff200000) == 0xd9200000;
}

/* An instruction that reads or writes a register of the system, but flags, modes of floats, the address of thread-local
   variables and the size of a cache's line: clocks, counters and random numbers would make a run unlike the next one. */
static _Bool reads_clock(const uint8_t *data, size_t size) {
    uint32_t word = word_of(data), number = word >> 5 & 0x7fff;
    enum { NZCV = 0x5a10, FPCR = 0x5a20, FPSR = 0x5a21, TPIDR_EL0 = 0x5e82, DCZID_EL0 = 0x5807 };
    if ((word & 0xffd00000) != 0xd5100000) return 0;
    return number != NZCV && number != FPCR && number != FPSR && number != TPIDR_EL0 && number != DCZID_EL0;
}
