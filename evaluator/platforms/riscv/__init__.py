"""Platform `riscv`: C with vectors of any length, counted under an emulator."""
