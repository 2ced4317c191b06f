"""What the screening of kernels of Triton says: honest ones are screened, faults and cheats are told and refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.base import Sandbox
from tests.platforms.screened import EFFORT, exemplars_of, judged, see, see_exemplar
from tests.platforms.triton.candidates import ATTACKS, HONEST, Case, elementwise

pytestmark = [
    pytest.mark.xdist_group("triton"),  # they share a container
    pytest.mark.docker,
    pytest.mark.triton,
    pytest.mark.usefixtures("triton_installed"),
]


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_candidate_is_screened(shared_docker_sandbox: Sandbox, name: str) -> None:
    see(HONEST[name], judged(shared_docker_sandbox, HONEST[name], "triton"))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_fault_or_a_cheat_is_told(shared_docker_sandbox: Sandbox, name: str) -> None:
    see(ATTACKS[name], judged(shared_docker_sandbox, ATTACKS[name], "triton"))


ASSEMBLY = elementwise(
    'tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)'
)
"""No host runs it."""


def test_what_cannot_be_interpreted_is_compiled_only_and_the_line_is_told(shared_docker_sandbox: Sandbox) -> None:
    found = judged(shared_docker_sandbox, Case("x * 2", "33, 70", ASSEMBLY, "screened"), "triton")
    assert (found.verdict, found.tags) == ("screened", ("compiled",)), f"{found.message}\n{found.profile}"
    assert "compiled only: kernel k, line 13: inline_asm_elementwise" in found.message


def test_a_call_that_takes_too_long_is_told_how_far_its_launch_came(shared_docker_sandbox: Sandbox) -> None:
    many = elementwise("tl.where(v < 0, 0.0, v)", launch="k[(10_000_000,)](x, y, n, BLOCK=256)")
    case = Case("x.relu()", "33, 70", many, "timed_out")
    found = judged(shared_docker_sandbox, case, "triton", replace(EFFORT, call_timeout_s=6.0))
    assert found.verdict == "timed_out", found.message
    assert re.search(r"kernel k: \d+ of 10000000 programs after \d s in the interpreter", found.detail), found.detail


@pytest.mark.parametrize("path", exemplars_of("triton"), ids=lambda path: path.stem)
def test_an_exemplar_is_screened(shared_docker_sandbox: Sandbox, path: Path) -> None:
    see_exemplar(shared_docker_sandbox, path, "triton")
