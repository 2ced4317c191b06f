"""`kernelwright model` and `models` as a user meets them: real processes, a real sandbox, the built-in compiler."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.referee.protocol.input_families import GIVEN_WEIGHTS
from tasks.weights_file import read_weights
from tests.support.commands import KERNELWRIGHT, environment
from tests.support.weights import state_file
from whole_models.regions import shape_group_in

NET = '''"""A chain of element-wise operators, a product, and a softmax."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 1024))
        self.out = torch.nn.Linear(1024, 32)

    def forward(self, x):
        gate = torch.sigmoid(x * self.scale) * torch.tanh(x) + x.abs() * 0.25 - torch.relu(x - 0.5)
        return torch.softmax(self.out(gate), dim=-1)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
'''
GROUPS = """

def get_input_groups():
    return [[torch.randn(3, 1024)], [torch.randn(1000, 1024)]]
"""
BRANCHES = NET.replace("        gate =", "        if x.sum() > 1e9:\n            return x\n        gate =")
USE = """
import runpy, sys, torch
from model import Model
original = runpy.run_path(sys.argv[1])["Model"]()
ours = Model()
ours.load_state_dict(original.state_dict())
assert list(ours.state_dict()) == list(original.state_dict())
with torch.no_grad():
    for shape in ((1024, 1024), (3, 1024), (1000, 1024), (7, 1024)):
        x = torch.randn(shape)
        torch.testing.assert_close(ours(x), original(x), rtol=1e-4, atol=1e-6)
print("same")
"""


def command(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KERNELWRIGHT, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        check=False,
    )


def weights_file(shapes: dict[str, list[int]]) -> bytes:
    """Weights of which each lies between 0 and 1."""

    def raw(count: int) -> bytes:
        return struct.pack(f"<{count}f", *(index % 97 / 97 for index in range(count)))

    return state_file({name: ("F32", shape, raw(math.prod(shape))) for name, shape in shapes.items()})


@pytest.mark.docker
@pytest.mark.timeout(900)  # two lists of inputs with jobs, trials and proofs take 153 s alone
def test_a_model_becomes_faster_and_runs_with_pytorch_alone(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + GROUPS)
    (tmp_path / "w.safetensors").write_bytes(
        weights_file({"scale": [1024], "out.weight": [32, 1024], "out.bias": [32]})
    )
    flags = ("--state", "w.safetensors", "--rounds", "1", "--out", "faster", "--json")
    done = command(tmp_path, "model", "net.py", *flags)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["schema"], found["status"], found["stage"]) == ("kernelwright.model/1", "done", "done")
    assert found["kept"] and found["proof"]["verdict"] == "passed"
    assert found["proof"]["speedup"]["eager"]["value"] > 1
    checked = [each["inputs"] for each in found["proof"]["correctness"]["checks"] if each["passed"]]
    assert {"shape group 0", "shape group 1"} <= set(checked), "other shapes are part of the proof"
    assert GIVEN_WEIGHTS in checked, "so are the weights"
    faster = tmp_path / "faster"
    assert {path.stem for path in (faster / "kernels").iterdir()} == set(found["kept"])
    used = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "net.py")], cwd=faster, capture_output=True, text=True, check=False
    )
    assert (used.returncode, used.stdout) == (0, "same\n"), used.stderr[-2000:]
    listed = json.loads(command(tmp_path, "models", "list", "--json").stdout)
    assert [(run["id"], run["status"]) for run in listed["runs"]] == [(1, "done")]
    shown = command(tmp_path, "models", "show", "1")
    assert [row["shape_group"] for row in found["shapes"]] == [0, 1]
    proven = {row["shape_group"] for row in found["shapes"] if row["evaluation"] is not None}
    kept = {shape_group_in(name) for name in found["kept"]} - {None}
    assert 1 in kept == proven, "a list of inputs with kernels has a proof of its own"
    assert all(f"get_input_groups()[{number}]" in shown.stdout for number in range(2))
    report = (faster / "report.md").read_text()
    assert all(f"get_input_groups()[{number}]" in report for number in range(2))
    assert read_weights((tmp_path / "w.safetensors").read_bytes()).digest in report
    assert all(words in shown.stdout for words in ("with kernels", "verdict    passed", "faster/model.py", "kept"))
    again = command(tmp_path, "models", "resume", "1")
    assert (again.returncode, again.stderr.count("model run 1 is done")) == (2, 1)


@pytest.mark.docker
def test_a_plan_spends_nothing_and_names_what_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "branches.py").write_text(BRANCHES)
    done = command(tmp_path, "model", "branches.py", "--plan", "--tasks", "regions")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "as it is   the model itself (Model)" in done.stdout and "values of tensors" in done.stdout
    assert (tmp_path / "regions").is_dir()
    assert json.loads(command(tmp_path, "models", "list", "--json").stdout)["runs"] == []


@pytest.mark.docker
def test_a_plan_says_which_weights_are_of_another_dtype(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    weights = {"scale": ("F16", [1024], bytes(2048)), "out.bias": ("F32", [32], bytes(128))}
    weights["out.weight"] = ("F32", [32, 1024], bytes(4 * 32 * 1024))
    (tmp_path / "w.safetensors").write_bytes(state_file(weights))
    done = command(tmp_path, "model", "net.py", "--plan", "--state", "w.safetensors")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "note       1 of the 3 weights is float16 in the file and float32 in the model" in done.stdout


@pytest.mark.docker
def test_weights_of_another_model_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "w.safetensors").write_bytes(weights_file({"scale": [1024], "out.weight": [32, 512]}))
    done = command(tmp_path, "model", "net.py", "--plan", "--state", "w.safetensors")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "out.bias" in line and "out.weight" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model", "none.py"), "none.py: no such file; check the path"),
        (("model", "net.py", "--platform", "cuda"), "platform 'cuda': whole models are for cpu"),
        (("model", "net.py", "--tasks", "here"), "--tasks goes with --plan"),
        (("model", "net.py", "--state", "none.safetensors"), "--state none.safetensors: cannot be read"),
        (("model", "net.py", "--plan", "--state", "empty.safetensors"), "--state empty.safetensors: is empty"),
        (("model", "net.py", "--out", "no/where"), "--out no/where: folder no is not there; make it first"),
        (("models", "show", "7"), "model run 7 is not in the store"),
        (("models", "resume", "7"), "model run 7 is not in the store"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "empty.safetensors").touch()
    done = command(tmp_path, *arguments)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and said in errors[0]
