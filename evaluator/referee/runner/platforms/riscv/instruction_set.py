"""RISC-V with vectors."""

from pathlib import Path

from ..emulated.instruction_set import InstructionSet

RISCV = InstructionSet(
    name="riscv",
    folder=Path(__file__).parent,
    target=("--target=riscv64-linux-gnu", "-march=rv64gcv_zba_zbb_zbs_zfh", "-mabi=lp64d", "-std=gnu17"),
    sysroot=Path("/usr/riscv64-linux-gnu"),
    library="libc6-dev-riscv64-cross",
    emulator="qemu-riscv64",
    cpu="rv64,v=true,vlen={vlen},elen=64,vext_spec=v1.0,Zfh=true",
    kinds=("total", "vector arithmetic", "vector memory", "vector set", "scalar float", "scalar memory"),
    trap="ebreak: a trap, or a call of the emulator",
    untranslated=": the emulator cannot translate an instruction; QEMU 7.2 cannot do vfcvt.rtz (see the rules)",
)
