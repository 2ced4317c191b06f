"""Platform `riscv`: attacks get their verdicts, honest kernels pass at all vector lengths, and counts are exact."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.referee.protocol import kernel_program as kp
from evaluator.referee.protocol.instructions import VLENS, peaks
from evaluator.referee.runner.platforms.emulated import program as described
from evaluator.referee.runner.platforms.riscv import instruction_table
from sandbox.base import Command, Limits, Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict
from tests.platforms.kits import OP, RISCV
from tests.platforms.riscv_candidates import ATTACKS, GAINS_NOTHING, HONEST, candidate
from tests.platforms.screened import exemplars_of
from tests.support.sandboxes import SandboxOf

ROOT = Path(__file__).parents[2]
Builder, module = partial(described.Builder, "riscv"), partial(described.module, "riscv")
EFFORT = Effort(memory_mb=3072, measure_budget_s=1.0, baselines=("eager",), call_timeout_s=5.0)

pytestmark = pytest.mark.xdist_group("riscv")  # they share a container


def judged(sandbox: Sandbox, source: str, op: str = OP) -> Evaluation:
    task = task_from_source(op, name="op")
    return evaluate(task, source, sandbox=sandbox, platform=load_platform("riscv"), effort=EFFORT)


def test_there_are_as_many_attacks_and_honest_candidates_as_the_platform_needs() -> None:
    assert len(ATTACKS) + len(GAINS_NOTHING) >= 8
    assert len(HONEST) >= 6


@pytest.mark.docker
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_its_verdict_and_is_told_why(shared_riscv_sandbox: Sandbox, name: str) -> None:
    attack = ATTACKS[name]
    found = judged(shared_riscv_sandbox, attack.source)
    assert (found.verdict, attack.message in found.message) == (attack.verdict, True), (
        f"{found.message}\n{found.detail}"
    )
    assert found.speedup is None
    if attack.verdict == Verdict.WRONG_OUTPUT and found.code == "values":
        assert "elements differ much" in found.detail


@pytest.mark.docker
def test_where_outputs_differ_in_memory_is_told(shared_riscv_sandbox: Sandbox) -> None:
    found = judged(shared_riscv_sandbox, ATTACKS["right at 128 bits alone"].source)
    assert found.message.endswith("(inputs: as generated at vlen 512)")
    assert found.detail.startswith("right at vlen 128, at vlen 256; wrong at vlen 512\n")
    assert "output: 1 of 16,384 elements differ much, in 1 runs" in found.detail
    assert "elements 16383 to 16383, bytes 0xfffc to 0xffff" in found.detail


@pytest.mark.docker
@pytest.mark.parametrize("name", GAINS_NOTHING)
def test_what_a_process_does_beside_its_program_gains_nothing(shared_riscv_sandbox: Sandbox, name: str) -> None:
    plain, tricky = (judged(shared_riscv_sandbox, source) for source in (candidate(), GAINS_NOTHING[name]))
    assert tricky.verdict == Verdict.PASSED, tricky.message
    assert tricky.latency_ms["candidate"] == plain.latency_ms["candidate"]


@pytest.mark.docker
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_passes(shared_riscv_sandbox: Sandbox, name: str) -> None:
    honest = HONEST[name]
    found = judged(shared_riscv_sandbox, honest.source, honest.op)
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    assert {"custom_kernel", "instructions"} <= set(found.tags)
    assert found.message.endswith("counted: instructions")


@pytest.mark.docker
def test_counts_are_exact_and_fall_with_the_length_of_vectors(shared_riscv_sandbox: Sandbox) -> None:
    first, second = (judged(shared_riscv_sandbox, RISCV.right) for _ in range(2))
    assert first.profile["instructions"] == second.profile["instructions"]
    counted = first.profile["instructions"]
    assert sorted(counted) == sorted(map(str, VLENS))
    # 64 rows of 256 floats: at 128 bits 8 parts of 32 floats, with 5 instructions that compute, 2 loads and a store.
    for vlen, parts in ((128, 8), (256, 4), (512, 2)):
        each = counted[str(vlen)]
        assert each["vector memory"] == 64 * parts * 3
        assert each["stored_bytes"] >= 64 * 256 * 4
    total = sum(each["total"] for each in counted.values())
    assert first.latency_ms["candidate"].median == pytest.approx(total * 1e-6)
    assert first.latency_ms["candidate"].low == first.latency_ms["candidate"].high
    assert first.speedup is not None and first.speedup["eager"].low == pytest.approx(first.speedup["eager"].high)
    table = instruction_table.INSTRUCTION_TABLE
    moved, row = 64 * 256 * 4, 256 * 4
    multiply = table.start + 2 * table.moved(moved) + table.moved(row) + table.lanes(64 * 256, "multiply")
    relu = table.start + 2 * table.moved(moved) + table.lanes(64 * 256, "relu")
    add = table.start + 3 * table.moved(moved) + table.lanes(64 * 256, "add")
    assert first.latency_ms["eager"].median == pytest.approx((multiply + relu + add) * 1e-6)
    assert "qemu-riscv64" in str(first.provenance["versions"])


COUNT_AGAIN = """
import json, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from benchmarks import emulated_reference
print(json.dumps(emulated_reference.table(emulated_reference.counted(emulated_reference.RISCV))))
"""


@pytest.mark.docker
def test_the_table_of_eager_is_what_plain_loops_are_counted_to_take(sandbox_of: SandboxOf, tmp_path: Path) -> None:
    package = tmp_path / "counted"
    left_out = shutil.ignore_patterns("__pycache__", "platforms_of_the_host")
    shutil.copytree(ROOT / "evaluator" / "referee", package / "evaluator" / "referee", ignore=left_out)
    (package / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "emulated_reference.py", package / "benchmarks")
    for folder in ("evaluator", "benchmarks", "."):
        (package / folder / "__init__.py").touch()
    (package / "__main__.py").write_text(COUNT_AGAIN)
    done = sandbox_of("riscv").run(Command(package, limits=Limits(wall_s=120)))
    assert done.exit_code == 0, done.stderr
    table = json.loads(done.stdout)
    assert table.pop("byte") == instruction_table.PER_BYTE
    assert table.pop("product") == instruction_table.PER_FLOP
    assert table == instruction_table.PER_ELEMENT


@pytest.mark.docker
@pytest.mark.parametrize("path", exemplars_of("riscv"), ids=lambda path: path.stem.removesuffix("_task"))
def test_an_exemplar_passes_and_takes_less_than_eager(shared_riscv_sandbox: Sandbox, path: Path) -> None:
    source = path.with_name(path.name.replace("_task", "")).read_text()
    found = judged(shared_riscv_sandbox, source, path.read_text())
    assert found.verdict == Verdict.PASSED, f"{found.message}\n{found.detail}"
    assert found.speedup is not None and found.speedup["eager"].value > 1.0
    assert "specialised" not in found.tags, found.correctness.neighbours


def program(**changes: object) -> dict[str, object]:
    made = kp.Program(
        "void f(float *x, float *y, long n, float a) {}",
        ("-O3",),
        (kp.Input(0), kp.State("weight"), kp.Made("float32", (4, 8))),
        (kp.Launch("f", (kp.ArrayArgument(0), kp.ArrayArgument(2), 32, float("inf"))),),
        (2,),
    ).to_json()
    return {**made, **changes}


def parsed(data: object) -> kp.Program:
    return kp.parse(data, inputs=1, states=["weight"], limit_bytes=1024)


def test_a_program_is_the_same_after_json() -> None:
    assert parsed(json.loads(json.dumps(program()))).to_json() == program()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"source": "x" * (kp.MAX_SOURCE + 1)}, "its source is no text"),
        ({"source": 5}, "its source is no text"),
        ({"source": "a\0b"}, "its source is no text"),
        ({"source": "\ud800"}, "malformed"),
        ({"flags": ["-fplugin=x.so"]}, "only these may be given"),
        ({"flags": "-O3"}, "malformed"),
        ({"arrays": [{"input": 1}]}, "malformed"),
        ({"arrays": [{"state": "bias"}]}, "the reference has no 'bias'"),
        ({"arrays": [{"dtype": "float32", "shape": [1 << 20, 1 << 19]}]}, "more than 1,024 bytes"),
        ({"arrays": [{"dtype": "float32", "shape": [-1]}]}, "malformed"),
        ({"arrays": [{"dtype": "quint8", "shape": [1]}]}, "malformed"),
        ({"arrays": [{"dtype": "uint8", "shape": [1]}] * 129}, "malformed"),
        ({"launches": [["f(); evil", []]]}, "is no name of a C function"),
        ({"launches": [["f", [{"array": 3}]]]}, "malformed"),
        ({"launches": [["f", [1 << 63]]]}, "malformed"),
        ({"launches": [["f", [True]]]}, "malformed"),
        ({"launches": [["f", [1] * 32]]}, "malformed"),
        ({"launches": None}, "malformed"),
        ({"outputs": [-1]}, "malformed"),
    ],
)
def test_what_is_no_program_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(kp.ProgramError, match=text):
        parsed(program(**change))


@pytest.mark.parametrize("data", [None, [], "x", {}, {"source": ""}])
def test_what_is_not_even_an_object_of_the_form_is_refused(data: object) -> None:
    with pytest.raises(kp.ProgramError):
        parsed(data)


def test_arrays_have_shapes_and_no_elements() -> None:
    builder = Builder({"weight": ("float32", (8,))})
    riscv = module(lambda: builder)
    x = builder.add(kp.Input(0), "float32", (4, 8))
    assert (x.shape, x.ndim, x.numel(), x.size(1), str(x.dtype)) == ((4, 8), 2, 32, 8, "torch.float32")
    assert x.reshape(-1, 16).shape == x.view((2, 16)).shape == (2, 16)
    assert riscv.state("weight") is riscv.state("weight")
    with pytest.raises(ValueError, match="no shape"):
        x.reshape(3, 5)
    with pytest.raises(ValueError, match=r"the reference has no 'bias'; it has \['weight'\]"):
        riscv.state("bias")
    with pytest.raises(ValueError, match=r"riscv\.empty"):
        riscv.empty((-1,), x.dtype)
    kernels, others = riscv.build("void f(float *x) {}"), riscv.build("void g(float *x) {}")
    kernels.f(x, 1, 2.5, True)
    with pytest.raises(TypeError, match=r"f\(\.\.\.\) takes arrays and numbers, not str"):
        kernels.f("x")
    with pytest.raises(ValueError, match=r"from one riscv.build"):
        others.g(x)
    with pytest.raises(TypeError, match="belongs to another call"):
        module(lambda: Builder({})).build("void f(float *x) {}").f(x)
    assert builder.launches == [kp.Launch("f", (kp.ArrayArgument(0), 1, 2.5, 1))]


def test_the_least_that_a_call_can_take_is_a_whole_group_of_registers_an_instruction() -> None:
    assert peaks(products=False).flops_per_s == 0.0
    nbytes = 8 * 512 // 8  # a group at 512 bits: 4 instructions at 128 bits, 2 at 256, 1 at 512
    assert nbytes / peaks(products=True).read_bytes_per_s == pytest.approx(7e-9)
