# ruff: noqa: E501 - kernels as candidates write them
"""Candidates for the platform `triton`, honest ones and such as cheat or err: each for an op of its own, small."""

from dataclasses import dataclass

from tests.platforms.screened import op_of

CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
{kernels}

class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""


@dataclass(frozen=True)
class Case:
    """An op, a candidate, and what the verdict must say.

    Attributes:
        reference: the op, an expression of `x`.
        shape: of `x`.
        kernels: kernels and the function `run`.
        verdict: the verdict, with its code behind a colon if it has one.
        body: of `forward`.
        says: words that message or detail must hold.
        tags: tags that it must have; those after a minus it must not have.
        shown: words that the profile must hold.
    """

    reference: str
    shape: str
    kernels: str
    verdict: str
    body: str = "return run(x)"
    says: tuple[str, ...] = ()
    tags: str = ""
    shown: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The op's source."""
        return op_of(self.reference, self.shape)

    @property
    def candidate(self) -> str:
        """The candidate's source."""
        return CANDIDATE.format(kernels=self.kernels, body=self.body)


def elementwise(expression: str, *, mask: str = "at < n", more: str = "", before: str = "", launch: str = "") -> str:
    """A kernel that computes each element by an expression of `v`, and its launch."""
    launch = launch or "k[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)"
    return f"""
{more}
@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + at, mask={mask})
    {before}
    tl.store(y_ptr + at, {expression}, mask={mask})

def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    {launch}
    return y
"""


def row_kernel(body: str, *, outputs: str = "torch.empty_like(x)") -> str:
    """A kernel with a program a row, which has `v`, `at`, `columns`, `inside` and writes to `y_ptr`."""
    return f"""
@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    at = row * n + columns
    {body}

def run(x):
    y = {outputs}
    k[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""


ALL = "compiled executed custom_kernel race_free in_bounds"
RELU = ("x.relu()", "33, 70")
RIGHT = "tl.where(v < 0, 0.0, v)"
MATMUL = """
def configs():
    return [
        triton.Config({"M": 16, "N": 16, "K": 16, "GROUP": 2}, num_warps=2, num_stages=2),
        triton.Config({"M": 32, "N": 16, "K": 32, "GROUP": 4}, num_warps=4),
    ]

