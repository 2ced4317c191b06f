"""Armv9 with SVE2."""

from pathlib import Path

from ..emulated.instruction_set import InstructionSet

ARM64 = InstructionSet(
    name="arm64",
    folder=Path(__file__).parent,
    target=("--target=aarch64-linux-gnu", "-march=armv9-a+bf16+i8mm", "-mno-outline-atomics", "-std=gnu17"),
    sysroot=Path("/usr/aarch64-linux-gnu"),
    library="libc6-dev-arm64-cross",
    emulator="qemu-aarch64",
    cpu="max,sve-max-vq={quads},sme=off,pauth=off",
    kinds=("total", "vector arithmetic", "vector memory", "vector predicates", "scalar float", "scalar memory"),
    trap="hlt, brk, dc or a tag's instruction: a trap, or a call of the emulator",
    mapped_by_page=True,
)
