"""Tasks whose inputs come from cases in a JSON file beside them: what becomes of them, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.build import task_from_source
from tasks.declarations import declarations_of
from tasks.importers import read_clone
from tasks.shape_cases import MAX_CASES, cases_of, dtype_of, read_cases, with_other_cases
from tasks.task import Task, TaskError
from tasks.text import MAX_SOURCE_BYTES
from tests.support.shape_cases import SOURCE, case

OWN_NAME = "os.path.splitext(os.path.basename(__file__))[0] + '.json'"


CASES = "\n".join([case(2, 3), "", case(4, dtype="float32", value=float("nan"))]) + "\n"


def imported(
    folder: Path, source: str = SOURCE.format(name='"1_elu.json"'), cases: str | bytes | None = CASES
) -> Task | str:
    """The task of a clone with this file and these cases, or why there is none."""
    place = folder / "reference/npukernelbench_level0"
    place.mkdir(parents=True)
    (folder / "reference/math").mkdir()
    (place / "1_elu.py").write_text(source)
    if cases is not None:
        (place / "1_elu.json").write_bytes(cases if isinstance(cases, bytes) else cases.encode())
    (found,) = read_clone("multikernelbench", folder)
    return found.task or found.problem


@pytest.mark.parametrize("name", ['"1_elu.json"', OWN_NAME])
def test_cases_become_part_of_the_task(tmp_path: Path, name: str) -> None:
    task = imported(tmp_path, SOURCE.format(name=name))
    assert isinstance(task, Task), task
    assert task.id == "multikernelbench-npukernelbench_level0/1_elu"
    assert (task.category, task.dtype) == ("activation", "float16")
    assert [json.loads(line)["inputs"][0]["shape"] for line in cases_of(task.source)] == [[2, 3], [4]]
    assert declarations_of(task.source).shape_groups
    assert task_from_source(task.source, name=task.name, suite=task.suite).source == task.source, (
        "it is an ordinary task"
    )
    assert "open(" not in task.source


def test_a_group_is_made_when_it_is_asked_for_and_the_first_is_the_tasks_own(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    task = imported(tmp_path)
    assert isinstance(task, Task)
    space = {"__file__": "task.py"}
    exec(compile(task.source, "task.py", "exec"), space)
    groups = space["get_input_groups"]()
    assert len(groups) == 2 and len(list(groups)) == 2
    assert groups[1][0].shape == (4,) and groups[1][0].dtype == torch.float32 and groups[1][1] != groups[1][1]
    assert space["get_inputs"]()[0].shape == (2, 3)
    torch.manual_seed(3)
    alone = groups[1][0]
    torch.manual_seed(3)
    assert torch.equal(alone, groups[1][0]), "the other cases draw nothing"


def test_other_cases_take_the_place_of_the_first_ones(tmp_path: Path) -> None:
    task = imported(tmp_path)
    assert isinstance(task, Task)
    found = cases_of(task.source)
    assert with_other_cases(task.source, found) == task.source
    fewer = with_other_cases(task.source + "\nLATER = 1\n", found[1:])
    assert cases_of(fewer) == found[1:] and fewer.endswith("\nLATER = 1\n") and dtype_of(found[1:]) == "float32"
    assert cases_of("x = 1\n") == ()


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        (None, "1_elu.json: no such file"),
        ("", "1_elu.json: holds no case"),
        ("[]", "1_elu.json:1: is not a case with 1 to 64 inputs"),
        ('{"inputs": 3}', "1_elu.json:1: is not a case"),
        ('{"inputs": [3]}', "1_elu.json:1: has an input that is not an object"),
        (f"{case(2)}\n{{", "1_elu.json:2: is not JSON"),
        ("[" * 5000, "1_elu.json:1: is not JSON"),
        (case(-1), "1_elu.json:1: has a size that is not a number"),
        (case(1 << 50), "1_elu.json:1: has a size that is not a number"),
        (case(*[1] * 99), "1_elu.json:1: has a shape that is not a list of sizes"),
        (f"{case(1)}\n" * (MAX_CASES + 1), f"1_elu.json:{MAX_CASES + 1}: has over {MAX_CASES} cases"),
        (" " * (MAX_SOURCE_BYTES + 1), "256 KiB"),
        (b"\xff", "1_elu.json: is not UTF-8"),
    ],
)
def test_what_is_no_list_of_cases_is_refused(tmp_path: Path, cases: str | bytes | None, problem: str) -> None:
    refused = imported(tmp_path, cases=cases)
    assert isinstance(refused, str) and problem in refused, refused


def test_a_file_of_cases_elsewhere_or_behind_a_link_is_not_read(tmp_path: Path) -> None:
    elsewhere = imported(tmp_path / "a", SOURCE.format(name='"../secret.json"'))
    assert isinstance(elsewhere, str) and "reads its cases from another folder" in elsewhere
    assert imported(tmp_path / "b", SOURCE.format(name='"1_elu.json"').replace("open(", "(lambda *_: [])(")) == (
        "line 1: has no get_inputs(); add it at the top level of the file"
    )
    (tmp_path / "c/reference/npukernelbench_level0").mkdir(parents=True)
    (tmp_path / "c/reference/npukernelbench_level0/1_elu.json").symlink_to(tmp_path / "b")
    (tmp_path / "c/reference/npukernelbench_level0/1_elu.py").write_text(SOURCE.format(name='"1_elu.json"'))
    (tmp_path / "c/reference/math").mkdir()
    (found,) = read_clone("multikernelbench", tmp_path / "c")
    assert "a link, which is not followed" in found.problem


def test_a_task_that_needs_what_a_sandbox_lacks_is_refused_by_the_packages_name(tmp_path: Path) -> None:
    refused = imported(tmp_path, SOURCE.format(name='"1_elu.json"').replace("import os", "import os\nimport torch_npu"))
    assert refused == (
        "line 3: needs the package torch_npu, which a sandbox does not have; there are: einops, numpy, torch"
    )


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_cases_or_refused(data: bytes) -> None:
    try:
        assert read_cases(data, "x.json")
    except TaskError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize("listed", ["x", "1", "'not a case'", "*", "b'1'", "'{\"inputs\": []}'", "(" * 300])
def test_a_file_that_only_looks_like_one_with_cases_has_none(tmp_path: Path, listed: str) -> None:
    assert cases_of(f"x = 1\n\n_CASES = [\n    {listed},\n]\n") == ()
    task = imported(tmp_path)
    assert isinstance(task, Task)
    head, _, _ = task.source.rpartition("\n_CASES = [\n")
    assert cases_of(f"{head}\n_CASES = [\n    {listed},\n]\n") == ()
