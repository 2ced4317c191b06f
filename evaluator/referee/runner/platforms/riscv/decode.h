/* What the plugin has to know of an instruction of RISC-V. */

enum kind { TOTAL, VECTOR_ARITHMETIC, VECTOR_MEMORY, VECTOR_SET, SCALAR_FLOAT, SCALAR_MEMORY, KINDS };

/* The kind of an instruction beside TOTAL; 0: none that is counted apart. Compressed loads and stores count as memory. */
static enum kind kind_of(const uint8_t *data, size_t size) {
    if (size == 2) {
        unsigned half = data[0] | data[1] << 8, quadrant = half & 3, function = half >> 13;
        if (quadrant == 1 || function == 0 || function == 4) return TOTAL;
        return function == 1 || function == 5 ? SCALAR_FLOAT : SCALAR_MEMORY;
    }
    uint32_t word = data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24;
    unsigned opcode = word & 0x7f, width = word >> 12 & 7;
    switch (opcode) {
    case 0x57: return width == 7 ? VECTOR_SET : VECTOR_ARITHMETIC;
    case 0x07:
    case 0x27: return width == 0 || width >= 5 ? VECTOR_MEMORY : SCALAR_FLOAT;
    case 0x43:
    case 0x47:
    case 0x4b:
    case 0x4f:
    case 0x53: return SCALAR_FLOAT;
    case 0x03:
    case 0x23:
    case 0x2f: return SCALAR_MEMORY;
    default: return TOTAL;
    }
}

/* An instruction that leaves the machine for the emulator (ebreak begins its semihosting). */
static _Bool traps(const uint8_t *data, size_t size) {
    if (size == 2) return data[0] == 0x02 && data[1] == 0x90;
    return data[0] == 0x73 && data[1] == 0x00 && data[2] == 0x10 && data[3] == 0x00;
}

/* An instruction that reads a clock, a counter or random numbers, which would make a run unlike the next one. */
static _Bool reads_clock(const uint8_t *data, size_t size) {
    if (size != 4 || (data[0] & 0x7f) != 0x73 || (data[1] >> 4 & 7) == 0) return 0;
    unsigned csr = data[3] << 4 | data[2] >> 4;
    return (csr >= 0xc00 && csr < 0xc20) || (csr >= 0xc80 && csr < 0xca0) || csr == 0x015;
}
