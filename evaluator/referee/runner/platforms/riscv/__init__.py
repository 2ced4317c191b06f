"""Platform `riscv` in a runner: programs are built of symbolic arrays; another runner compiles them and runs them."""
