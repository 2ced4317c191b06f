"""What `builtin/compiler` makes of products and convolutions: its kernels and torch's own functions, call by call.

Run: python -m benchmarks.compiled_products
Writes benchmarks/results/compiled_products.md. The calls of both alternate, each behind a pass over 16 MB, which pushes
the operands out of the caches as the rest of a model would. All operands are made here; nothing foreign runs.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.candidate_file import DEFAULT_FLAGS, cpp_source
from agents.builtin.runtime_kernels import runtime_kernel
from evaluator.platforms import load_platform

RESULTS = Path(__file__).parent / "results" / "compiled_products.md"
PRODUCTS = (  # rows, terms of a sum, columns
    *((2, 12288, 256), (16, 384, 384), (16, 384, 1536), (16, 1536, 384), (64, 256, 768), (256, 256, 704)),
    *((256, 704, 256), (1024, 256, 768), (2048, 256, 256), (4096, 128, 64), (4096, 256, 128)),
)
CONVOLUTIONS = (  # images, height, width, channels of the input and of the result
    *((6, 20, 20, 128, 128), (2, 64, 64, 48, 48), (2, 32, 32, 48, 96), (2, 32, 32, 96, 96)),
    *((2, 16, 16, 96, 192), (2, 16, 16, 192, 192), (1, 7, 7, 512, 512)),
)
CALLS = 60
ABOUT = """# Products and convolutions of `builtin/compiler`

Medians of alternating calls, and the quotient of the medians. `error`: the largest, as a share of the largest result,
against float64. The weights are packed or changed before, as in a candidate's first call.
"""


@dataclass(frozen=True)
class Case:
    """One call by torch and by a kernel, its result in float64, and the multiplications that it stands for."""

    name: str
    by_torch: Callable[[], torch.Tensor]
    by_kernel: Callable[[], torch.Tensor]
    exact: torch.Tensor
    multiplications: float


def build(kernels: list[Kernel], folder: Path) -> ctypes.CDLL:
    """The kernels, compiled as those of a candidate are."""
    vector_bytes = {"AVX512": 64, "AVX2": 32}.get(torch.backends.cpu.get_cpu_capability(), 16)
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text(cpp_source(kernels, vector_bytes))
    fixed = ["-std=c++17", "-shared", "-fPIC", "-fopenmp", "-Wno-psabi"]
    subprocess.run(["g++", *DEFAULT_FLAGS, *fixed, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def kernels() -> list[Kernel]:
    """Those of all cases: what prepares the weights, and what computes."""
    made = []
    for number, (rows, terms, columns) in enumerate(PRODUCTS):
        pack = runtime_kernel("pack_matrix", (terms, columns, 1, terms), 1)
        product = runtime_kernel("packed_product", (rows, terms, columns, terms, 0, columns), 3)
        made += [replace(pack, name=f"pack_{number}"), replace(product, name=f"product_{number}")]
    for number, (images, height, width, inputs, outputs) in enumerate(CONVOLUTIONS):
        weights = runtime_kernel("winograd_weights", (inputs, outputs), 1)
        convolution = runtime_kernel("winograd", (images, height, width, inputs, outputs, 1, 1), 4)
        made += [replace(weights, name=f"weights_{number}"), replace(convolution, name=f"winograd_{number}")]
    return made


def cases(library: ctypes.CDLL) -> list[Case]:
    """All cases, with operands of normal random numbers."""

    def run(name: str, *operands: torch.Tensor) -> torch.Tensor:
        getattr(library, name)(*(ctypes.c_void_p(operand.data_ptr()) for operand in operands))
        return operands[-1]

    found = []
    for number, (rows, terms, columns) in enumerate(PRODUCTS):
        x, weight, bias = torch.randn(rows, terms), torch.randn(columns, terms) / terms**0.5, torch.randn(columns)
        packed = run(f"pack_{number}", weight, torch.empty(terms * columns))
        out, own = torch.empty(rows, columns), torch.empty(rows, columns)
        found.append(
            Case(
                f"({rows}, {terms}) x ({terms}, {columns}) + bias",
                lambda x=x, weight=weight, bias=bias, out=out: torch.addmm(bias, x, weight.t(), out=out),
                lambda n=number, x=x, packed=packed, bias=bias, own=own: run(f"product_{n}", x, packed, bias, own),
                torch.addmm(bias.double(), x.double(), weight.double().t()),
                float(rows * terms * columns),
            )
        )
    last = torch.channels_last
    for number, (images, height, width, inputs, outputs) in enumerate(CONVOLUTIONS):
        x = torch.randn(images, inputs, height, width).to(memory_format=last)
        weight, bias = torch.randn(outputs, inputs, 3, 3) / (9 * inputs) ** 0.5, torch.randn(outputs)
        changed = run(f"weights_{number}", weight, torch.empty(16 * inputs * outputs))
        same, own = weight.to(memory_format=last), torch.empty(images, outputs, height, width, memory_format=last)
        operands = (x, changed, weight, bias, own)
        found.append(
            Case(
                f"convolution of {images} x {height} x {width}, {inputs} to {outputs} channels",
                lambda x=x, same=same, bias=bias: torch.conv2d(x, same, bias, padding=1),
                lambda n=number, operands=operands: run(f"winograd_{n}", *operands),
                torch.conv2d(x.double(), weight.double(), bias.double(), padding=1),
                float(images * height * width * inputs * outputs * 9),
            )
        )
    return found


def row(case: Case) -> str:
    """One line of the table."""
    pushed = torch.zeros(4 * 1024 * 1024)
    seconds: dict[str, list[float]] = {"torch": [], "kernel": []}
    for _ in range(CALLS):
        for name, call in (("torch", case.by_torch), ("kernel", case.by_kernel)):
            pushed += 1
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    torch_s, kernel_s = (statistics.median(seconds[name]) for name in ("torch", "kernel"))
    errors = [
        float((result().double() - case.exact).abs().max() / case.exact.abs().max())
        for result in (case.by_torch, case.by_kernel)
    ]
    rates = [2e-9 * case.multiplications / s for s in (torch_s, kernel_s)]
    cells = [
        case.name,
        *(f"{s * 1000:.3f}" for s in (torch_s, kernel_s)),
        *(f"{rate:.0f}" for rate in rates),
        f"{torch_s / kernel_s:.2f}",
        *(f"{error:.1e}" for error in errors),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Measure all cases and write the page."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        library = build(kernels(), Path(folder))
        columns = ["", *(f"{who} {what}" for what in ("ms", "GFLOP/s") for who in ("torch", "kernel"))]
        columns += ["quotient", "error", "kernel's error"]
        lines = [ABOUT, f"Device: {load_platform('cpu').device().name}, {torch.get_num_threads()} threads.", ""]
        lines += ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += [row(case) for case in cases(library)]
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
