"""Candidates of the built-in model: really generated, really built, and equal to their references."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from agents.builtin.candidate_file import DEFAULT_FLAGS
from agents.builtin.catalog import VARIATIONS
from agents.builtin.compiler import Compiler, read_variations
from sandbox.base import Command, Completed
from tasks.suites import load_suite

# One process makes what all tests look at, in some minutes.
pytestmark = [pytest.mark.xdist_group("builtin_candidates"), pytest.mark.timeout(600)]

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
OPS = {
    "batch_norm": """
class Model(nn.Module):
    def __init__(self, features):
        super(Model, self).__init__()
        self.linear = nn.Linear(features, 24)
        self.norm = nn.BatchNorm1d(24)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return F.relu(self.norm(self.linear(x)))

def get_inputs():
    return [torch.randn(33, 20)]

def get_init_inputs():
    return [20]
""",
    "structures": """
SCALE = torch.tensor([1.0, 2.0, 3.0])

def helper(x):
    return x * 2

class Model(nn.Module):
    def forward(self, pair, factor, *rest):
        x, table = pair
        y = helper(x) * factor + table["bias"]
        parts = (y, [y.t(), rest[0] + torch.tensor([1, 2, 3])])
        return {"sum": y.sum(), "parts": parts, "same": x, "n": 3, "none": None}

def get_inputs():
    return [(torch.randn(3, 5), {"bias": torch.randn(5)}), 1.5, torch.randn(3)]

def get_init_inputs():
    return []
""",
    "integers": """
class Model(nn.Module):
    def forward(self, a, b, mask):
        picked = torch.where(mask, a * 2 + b, -a)
        sums = mask.sum(1), a.argmax(-1), a.amin(0), a.sum(0).to(torch.int32)
        return picked, (a & 7) | b, mask & (a > b), picked % 5, picked // 3, *sums

def get_inputs():
    return [
        torch.randint(-50, 50, (19, 37)),
        torch.randint(0, 9, (19, 37), dtype=torch.int32),
        torch.rand(19, 37) > 0.5,
    ]

def get_init_inputs():
    return []
""",
    "in_place": """
class Model(nn.Module):
    def forward(self, p, m, g):
        m.mul_(0.9).add_(g, alpha=0.1)
        p.sub_(m * 0.01)
        return p, m[2:], p.view(-1)

def get_inputs():
    return [torch.randn(8, 40) for _ in range(3)]

def get_init_inputs():
    return []
""",
    "not_a_number": """
class Model(nn.Module):
    def forward(self, x):
        return (
            x.softmax(-1), F.gelu(x, approximate="tanh"), x.amax(-1), x.argmax(-1), x.argmin(-1), F.silu(x),
            torch.log1p(x), torch.maximum(x, x.flip(0)), x.clamp(-1, 1), x.sum(0), F.layer_norm(x, (35,)), x.exp(),
            torch.relu(x), x.log(), x.sqrt(), x.tanh(), x.std(-1), F.softplus(x), torch.sin(x) + x ** 3.5,
        )

def get_inputs():
    x = torch.randn(21, 35) * 3
    x[3, 4], x[5, 6], x[7, 8], x[9, 10] = float("nan"), float("inf"), float("-inf"), 1e-42
    return [x]

def get_init_inputs():
    return []
""",
    "half_precision": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(70, dtype=torch.bfloat16))

    def forward(self, x, y):
        return F.silu(x * self.weight) + x.sum(-1, keepdim=True), F.layer_norm(y, (70,)) * 2, (x > 0)

def get_inputs():
    return [torch.randn(9, 70).bfloat16(), torch.randn(9, 70).half()]

def get_init_inputs():
    return []
""",
    "inherited_forward": """
class Model(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())

def get_inputs():
    return [torch.randn(2, 3, 12, 12)]

def get_init_inputs():
    return []
""",
    "convolutions": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(16, 48, 3, padding=1)
        self.second = nn.Conv2d(48, 32, 3, padding=(0, 2), bias=False)
        self.strided = nn.Conv2d(32, 16, 3, stride=2)
        self.grouped = nn.Conv2d(32, 32, 3, padding=1, groups=2)
        self.wide = nn.Conv2d(32, 16, (3, 5), padding=1)
        self.halved = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x, weight, bias):
        rows = self.first(x)
        y = self.second(torch.relu(rows))
        parts = [torch.relu(self.halved(part)) for part in (rows.chunk(3, 1)[1], y[:, 16:], rows[:, :16, 1:-1, 2:-1])]
        functions = F.conv2d(y, weight, bias, padding=1), F.conv2d(x, self.first.weight)
        return y, self.strided(y), self.grouped(y), self.wide(y), torch.relu(rows), *parts, *functions

