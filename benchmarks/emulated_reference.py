"""Counts what parts of torch's operators take as plain C loops on emulated platforms: tables of their eager baselines.

Each part is a loop over float32 arrays as one writes it in C, which clang vectorises where it can (`-O3 -ffast-math`).
The instructions are counted at each vector length and added up, as a candidate's are. `python -m
benchmarks.emulated_reference riscv` (or `arm64`) prints the table that its `instruction_table.py` holds.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from evaluator.referee.protocol import kernel_program as kp
from evaluator.referee.protocol.instructions import VLENS
from evaluator.referee.runner.platforms.arm64.instruction_set import ARM64
from evaluator.referee.runner.platforms.emulated import guest
from evaluator.referee.runner.platforms.emulated.instruction_set import InstructionSet
from evaluator.referee.runner.platforms.riscv.instruction_set import RISCV

INSTRUCTION_SETS = {each.name: each for each in (RISCV, ARM64)}
ELEMENTS = 1 << 14
SIDE = 64

ONE = {
    "copy": "x[i]",
    "negative": "-x[i]",
    "absolute": "fabsf(x[i])",
    "relu": "x[i] > 0 ? x[i] : 0",
    "reciprocal": "1 / x[i]",
    "sqrt": "sqrtf(x[i])",
    "rsqrt": "1 / sqrtf(x[i])",
    "exp": "expf(x[i])",
    "log": "logf(x[i])",
    "tanh": "tanhf(x[i])",
    "erf": "erff(x[i])",
    "sigmoid": "1 / (1 + expf(-x[i]))",
    "convert": "(float)((const int *)x)[i]",
}
TWO = {
    "add": "x[i] + y[i]",
    "subtract": "x[i] - y[i]",
    "multiply": "x[i] * y[i]",
    "divide": "x[i] / y[i]",
    "maximum": "x[i] > y[i] ? x[i] : y[i]",
    "minimum": "x[i] < y[i] ? x[i] : y[i]",
    "less": "x[i] < y[i]",
    "equal": "x[i] == y[i]",
}
THREE = {"multiply_add": "x[i] * y[i] + z[i]", "select": "x[i] != 0 ? y[i] : z[i]"}
REDUCE = {
    "sum": "s += x[i]",
    "maximum_of": "s = x[i] > s ? x[i] : s",
    "minimum_of": "s = x[i] < s ? x[i] : s",
}
_HEAD = "(const float *x, const float *y, const float *z, float *out, long n)"


def source() -> str:
    """The loops."""
    lines = ["#include <math.h>"]
    for name, body in {**ONE, **TWO, **THREE}.items():
        lines.append(f"void loop_{name}{_HEAD} {{ for (long i = 0; i < n; i++) out[i] = {body}; }}".replace(
            "float *out", "float *restrict out"))  # fmt: skip
    for name, body in REDUCE.items():
        lines.append(f"void loop_{name}{_HEAD} {{ float s = x[0]; for (long i = 0; i < n; i++) {body}; out[0] = s; }}")
    lines.append(
        f"void loop_product{_HEAD.replace('float *out', 'float *restrict out')} {{\n"
        "  for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) out[i * n + j] = 0;\n"
        "  for (long i = 0; i < n; i++) for (long k = 0; k < n; k++)\n"
        "    for (long j = 0; j < n; j++) out[i * n + j] += x[i * n + k] * y[k * n + j];\n}"
    )
    return "\n".join(lines)


def counted(instruction_set: InstructionSet) -> dict[str, int]:
    """Instructions of each loop, at all vector lengths together."""
    names = [*ONE, *TWO, *THREE, *REDUCE, "product"]
    arrays = (kp.Input(0), kp.Input(1), kp.Input(2), kp.Made("float32", (ELEMENTS,)))
    pointers = tuple(map(kp.ArrayArgument, range(4)))
    launches = tuple(kp.Launch(f"loop_{name}", (*pointers, SIDE if name == "product" else ELEMENTS)) for name in names)
    program = kp.Program(source(), ("-O3", "-ffast-math"), arrays, launches, (3,))
    generator = torch.Generator().manual_seed(1)
    given = [torch.rand(ELEMENTS, generator=generator) + 0.1 for _ in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        machine = guest.Machine(instruction_set, Path(folder))
        _, runs = machine.run(program, [each.view(torch.uint8) for each in given], VLENS, timeout_s=120)
    return {name: sum(run.laps[place] for run in runs) for place, name in enumerate(names)}


def table(loops: Mapping[str, int]) -> dict[str, float]:
    """Instructions for a byte that is moved, for an element of each part beside that, and for a FLOP of a product."""
    byte = loops["copy"] / (8 * ELEMENTS)
    found = {"byte": byte}
    for names, tensors in ((ONE, 2), (TWO, 3), (THREE, 4), (REDUCE, 1)):
        for name in names:
            found[name] = max(0.0, loops[name] / ELEMENTS - 4 * tensors * byte)
    del found["copy"]
    found["product"] = loops["product"] / (2 * SIDE**3)
    return {name: round(value, 3) for name, value in found.items()}


if __name__ == "__main__":
    for part, instructions in table(counted(INSTRUCTION_SETS[sys.argv[1]])).items():
        print(f'    "{part}": {instructions},')
