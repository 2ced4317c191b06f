"""Platform `arm64`: what differs from `riscv`, whose tests hold the code that both share.

The emulator shows no accesses of SVE, so the guest's pages, and what lies between arrays, hold a guest to its memory.
"""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.platforms import load_platform
from evaluator.referee.protocol import kernel_program as kp
from evaluator.referee.protocol.instructions import ARM64, VLENS, peaks
from evaluator.referee.runner.platforms.arm64 import instruction_table
from evaluator.referee.runner.platforms.emulated.guest import Layout
from sandbox.base import Command, Limits
from tasks.metadata import CATEGORIES
from tasks.outcomes import Verdict
from tests.platforms.arm64_candidates import ATTACKS, GAINS_NOTHING, HONEST, SHARED, candidate
from tests.platforms.kits import OP
from tests.platforms.screened import exemplars_of
from tests.support.sandboxes import SandboxOf

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("riscv")  # they share a container


def test_there_are_as_many_attacks_and_honest_candidates_as_the_platform_needs() -> None:
    assert len(ATTACKS) >= 8 and set(SHARED) <= set(ATTACKS)
    assert len(HONEST) >= 6


EXEMPLARS = {
    path.stem: (path.read_text(), path.with_name(path.name.replace("_task", "")).read_text())
    for path in exemplars_of("arm64")
}


def copy_of_referee(package: Path) -> Path:
    left_out = shutil.ignore_patterns("__pycache__", "platforms_of_the_host")
    shutil.copytree(ROOT / "evaluator" / "referee", package / "evaluator" / "referee", ignore=left_out)
    for folder in ("evaluator", "."):
        (package / folder / "__init__.py").touch()
    return package


@pytest.fixture(scope="module")
def found(sandbox_of: SandboxOf, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What compiler and emulator alone show of each candidate: far cheaper than a referee's verdict."""
    cases = {
        **{name: (OP, attack.source) for name, attack in ATTACKS.items()},
        **{name: (OP, source) for name, source in GAINS_NOTHING.items()},
        **{name: (honest.op, honest.source) for name, honest in HONEST.items()},
        **EXEMPLARS,
        "plain": (OP, candidate()),
    }
    package = copy_of_referee(tmp_path_factory.mktemp("guests") / "guests")
    shutil.copy(ROOT / "tests" / "platforms" / "run_guests.py", package / "__main__.py")
    (package / "cases.json").write_text(json.dumps(cases))
    done = sandbox_of("arm64").run(Command(package, args=("arm64",), limits=Limits(wall_s=400)))
    assert done.exit_code == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    assert answers.keys() == cases.keys()
    return answers


@pytest.mark.docker
def test_a_guest_that_breaks_a_rule_is_ended_and_told_why(found: dict[str, Any]) -> None:
    for name, attack in ATTACKS.items():
        if attack.verdict == Verdict.WRONG_OUTPUT:
            assert found[name]["right"] == [True, True, False], (name, found[name])
        else:
            assert attack.verdict == Verdict.CRASHED and found[name]["kind"] == "error", (name, found[name])
            assert attack.message in found[name]["message"], (name, found[name])


@pytest.mark.docker
def test_honest_candidates_and_exemplars_are_right_at_every_vector_length(found: dict[str, Any]) -> None:
    right = {name: found[name].get("right") for name in (*HONEST, *GAINS_NOTHING, *EXEMPLARS, "plain")}
    assert right == dict.fromkeys(right, [True] * len(VLENS))


@pytest.mark.docker
def test_every_category_has_an_exemplar_that_takes_less_than_eager(found: dict[str, Any]) -> None:
    assert {name.removesuffix("_task") for name in EXEMPLARS} == set(CATEGORIES) - {"other"}
    assert [name for name in EXEMPLARS if sum(found[name]["counted"].values()) >= found[name]["eager"]] == []


@pytest.mark.docker
def test_counts_are_exact_and_fall_with_the_length_of_vectors(found: dict[str, Any]) -> None:
    assert sorted(found["plain"]["counted"]) == sorted(map(str, VLENS))
    # 64 rows of 256 floats: in each part two loads, a store, a product, a maximum, an addition, and `incw`.
    for vlen, parts in ((128, 64), (256, 32), (512, 16)):
        each = found["plain"]["kinds"][str(vlen)]
        assert each["vector memory"] == 64 * parts * 3
        assert 64 * parts * 4 <= each["vector arithmetic"] <= 64 * (parts + 8) * 4
        assert each["vector predicates"] >= 64 * parts


def test_the_profile_says_that_bytes_of_vectors_are_not_counted() -> None:
    counted = {"128": {"total": 10, "vector memory": 4, "loaded_bytes": 8, "stored_bytes": 0, "launches": [["f", 10]]}}
    lines = load_platform("arm64").profile_text({"instructions": counted}).splitlines()
    assert lines[1] == "vlen 128: 10 instructions; 8 bytes loaded, 0 stored but by SVE"
    assert lines[2:] == ["  vector memory 4 (40%), scalar integers and branches 6 (60%)", "  f: 10"]


COUNT_AGAIN = """
import json, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from benchmarks import emulated_reference
print(json.dumps(emulated_reference.table(emulated_reference.counted(emulated_reference.ARM64))))
"""


@pytest.mark.docker
def test_the_table_of_eager_is_what_plain_loops_are_counted_to_take(sandbox_of: SandboxOf, tmp_path: Path) -> None:
    package = copy_of_referee(tmp_path / "counted")
    (package / "benchmarks").mkdir()
    (package / "benchmarks" / "__init__.py").touch()
    shutil.copy(ROOT / "benchmarks" / "emulated_reference.py", package / "benchmarks")
    (package / "__main__.py").write_text(COUNT_AGAIN)
    done = sandbox_of("arm64").run(Command(package, limits=Limits(wall_s=120)))
    assert done.exit_code == 0, done.stderr
    table = json.loads(done.stdout)
    assert table.pop("byte") == instruction_table.PER_BYTE
    assert table.pop("product") == instruction_table.PER_FLOP
    assert table == instruction_table.PER_ELEMENT


@pytest.mark.parametrize("nbytes", [0, 4, 40, 64, 4096, 4100, 70_000])
def test_an_array_ends_with_its_last_page_and_no_page_of_another_follows(nbytes: int) -> None:
    made = kp.Made("uint8", (nbytes,))
    arrays = (kp.Input(0), made, kp.State("weight"), made)
    given = [torch.zeros(nbytes, dtype=torch.uint8)] * 2
    layout = Layout.of(kp.Program("", (), arrays, (), ()), given, by_page=True)
    for placed in layout.arrays:
        assert placed.offset % 64 == 0 and placed.nbytes == nbytes
        assert 0 <= placed.pages[1] - (placed.offset + nbytes) < 64
    mapped = sorted(layout.mappings())
    for (offset, size, _), (following, _, _) in pairwise(mapped):
        assert size > 0 and offset + size + 4096 <= following
    rights = {offset: rights for offset, _, rights in mapped}
    assert rights[0] == 1  # the header
    if nbytes:
        assert [rights[placed.pages[0]] for placed in layout.arrays] == [3, 3, 1, 3]


def test_the_least_that_a_call_can_take_is_four_registers_moved_an_instruction() -> None:
    assert peaks(ARM64, products=False).flops_per_s == 0.0
    nbytes = 4 * 512 // 8  # four registers at 512 bits: 4 instructions at 128 bits, 2 at 256, 1 at 512
    assert nbytes / peaks(ARM64, products=True).read_bytes_per_s == pytest.approx(7e-9)