def get_inputs():
    x = torch.randn(3, 16, 11, 8)
    x[1, 3, 4, 5], x[2, 1, 0, 7] = float("nan"), float("nan")
    x[0, 2, 3, 3], x[0, 4, 9, 0] = float("inf"), float("-inf")
    return [x, torch.randn(16, 32, 3, 3), torch.randn(16)]

def get_init_inputs():
    return []
""",
    "products": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(20, 48)
        self.second = nn.Linear(48, 48, bias=False)
        self.long = nn.Linear(2100, 16)
        self.narrow = nn.Linear(48, 23)
        self.table = nn.Parameter(torch.randn(48, 32))
        self.tied = nn.Parameter(torch.randn(64, 24))

    def forward(self, x, y, few):
        state = self.first(x)
        for _ in range(2):
            state = state + self.second(torch.tanh(state))
        outer = state @ self.table, self.narrow(state), (state @ self.tied[16:].t().contiguous().t())
        return state, self.first(few), self.long(y), *outer, state[:, :48] @ state.t(), x[:, 2:] @ self.table[:18]

def get_inputs():
    x = torch.randn(37, 20)
    x[5, 3], x[20, 1] = float("nan"), float("inf")
    return [x, torch.randn(13, 2100), torch.randn(3, 20)]

def get_init_inputs():
    return []
""",
    "windows": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-9, 9, (40, 48), dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(40, 1))

    def forward(self, images, rows):
        pooled = F.max_pool2d(images, 3, 2, 1) + F.avg_pool2d(images, 3, 2, 1)
        larger = F.interpolate(images, scale_factor=2.0, mode="bilinear", align_corners=False)
        smaller = F.interpolate(images, size=(7, 9), mode="bilinear", align_corners=True)
        product = F.linear(rows, self.weight.float() * self.scale)
        return pooled, larger, smaller, product, rows[:, ::3] * 2, rows @ rows.t()

def get_inputs():
    images = torch.randn(2, 3, 37, 53)
    images[0, 1, 7, 9], images[1, 2, 20, 30] = float("inf"), float("-inf")
    return [images, torch.randn(3, 48)]

def get_init_inputs():
    return []
""",
    "scans": """
class Model(nn.Module):
    def forward(self, x, y):
        sums = torch.cumsum(x * 2, 1) - 1, torch.cumsum(y, -1), torch.cumsum(y, 0), torch.cumsum(y.t(), 0)
        return *sums, torch.cumprod(y, 1), torch.cumprod(x, dim=0), torch.cumsum(x.int(), 1)

def get_inputs():
    y = torch.randn(5, 70)
    y[2, 30] = float("nan")
    return [torch.randn(3, 40, 300), y]

def get_init_inputs():
    return []