@triton.autotune(configs=configs(), key=["m", "k"])
@triton.jit
def k(a_ptr, c_ptr, m, k, stride_m, stride_k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(axis=0)
    down, across = tl.cdiv(m, M), tl.cdiv(m, N)
    in_group = GROUP * across
    first = (pid // in_group) * GROUP
    size = min(down - first, GROUP)
    pid_m = first + ((pid % in_group) % size)
    pid_n = (pid % in_group) // size
    rows, columns = pid_m * M + tl.arange(0, M), pid_n * N + tl.arange(0, N)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        ks = step * K + tl.arange(0, K)
        a_mask = (rows[:, None] < m) and (ks[None, :] < k)
        a = tl.load(a_ptr + rows[:, None] * stride_m + ks[None, :] * stride_k, mask=a_mask, other=0.0)
        b_mask = (columns[None, :] < m) & (ks[:, None] < k)
        b = tl.load(a_ptr + columns[None, :] * stride_m + ks[:, None] * stride_k, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    c_mask = (rows[:, None] < m) & (columns[None, :] < m)
    tl.store(c_ptr + rows[:, None] * m + columns[None, :], acc, mask=c_mask)

def run(x):
    m, k_ = x.shape
    y = torch.empty((m, m), device=x.device, dtype=x.dtype)
    grid = lambda META: (triton.cdiv(m, META["M"]) * triton.cdiv(m, META["N"]),)
    k[grid](x, y, m, k_, x.stride(0), x.stride(1))
    return y
"""
HONEST: dict[str, Case] = {
    "one element a lane": Case(*RELU, elementwise(RIGHT), "screened", tags=ALL),
    "softmax": Case(
        "x.softmax(1)",
        "9, 100",
        row_kernel(
            "v = tl.load(x_ptr + at, mask=inside, other=-float('inf')); e = tl.exp(v - tl.max(v, axis=0)); "
            "tl.store(y_ptr + at, e / tl.sum(e, axis=0), mask=inside)"
        ),
        "screened",
        tags=ALL,
    ),
    "a mask as its output": Case(
        "x > 0",
        "33, 70",
        elementwise("v > 0").replace("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.bool)"),
        "screened",
        tags=ALL,
    ),
    "tuned products in groups": Case(
        "x @ x.t()", "40, 50", MATMUL.replace("PRECISION", '"ieee"'), "screened", tags=ALL, shown=("M 32, N 16",)
    ),
    "heuristics and another kernel's function": Case(
        "torch.nn.functional.gelu(x)",
        "30, 41",
        elementwise(
            "gelu(v, HALF)",
            more="HALF = tl.constexpr(0.5)\n@triton.jit\ndef gelu(v, half):\n"
            "    return half * v * (1.0 + tl.erf(v * 0.7071067811865476))\n"
            '@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(min(args["n"], 512))})',
            launch='k[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)',
        ),
        "screened",
        tags=ALL,
    ),
    "sums by atomics into zeros": Case(
        "x.sum()",
        "20, 50",
        elementwise("v")
        .replace("tl.store(y_ptr + at, v, mask=at < n)", "tl.atomic_add(y_ptr, tl.sum(v, axis=0))")
        .replace("mask=at < n)", "mask=at < n, other=0.0)")
        .replace("torch.empty_like(x)", "x.new_zeros(())"),
        "screened",
        tags=ALL,
    ),
    "two kernels and what lies between": Case(
        "x - x.amax(1, keepdim=True)",
        "12, 65",
        """
@triton.jit
def row_max(x_ptr, m_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n, other=-float("inf"))
    bad = tl.sum((v != v).to(tl.int32), axis=0)
    tl.store(m_ptr + tl.program_id(0), tl.where(bad > 0, float("nan"), tl.max(v, axis=0)))

@triton.jit
def subtract(x_ptr, m_ptr, y_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + columns
    v = tl.load(x_ptr + at, mask=columns < n) - tl.load(m_ptr + tl.program_id(0))
    tl.store(y_ptr + at, v, mask=columns < n)

def run(x):
    y, m = torch.empty_like(x), torch.empty(x.shape[0], device="cuda")
    with torch.cuda.device(x.device):
        row_max[(x.shape[0],)](x, m, x.shape[1], BLOCK=128)
        subtract[(x.shape[0],)](x, m, y, x.shape[1], BLOCK=128)
    return y
""",
        "screened",
        tags=ALL,
    ),
    "a loop over a long row": Case(
        "x.sum(1)",
        "5, 700",
        row_kernel(
            "acc = tl.zeros((BLOCK,), dtype=tl.float32)\n    for start in range(0, n, BLOCK):\n"
            "        part = start + columns\n"
            "        acc += tl.load(x_ptr + row * n + part, mask=part < n, other=0.0)\n"
            "    tl.store(y_ptr + row, tl.sum(acc, axis=0))",
            outputs="torch.empty(x.shape[0], device=x.device, dtype=x.dtype)",
        ).replace("triton.next_power_of_2(x.shape[1])", "128"),
        "screened",
        tags=ALL,
    ),
    "the largest so far, by a function of its own": Case(
        "x.cummax(1).values",
        "5, 33",
        "@triton.jit\ndef larger(a, b):\n    return tl.where((a > b) | (a != a), a, b)\n\n\n"
        + row_kernel(
            "v = tl.load(x_ptr + at, mask=inside, other=-float('inf'))\n"
            "    tl.store(y_ptr + at, tl.associative_scan(v, 0, larger), mask=inside)"
        ),
        "screened",
        tags=ALL,
    ),
    "cross entropy of each row": Case(
        "torch.logsumexp(x, 1) - x[:, 3]",
        "9, 50",
        row_kernel(
            "v = tl.load(x_ptr + at, mask=inside, other=-float('inf')); m = tl.max(v, axis=0); "
            "s = tl.log(tl.sum(tl.exp(v - m), axis=0)) + m; tl.store(y_ptr + row, s - tl.load(x_ptr + row * n + 3))",
            outputs="x.new_empty(x.shape[0])",
        ),
        "screened",
        tags="executed compiled",
    ),
    "bfloat16 inside": Case(
        "x.bfloat16() * 2",
        "30, 41",
        elementwise("v.to(tl.bfloat16) * 2").replace(
            "torch.empty_like(x)", "torch.empty_like(x, dtype=torch.bfloat16)"
        ),
        "screened",
        tags=ALL,
    ),
    "a copy of what is not contiguous": Case(
        *RELU, elementwise(RIGHT), "screened", body="return run(x.t().contiguous().t().contiguous())", tags=ALL
    ),
    "a function of CUDA's library": Case(
        "torch.tanh(x)",
        "30, 41",
        elementwise("libdevice.tanh(v)", more="from triton.language.extra import libdevice"),
        "screened",
        tags=ALL,
    ),
}
ATTACKS: dict[str, Case] = {
    "a mask is left out": Case(
        *RELU, elementwise(RIGHT, mask="None"), "crashed:out_of_bounds",
        says=("memory out of bounds", "kernel k, line 11 `v = tl.load(x_ptr + at", "behind the end of x_ptr"),
    ),
    "a write behind the end": Case(
        *RELU, elementwise(RIGHT, mask="at <= n"), "crashed:out_of_bounds", says=("line",)
    ),
    "a read that lands in another tensor": Case(
        "x * 2",
        "64",
        elementwise(
            "v * 2 + 0 * tl.load(x_ptr + n + at, mask=at < 1, other=0.0)",
            launch="both = x.new_zeros(2 * n); both[:n] = x; k[(1,)](both, y, n, BLOCK=256)",
        ),
        "screened",
        tags="-custom_kernel -in_bounds",
        shown=("torch has computed",),
    ),
    "programs write the same place": Case(
        "x[-1:] * 1",
        "8",
        elementwise("v").replace("y_ptr + at, v, mask=at < n", "y_ptr, tl.sum(v, axis=0)").replace("empty_like(x)", "empty(1)")
        .replace("mask=at < n)", "mask=at < n, other=0.0)").replace("cdiv(n, 256)", "cdiv(n, 1)").replace("BLOCK=256", "BLOCK=1"),
        "crashed:race",
        says=("data race between programs", "line"),
    ),
    "reads what another program writes": Case(
        "x.cumsum(0)",
        "6",
        """
@triton.jit
def k(x_ptr, y_ptr, n):
    i = tl.program_id(0)
    before = tl.load(y_ptr + i - 1, mask=i > 0, other=0.0)
    tl.store(y_ptr + i, before + tl.load(x_ptr + i))

def run(x):
    y = torch.empty_like(x)
    k[(x.numel(),)](x, y, x.numel())
    return y
""",
        "crashed:race",
        says=("another program",),
    ),
    "counts on the order of programs": Case(
        "torch.arange(8.0) + 0 * x",
        "8",
        """
@triton.jit
def k(x_ptr, y_ptr, count_ptr):
    i = tl.program_id(0)
    tl.store(y_ptr + i, tl.atomic_add(count_ptr, 1.0) + 0 * tl.load(x_ptr + i))

def run(x):
    y, count = torch.empty_like(x), torch.zeros(1, device=x.device)
    k[(8,)](x, y, count)
    return y
""",
        "wrong_output:order",
        says=("order",),
    ),
    "another configuration is wrong": Case(
        *RELU,
        elementwise(
            "tl.where(v < 0, 0.0, v) + FAULT",
            more='@triton.autotune(configs=[triton.Config({"FAULT": 0}), triton.Config({"FAULT": 1})], key=["n"])',
            launch="k[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)",
        ).replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, FAULT: tl.constexpr)"),
        "wrong_output:configuration",
        says=("FAULT 1",),
    ),
    "leaves out what empty memory holds": Case(*RELU, elementwise(RIGHT, mask="at < n - 1"), "wrong_output:nan"),
    "counts on zeros where a mask has no other": Case(
        "x.sum(1)",
        "9, 50",
        row_kernel("v = tl.load(x_ptr + at, mask=inside); tl.store(y_ptr + row, tl.sum(v, axis=0))",
                   outputs="x.new_empty(x.shape[0])"),
        "wrong_output:nan",
    ),
    "products in TF32": Case(
        "x @ x.t()", "40, 50", MATMUL.replace(", input_precision=PRECISION", ""), "wrong_output:values",
        says=("line", "tl.dot rounds float32 to TF32"),
    ),
    "a maximum that drops NaN": Case(
        *RELU, elementwise("tl.maximum(v, 0.0)"), "wrong_output:nan",
        says=("kernel k, line", "tl.maximum of a number and NaN is the number"),
    ),
    "torch does the work": Case(
        *RELU, elementwise(RIGHT), "screened", body="return x.relu()",
        tags="-custom_kernel -race_free -in_bounds -compiled",
    ),
    "torch does the work behind a kernel": Case(
        *RELU, elementwise("v"), "screened", body="return run(x).relu()", tags="-custom_kernel -race_free -in_bounds"
    ),
    "torch does the work before a kernel": Case(
        *RELU, elementwise("v"), "screened", body="return run(x.relu())", tags="-custom_kernel -race_free",
        shown=("torch has computed of the inputs",),
    ),
    "torch does the work and a number is passed": Case(
        "x.sum() + 0 * x", "8", elementwise("v * 0 + s").replace("n, BLOCK:", "n, s, BLOCK:"), "screened",
        body="y = torch.empty_like(x); k[(1,)](x, y, 8, x.sum().item(), BLOCK=256); return y",
        tags="-custom_kernel", shown=("argument s of kernel k depends",),
    ),
    "tells the interpreter in the kernel": Case(
        *RELU,
        elementwise(RIGHT, before="v = v if triton.knobs.runtime.interpret else v * 2"),
        "integrity:tells_emulation",
        says=("interpret",),
    ),
    "tells the interpreter in Python": Case(
        *RELU, elementwise("v"), "screened",
        body="return x.relu() if triton.knobs.runtime.interpret else run(x)", tags="-custom_kernel",
    ),
    "works in numpy inside the kernel": Case(
        *RELU,
        elementwise("v", before="v.handle.data[...] = v.handle.data.clip(0)"),
        "screened",
        tags="-custom_kernel -race_free -in_bounds -compiled",
        shown=("is nothing",),
    ),
    "patches the interpreter": Case(
        *RELU,
        elementwise(
            "v",
            more="from triton.runtime import interpreter\n_store = interpreter.interpreter_builder.create_masked_store\n"
            "def _relu(ptrs, value, *rest):\n"
            "    value.data = value.data.clip(0)\n"
            "    return _store(ptrs, value, *rest)\n"
            "interpreter.interpreter_builder.create_masked_store = _relu",
        ),
        "screened",
        tags="-custom_kernel",
    ),
    "patches jit": Case(
        *RELU,
        elementwise(
            "v",
            more="class _K:\n    def __init__(self, f): pass\n"
            "    def __getitem__(self, g): return lambda x, y, n, BLOCK: y.copy_(x.relu())\ntriton.jit = _K",
        ),
        "screened",
        tags="-custom_kernel -compiled",
    ),
    "no compiler takes it": Case(
        *RELU, elementwise(RIGHT, before="if v:\n        v = v * 1"), "build_failed:for_gpus", says=("k, line 12: ", "ambiguous")
    ),
    "the first answer for every call": Case(
        *RELU, elementwise(RIGHT), "wrong_output",
        body="self.first = run(x) if not hasattr(self, 'first') else self.first; return self.first",
    ),
}  # fmt: skip
