"""Platform `riscv`: C with RISC-V's vector intrinsics, under qemu-user. Its figures are executed instructions."""

from pathlib import Path

from evaluator.platforms.emulated.platform import EmulatedPlatform
from evaluator.platforms.riscv.image import RECIPE

RISCV = EmulatedPlatform(
    name="riscv",
    language="C17 with RISC-V vector intrinsics or assembly (module `riscv`), compiled by clang 19",
    folder=Path(__file__).parent,
    recipe=RECIPE,
    machine="RISC-V with vectors, emulated",
    instruction_set="rv64gcv with Zba, Zbb, Zbs and Zfh, vectors 1.0 with elements of up to 64 bits",
    emulator="qemu-riscv64",
    library="libc6-dev-riscv64-cross",
    vector_traffic=True,
)