""",
    "looked_up": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, 43))

    def forward(self, rows, weights, x):
        found = self.table[rows]
        bags = (found * weights.unsqueeze(-1)).sum(1), found.amax(1), found.mean(1), found.prod(1), found.var(1)
        return *bags, x.gather(1, rows[:, :9]).sum(1), self.table[rows[0]].sum(), x[rows[:, 0]].argmax(0)

def get_inputs():
    return [torch.randint(0, 21, (21, 19)), torch.randn(21, 19), torch.randn(21, 43)]

def get_init_inputs():
    return []
""",
    "reductions": """
class Model(nn.Module):
    def forward(self, x, y, n, h):
        rows = x.sum(-1), x.amax(-1), x.amin(-1), x.prod(-1), x.var(-1), (x * x).mean(-1).sqrt(), x.logsumexp(-1)
        columns = x.sum(0), x.amax(0), x.var(0, unbiased=False), (x > 0).any(0), (x > 0).all(-1), x.argmax(-1)
        whole = y.sum(), y.var(), y.amax(), y.square().mean(), torch.linalg.vector_norm(y), (y.sin() + 1).mean()
        integers = n.sum(-1), n.amax(0), n.prod(-1), (n > 2).sum(), n.float().std(0)
        return *rows, *columns, *whole, *integers, h.sum(-1), h.float().var(-1), h.amax(0), h.softmax(-1)

def get_inputs():
    return [
        torch.randn(37, 141) * 0.9, torch.randn(67, 1031), torch.randint(-3, 4, (29, 83)),
        torch.randn(23, 77).bfloat16(),
    ]

def get_init_inputs():
    return []
""",
    "small_sizes": """
class Model(nn.Module):
    def forward(self, one, few, none, long):
        parts = []
        for x in (one, few, long):
            parts += [x.sum(-1), x.softmax(-1), x.sum(0), F.gelu(x), x.var(-1, unbiased=False), x.amax(-1), x / x.sum()]
        return *parts, none * 2, none.sum(0), none.sum(-1), torch.cumsum(none, 1), one @ few[:1, :1], none[:, :0].sum()

def get_inputs():
    return [torch.randn(1, 1), torch.randn(2, 3), torch.randn(0, 5), torch.randn(3, 8193)]

def get_init_inputs():
    return []
""",
    "normalised": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.groups = nn.GroupNorm(3, 12)
        self.layer = nn.LayerNorm(1047)

    def forward(self, x, y, z):
        layers = self.layer(y), F.layer_norm(y * 2, (1047,)).sum(0)
        return F.silu(self.groups(x)), *layers, F.instance_norm(z), z.var((1, 3))

def get_inputs():
    return [torch.randn(5, 12, 9, 31), torch.randn(70, 1047) + 3, torch.randn(3, 4, 24, 40)]

def get_init_inputs():
    return []
""",
    "other_shapes": """
class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 1) / (x * x).sum(1, keepdim=True).sqrt()

def get_inputs():
    return [torch.randn(40, 64)]

def get_input_groups():
    return [get_inputs(), [torch.randn(3, 7)], [torch.randn(64, 40).t()], [torch.randn(40, 64).double()]]

def get_init_inputs():
    return []
""",
}
EVERYTHING = tuple(variation.name for variation in VARIATIONS)
KINDS = {"plain": (), **{name: (name,) for name in EVERYTHING}, "varied": EVERYTHING}
KINDS["varied_threads"] = tuple(name for name in EVERYTHING if name != "one-thread")
SUITE_OPS = tuple(task.name for task in load_suite("starter").tasks)
# Each variation alone on the ops with the most forms of loops; on all others only where it is asked for, which takes
# some minutes.
EVERY_ONE = os.environ.get("KERNELWRIGHT_TEST_EVERY_VARIATION") == "1"
EDGES = ("looked_up", "reductions", "small_sizes", "normalised")


def kinds_of(name: str) -> tuple[str, ...]:
    if EVERY_ONE or name in EDGES:
        return tuple(KINDS)
    if name in ("convolutions", "products"):
        return ("plain", "winograd" if name == "convolutions" else "packed-products", "varied")
    return ("plain", "varied") if name in OPS else ("varied_threads",)


CASES = [(name, kind) for name in (*OPS, *SUITE_OPS) for kind in kinds_of(name)]
COMPARED_AT_ONCE = 2
INCLUDED = (
    "array", "cmath", "cstdint", "cstdio", "cstdlib", "cstring", "limits", "memory", "type_traits", "omp.h",
)  # fmt: skip


class Generator:
    """Stands in for a sandbox: a process that answers codegen requests one after the other, with one import of torch.

    What generates kernels is the package's own code; the tests of the provider run it inside a sandbox.
    """

    name = "generator"
    promises: frozenset[Any] = frozenset()

    def __init__(self, folder: Path) -> None:
        root = Path(__file__).parents[3]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root)} | dict.fromkeys(
            ("TMPDIR", "HOME"), str(folder)
        )
        command = [sys.executable, str(root / "tests" / "support" / "builtin_generate.py")]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        self._lock = Lock()

    def run(self, command: Command, *, on_stderr: Any = None, cancel: Any = None) -> Completed:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write((command.stdin or b"") + b"\n")
            self._process.stdin.flush()
            return Completed(0, self._process.stdout.readline(), b"", 0.1)

    def prepare(self, command: Command) -> None:
        pass

    def describe(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        assert self._process.stdin is not None
        with self._process:  # closes its pipes and waits
            self._process.stdin.close()


def references() -> dict[str, str]:
    suite = {task.name: task.source for task in load_suite("starter").tasks}
    return {name: HEAD + text for name, text in OPS.items()} | suite


Results = dict[str, tuple[str, list[str]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """For each case, `op/kind`: the candidate's source, and what is wrong with it."""
    folder = tmp_path_factory.mktemp("candidates")
    generator = Generator(folder)
    try:
        return generate_and_compare(Compiler(generator), folder)
    finally:
        generator.close()


