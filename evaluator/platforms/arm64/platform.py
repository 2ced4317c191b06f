"""Platform `arm64`: C with SVE's intrinsics, under qemu-user. Its figures are executed instructions.

Its image is that of platform `riscv`, which holds both emulators and C libraries.
"""

from pathlib import Path

from evaluator.platforms.emulated.platform import EmulatedPlatform
from evaluator.platforms.riscv.image import RECIPE

ARM64 = EmulatedPlatform(
    name="arm64",
    language="C17 with SVE intrinsics or assembly (module `arm64`), compiled by clang 19",
    folder=Path(__file__).parent,
    recipe=RECIPE,
    machine="arm64 with SVE, emulated",
    instruction_set="Armv9-A: Advanced SIMD and SVE2, with half precision, bf16 and i8mm; no SME",
    emulator="qemu-aarch64",
    library="libc6-dev-arm64-cross",
    vector_traffic=False,
)