def generate_and_compare(compiler: Compiler, folder: Path) -> Results:
    sources: dict[str, str] = {}
    first_of: dict[tuple[str, str], str] = {}  # a variation that changes nothing is not built again
    jobs: list[tuple[str, str, str]] = []
    texts = references()
    headers = precompiled_headers(folder)
    for name, kind in CASES:
        case = f"{name}/{kind}"
        sources[case] = compiler.write(texts[name], KINDS[kind]).source
        key = (name, sources[case].partition("\n")[2])
        if first_of.setdefault(key, case) != case:
            continue
        reference, candidate = folder / f"{name}.py", folder / f"{name}_{kind}.py"
        reference.write_text(texts[name])
        # Less optimization builds faster, and what is compared here is what the code says.
        less = ["-O1"]
        if all(f"#include <{name}>\n" in sources[case] for name in INCLUDED):  # none is there that it forgot
            less += ["-include", str(headers)]
        candidate.write_text(sources[case].replace("'-O3'", ", ".join(map(repr, less))))
        jobs.append((case, str(reference), str(candidate)))
    with ThreadPoolExecutor(COMPARED_AT_ONCE) as pool:
        parts = pool.map(lambda first: compare(jobs[first::COMPARED_AT_ONCE], folder), range(COMPARED_AT_ONCE))
        problems = {name: found for part in parts for name, found in part.items()}
    return {
        case: (source, problems[first_of[case.partition("/")[0], source.partition("\n")[2]]])
        for case, source in sources.items()
    }


def precompiled_headers(folder: Path) -> Path:
    """A header of the standard library's that kernels include: reading them is a third of a build."""
    header = folder / "headers.h"
    header.write_text("".join(f"#include <{name}>\n" for name in INCLUDED))
    # It serves only the options that it was made with.
    options = ["-O1", *DEFAULT_FLAGS[1:], "-std=c++17", "-fPIC", "-fopenmp", "-Wno-psabi"]
    subprocess.run(["g++", *options, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    return header


def compare(jobs: list[tuple[str, str, str]], folder: Path) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parents[2] / "support" / "builtin_compare.py")],
        input=json.dumps(jobs).encode(),
        stdout=subprocess.PIPE,
        timeout=270,
        check=True,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), "HOME": str(folder)},
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_candidates_equal_their_references(results: Results, name: str, kind: str) -> None:
    _, problems = results[f"{name}/{kind}"]
    assert problems == []


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_candidates_are_kernels_of_their_own_and_say_what_they_are(results: Results, name: str, kind: str) -> None:
    source, _ = results[f"{name}/{kind}"]
    assert read_variations(source) == KINDS[kind]
    assert "a compiler search and no LLM" in source
    assert 'extern "C" void' in source and "torch.compile" not in source


def test_variations_change_the_code(results: Results) -> None:
    def code(case: str) -> str:
        source = results[case][0].partition("\nFLAGS = ")[0]
        return source[source.index("using namespace at::vec;") :]

    varied = code("windows/varied")
    assert "= kw::strided<2>(" in varied and "= kw::lookup(" in varied
    assert results["scans/varied"][0].count("aten.cumsum") < results["scans/plain"][0].count("aten.cumsum")
    assert "torch.mm(" in results["windows/plain"][0] and "torch.mm(" not in results["windows/varied"][0]
    assert results["convolutions/winograd"][0].count("aten.convolution(") == 4, (
        "strided, grouped and wide ones, and that of an argument, are torch's"
    )
    assert results["convolutions/winograd"][0].count(" = kernelwright_prepared(self, ") == 6
    assert results["products/packed-products"][0].count(" = kernelwright_prepared(self, ") == 7
    assert results["products/plain"][0].count("torch.addmm(") > results["products/packed-products"][0].count(
        "torch.addmm("
    )
    assert "chunk / " in code("masked_softmax/varied_threads")
    assert "kw::stream_store(" in code("adamw_step/varied_threads")
    assert "omp" not in code("reductions/one-thread") and "#pragma omp parallel" in code("reductions/plain")
    assert "schedule(dynamic, " in code("reductions/free-schedule")
    assert "tmp_acc0_vec_part3" in code("reductions/unroll-sums")
    assert "= welford_combine(tmp_acc0_vec, welford_combine(tmp_acc0_vec_part1" in code("normalised/unroll-sums")
    assert "tmpbuf[" in code("looked_up/plain")
    assert code("looked_up/outer-vectors").count("tmpbuf[") < code("looked_up/plain").count("tmpbuf[")


CHANGED_WEIGHTS = """
import sys, torch
spaces = []
for path in sys.argv[1:]:
    spaces.append({"__name__": path})
    exec(compile(open(path).read(), path, "exec"), spaces[-1])
torch.manual_seed(0)
models = spaces[0]["Model"](), spaces[1]["ModelNew"]()
models[1].load_state_dict(models[0].state_dict())
x, *rest = spaces[0]["get_inputs"]()
arguments = [x.nan_to_num(posinf=1, neginf=-1), *rest]

def alike():
    with torch.inference_mode():
        pairs = zip(*(model(*arguments) for model in models), strict=True)
        return all(float((own - other).abs().max()) < 1e-5 * float(own.abs().max()) for own, other in pairs)

assert alike() and alike()
models[0].load_state_dict({name: torch.randn_like(value) for name, value in models[0].state_dict().items()})
assert not alike()
models[1].load_state_dict(models[0].state_dict())
assert alike(), "what was made of the former weights is still used"
assert set(models[1].state_dict()) == set(models[0].state_dict())

# Parameters that were made in inference mode do not count their changes.
with torch.inference_mode():
    models = spaces[0]["Model"](), spaces[1]["ModelNew"]()
    models[1].load_state_dict(models[0].state_dict())
    assert alike() and alike()
    for model in models:
        for value in model.parameters():
            value.mul_(0.5)
    assert alike(), "what was made of the former weights is still used"

torch.set_default_dtype(torch.float16)
assert alike(), "what is made by default has another type now"
"""


def test_what_is_made_of_a_parameter_is_made_again_when_it_changes(results: Results, tmp_path: Path) -> None:
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(references()["convolutions"])
    candidate.write_text(results["convolutions/winograd"][0])
    subprocess.run([sys.executable, "-c", CHANGED_WEIGHTS, str(reference), str(candidate)], check=True, timeout=120)


def test_vectors_are_as_wide_as_the_kernels_were_made_for(results: Results) -> None:
    def width(case: str) -> int:
        return int(results[case][0].partition("#define KW_VEC_BYTES ")[2].split()[0])

    plain, half = width("reductions/plain"), width("reductions/half-vectors")
    assert plain in (16, 32, 64)
    assert half == (32 if plain == 64 else plain)
    assert width("reductions/varied") == half
