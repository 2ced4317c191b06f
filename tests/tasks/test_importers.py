"""Importing clones of KernelBench and MultiKernelBench: their layout, what is refused, what names mean afterwards."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store import Store
from service.cancellation import CancelToken
from service.cli.app import run
from service.database import open_store
from service.settings import load_settings
from service.task_import import ImportResult, Selection, check_imported, import_clone, import_fitted
from service.tasks import find_task, known_task_heads, known_tasks, list_tasks
from tasks.fit import fitted_of, read_limit
from tasks.importers import KINDS, read_clone
from tasks.shape_cases import cases_of
from tasks.source_kernel import source_kernel_of
from tasks.task import TaskError
from tasks.text import MAX_SOURCE_BYTES
from tasks.translate import with_source_kernel
from tests.support.fast_batches import OP
from tests.support.shape_cases import SOURCE, case

CONSTANT = OP.format(factor=2).replace("torch.relu(x) * 2", "torch.relu(x) * 0 + 3")


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(load_settings())
    yield opened
    opened.close()


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    return write(
        tmp_path / "clone",
        {
            "README.md": "not a task",
            "KernelBench/level1/1_Double_.py": OP.format(factor=2),
            "KernelBench/level1/10_Ten.py": OP.format(factor=10),
            "KernelBench/level1/2_Triple.py": OP.format(factor=3),
            "KernelBench/level1/__init__.py": "",
            "KernelBench/level2/1_Fourfold.py": OP.format(factor=4),
            "KernelBench/changelog/level1/1_Old.py": OP.format(factor=5),
            "src/eval.py": "raise SystemExit('never run')",
        },
    )


def statuses(found: list[ImportResult]) -> dict[str, str]:
    return {each.where: each.status for each in found}


def test_the_levels_of_kernelbench_become_suites_in_the_order_of_their_numbers(kernelbench: Path) -> None:
    found = read_clone("kernelbench", kernelbench)
    assert [each.task.id for each in found if each.task] == [
        "kernelbench-level1/1_Double_",
        "kernelbench-level1/2_Triple",
        "kernelbench-level1/10_Ten",
        "kernelbench-level2/1_Fourfold",
    ]
    assert len(found) == 4
    assert [each.task for each in read_clone("kernelbench", kernelbench / "KernelBench")] == [
        each.task for each in found
    ]


def test_the_categories_of_multikernelbench_become_suites_and_are_kept(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "reference/matmul/double.py": OP.format(factor=2),  # what it does would be told to be an activation
            "reference/activation/double.py": OP.format(factor=2),
            "reference/npukernelbench_level0/shapes.py": OP.format(factor=3),
            "reference/.git/hook.py": OP.format(factor=3),
            "backends/cuda_backend.py": "raise SystemExit('never run')",
        },
    )
    found = [each.task for each in read_clone("multikernelbench", root)]
    assert [(task.suite, task.name, task.category) for task in found if task] == [
        ("multikernelbench-activation", "double", "activation"),
        ("multikernelbench-matmul", "double", "matmul"),
        ("multikernelbench-npukernelbench_level0", "shapes", "activation"),
    ]
    assert len(found) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_no_such_clone_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for path in (tmp_path, tmp_path / "missing", Path("nul\0byte")):
        with pytest.raises(TaskError, match=r"holds no folder .*; name a clone of"):
            read_clone(kind, path)


def test_nothing_of_a_clone_is_executed(kernelbench: Path, tmp_path: Path, store: Store) -> None:
    mark = tmp_path / "ran"
    effect = f"open({str(mark)!r}, 'w').close()\n" + OP.format(factor=2)
    write(kernelbench, {"KernelBench/level1/5_effect.py": effect, "KernelBench/level1/conftest.py": effect})
    import_clone("kernelbench", kernelbench, store=store)
    assert not mark.exists()


def test_files_that_hold_no_valid_op_are_refused_with_why_and_stop_nothing(kernelbench: Path, store: Store) -> None:
    level = "KernelBench/level1"
    candidate = OP.format(factor=2).replace("class Model", "class ModelNew")
    write(
        kernelbench,
        {
            f"{level}/20_latin1.py": OP.format(factor=2).encode() + b"# \xe9\n",
            f"{level}/21_huge.py": OP.format(factor=2) + "#" * MAX_SOURCE_BYTES,
            f"{level}/22_syntax.py": "def (",
            f"{level}/23_candidate.py": candidate,
            f"{level}/24_empty.py": "",
            f"{level}/25_deep.py": "x = " + "(" * 5000 + ")" * 5000,
            f"{level}/26_no_inputs.py": OP.format(factor=2).replace("get_inputs", "inputs"),
            f"{level}/-27_name.py": OP.format(factor=2),
            f"{level}/28_{'long' * 40}.py": OP.format(factor=2),
        },
    )
    os.mkfifo(kernelbench / level / "29_pipe.py")
    (kernelbench / level / "30_folder.py").mkdir()
    found = import_clone("kernelbench", kernelbench, store=store)
    refused = {each.where.rpartition("/")[2]: each.problem for each in found if each.status == "refused"}
    assert len(refused) == 11
    assert sum(each.status == "imported" for each in found) == 4
    assert "not UTF-8" in refused["20_latin1.py"]
    assert "256 KiB" in refused["21_huge.py"]
    assert refused["22_syntax.py"].startswith("line 1: is not Python")
    assert "is a candidate" in refused["23_candidate.py"]
    assert "is empty" in refused["24_empty.py"]
    assert "no get_inputs" in refused["26_no_inputs.py"]
    assert "cannot be given the name" in refused["-27_name.py"]
    assert "not a regular file" in refused["29_pipe.py"]
    assert all("\n" not in problem and problem for problem in refused.values())
    assert not any(str(kernelbench) in problem for problem in refused.values())


def test_links_are_not_followed(kernelbench: Path, tmp_path: Path, store: Store) -> None:
    secret = tmp_path / "elsewhere"
    write(secret, {"1_outside.py": OP.format(factor=9)})
    (kernelbench / "KernelBench/level1/7_link.py").symlink_to(secret / "1_outside.py")
    (kernelbench / "KernelBench/level1/8_dangling.py").symlink_to(tmp_path / "nothing")
    (kernelbench / "KernelBench/level3").symlink_to(secret)
    found = import_clone("kernelbench", kernelbench, store=store)
    refused = {each.where: each.problem for each in found if each.status == "refused"}
    assert set(refused.values()) == {"is a link, which is not followed"}
    assert {where.rpartition("/")[2] for where in refused} == {"7_link.py", "8_dangling.py", "level3"}
    assert not any(task.suite == "kernelbench-level3" for task in known_tasks(store))


def test_folders_are_not_descended(kernelbench: Path) -> None:
    deep = kernelbench / "KernelBench/level1" / "/".join(["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "1_deep.py").write_text(OP.format(factor=2))
    assert len(read_clone("kernelbench", kernelbench)) == 4


def test_a_name_that_a_terminal_would_obey_is_shown_as_text(kernelbench: Path, store: Store) -> None:
    (kernelbench / "KernelBench/level1" / os.fsdecode(b"9_\x1b[31m\xff.py")).write_text("def (")
    (refused,) = (each for each in import_clone("kernelbench", kernelbench, store=store) if each.status == "refused")
    assert refused.where.isprintable() and refused.problem.isprintable()


def test_a_clone_imported_on_finite_inputs_makes_suites_of_their_own(kernelbench: Path, store: Store) -> None:
    alone = import_clone("kernelbench", kernelbench, store=store, selection=Selection(domain="finite"))
    ids = [each.task.id for each in alone if each.task is not None]
    assert ids and all(re.fullmatch(r"kernelbench-level\d\.finite/.*", each) for each in ids)
    assert {task.id for task in known_tasks(store) if task.suite.startswith("kernelbench")} == set(ids)
    found = find_task("kernelbench-level1.finite/1_Double_", store=store)
    assert found.source.endswith('DOMAIN = "finite"\n')
    # Beside whole tasks, those on a domain follow from them and are not listed.
    import_clone("kernelbench", kernelbench, store=store)
    listed = {task.suite for task in known_tasks(store)} | {task.suite for task in known_task_heads(store)}
    assert not any(suite.endswith(".finite") for suite in listed)
    write(kernelbench, {"KernelBench/level1/1_Double_.py": OP.format(factor=2.5)})
    import_clone("kernelbench", kernelbench, store=store)
    assert "* 2.5" in find_task("kernelbench-level1.finite/1_Double_", store=store).source, "it follows the whole task"


def test_importing_again_tells_what_changed_and_keeps_the_earlier_form(kernelbench: Path, store: Store) -> None:
    first = import_clone("kernelbench", kernelbench, store=store)
    assert set(statuses(first).values()) == {"imported"}
    assert set(statuses(import_clone("kernelbench", kernelbench, store=store)).values()) == {"unchanged"}
    write(kernelbench, {"KernelBench/level1/1_Double_.py": OP.format(factor=2.5)})
    again = statuses(import_clone("kernelbench", kernelbench, store=store))
    assert [where for where, status in again.items() if status == "changed"] == ["KernelBench/level1/1_Double_.py"]
    assert "* 2.5" in find_task("kernelbench-level1/1_Double_", store=store).source
    write(kernelbench, {"KernelBench/level1/1_Double_.py": OP.format(factor=2)})
    assert "changed" in statuses(import_clone("kernelbench", kernelbench, store=store)).values()
    assert "* 2\n" in find_task("kernelbench-level1/1_Double_", store=store).source
    assert len(list_tasks(store, "kernelbench-level1")) == 3


def test_two_files_of_one_name_are_not_taken_for_one_task(kernelbench: Path, store: Store) -> None:
    write(kernelbench, {"KernelBench/level1/3 a.py": OP.format(factor=7), "KernelBench/level1/3_a.py": CONSTANT})
    found = import_clone("kernelbench", kernelbench, store=store)
    problems = [each.problem for each in found if each.status == "refused"]
    assert problems == ["has the same name as KernelBench/level1/3 a.py"]


def test_imported_tasks_have_names_like_built_in_ones(kernelbench: Path, store: Store) -> None:
    import_clone("kernelbench", kernelbench, store=store)
    task = find_task("kernelbench-level1/10_Ten", store=store)
    assert (task.suite, task.name, "* 10" in task.source) == ("kernelbench-level1", "10_Ten", True)
    assert [task.name for task in list_tasks(store, "kernelbench-level1")] == ["1_Double_", "2_Triple", "10_Ten"]
    assert find_task("starter/rmsnorm_gelu", store=store).suite == "starter"
    with pytest.raises(TaskError, match=r"did you mean kernelbench-level1/10_Ten\?"):
        find_task("kernelbench-level1/10_Tenn", store=store)
    with pytest.raises(TaskError, match=r"did you mean kernelbench-level[12]"):
        list_tasks(store, "kernelbench-level")


def test_strangers_name_no_files(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "op.py"
    path.write_text(OP.format(factor=2))
    assert find_task(str(path), store=store).name == "op"
    with pytest.raises(TaskError, match="no such task;"):
        find_task(str(path), store=store, files=False)
    for missing in ("local/op", "../op", "/etc/passwd", ""):
        with pytest.raises(TaskError, match="no such task;"):
            find_task(missing, store=store, files=False)


def test_the_command_imports_lists_and_shows(kernelbench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(kernelbench, {"KernelBench/level1/4_bad.py": "def ("})
    assert run(["tasks", "import", "kernelbench", str(kernelbench)]) == 0
    shown = capsys.readouterr().out
    assert "kernelbench-level1" in shown and "refused KernelBench/level1/4_bad.py: line 1: is not Python" in shown
    assert max(len(line) for line in shown.splitlines() if not line.startswith("refused")) <= 80
    assert run(["tasks", "show", "kernelbench-level1/2_Triple"]) == 0
    assert "torch.relu(x) * 3" in capsys.readouterr().out
    assert run(["tasks", "list", "--suite", "kernelbench-level2", "--json"]) == 0
    assert [task["task"] for task in json.loads(capsys.readouterr().out)["tasks"]] == ["kernelbench-level2/1_Fourfold"]
    assert run(["tasks", "import", "kernelbench", str(kernelbench), "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert [task["status"] for task in tasks] == ["unchanged", "unchanged", "refused", "unchanged", "unchanged"]


def test_the_command_refuses_what_is_no_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tasks", "import", "kernelbench", str(tmp_path)]) == 2
    assert "name a clone of KernelBench" in capsys.readouterr().err
    assert run(["tasks", "import", "otherbench", str(tmp_path)]) == 2


def test_the_check_lists_the_degenerate_tasks_and_why(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.task_import.TOO_SHORT_MS", 20.0)  # whatever the host
    ignored = OP.format(factor=2).replace("forward(self, x)", "forward(self, x, y)")
    ignored = ignored.replace("[torch.randn(8, 8)]", "[torch.randn(512, 512), torch.randn(8)]")
    root = write(
        tmp_path,
        {
            "KernelBench/level1/1_constant.py": CONSTANT,
            "KernelBench/level1/2_ignored_input.py": ignored,
            "KernelBench/level1/3_undetermined.py": OP.format(factor="__import__('os').urandom(1)[0]"),
            "KernelBench/level1/4_tiny.py": OP.format(factor=2),
        },
    )
    tasks = [each.task for each in import_clone("kernelbench", root, store=store) if each.task]
    settings = load_settings(sandbox="process")
    checked = list(check_imported(tasks, settings=settings, on_progress=lambda text: None, cancel=CancelToken()))
    constant, ignoring, undetermined, tiny = checked
    assert constant.degenerate and constant.problems[0].startswith("constant_output")
    assert ignoring.degenerate and any("no output depends on input tensor 1" in doubt for doubt in ignoring.doubts)
    assert tiny.degenerate and not tiny.problems and tiny.doubts[0].startswith("too small to time")
    assert undetermined.problems[0].startswith("nondeterministic"), undetermined


def test_two_versions_of_a_set_stand_side_by_side(kernelbench: Path, store: Store) -> None:
    import_clone("kernelbench", kernelbench, store=store)
    write(kernelbench, {"KernelBench/level1/1_Double_.py": OP.format(factor=2.5)})
    again = import_clone("kernelbench", kernelbench, store=store, selection=Selection(suite="kb-new"))
    assert {each.status for each in again} == {"imported"}
    assert "* 2\n" in find_task("kernelbench-level1/1_Double_", store=store).source
    assert "* 2.5" in find_task("kb-new-level1/1_Double_", store=store).source
    refused = import_clone("kernelbench", kernelbench, store=store, selection=Selection(suite="../x"))
    assert {each.status for each in refused} == {"refused"}
    assert all("cannot be given the suite '../x-level" in each.problem for each in refused)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("kernelbench-level2",), ["1_Fourfold"]),
        (("kernelbench-level1/1*",), ["1_Double_", "10_Ten"]),
        (("2_Triple", "1_Fourfold"), ["2_Triple", "1_Fourfold"]),
        (("KernelBench/level1/10_*.py",), ["10_Ten"]),
    ],
)
def test_only_what_is_named_is_imported(
    patterns: tuple[str, ...], names: list[str], kernelbench: Path, store: Store
) -> None:
    found = import_clone("kernelbench", kernelbench, store=store, selection=Selection(only=patterns))
    assert [each.task.name for each in found if each.task] == names
    assert sorted(task.name for task in known_tasks(store) if task.suite.startswith("kernelbench")) == sorted(names)


def test_a_name_that_means_no_task_of_the_clone_is_an_error(
    kernelbench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tasks", "import", "kernelbench", str(kernelbench), "--only", "level9/*"]) == 2
    told = capsys.readouterr().err
    assert "--only level9/*: names none of the 4 files" in told and "kernelbench-level1, kernelbench-level2" in told


def test_an_empty_import_is_an_error_that_says_what_was_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "KernelBench/level1").mkdir(parents=True)
    (tmp_path / "KernelBench/level2").mkdir()
    assert run(["tasks", "import", "kernelbench", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "holds no task: there is no .py file in KernelBench/level1, KernelBench/level2; name a whole clone" in line
    write(tmp_path, {"KernelBench/level1/1_bad.py": "def ("})
    assert run(["tasks", "import", "kernelbench", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "refused KernelBench/level1/1_bad.py" in shown.out
    assert "nothing was imported, all 1 files" in shown.err


def test_a_package_that_a_sandbox_lacks_is_named(kernelbench: Path) -> None:
    level = "KernelBench/level4"
    optional = "try:\n    import fused\nexcept ImportError:\n    fused = None\n"
    write(
        kernelbench,
        {
            f"{level}/1_gpt2.py": "from transformers import AutoConfig\n" + OP.format(factor=2),
            f"{level}/2_einops.py": "from einops import rearrange\nimport math\n" + OP.format(factor=2),
            f"{level}/3_optional.py": optional + OP.format(factor=2),
            f"{level}/4_local.py": "from . import layers\n" + OP.format(factor=2),
        },
    )
    problems = {each.name: each.problem for each in read_clone("kernelbench", kernelbench) if "level4" in each.suite}
    assert problems == {
        "1_gpt2": "line 1: needs the package transformers, which a sandbox does not have; there are: einops, numpy,"
        " torch",
        "2_einops": "",
        "3_optional": "",
        "4_local": "line 1: needs files beside it, which a sandbox does not have; there are: einops, numpy, torch",
    }


LARGE = """import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc = torch.nn.Linear(features, 8)

    def forward(self, x):
        {check}
        return self.fc(x)


batch_size = 4096
features = 1024


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
"""


def fitted(root: Path, store: Store, limit: str, **selection: object) -> list[ImportResult]:
    steps = import_fitted(
        "kernelbench",
        root,
        read_limit(limit),
        store=store,
        settings=load_settings(sandbox="process"),
        selection=Selection(**selection),
        on_progress=lambda done, count: None,
        cancel=CancelToken(),
    )
    return [each for results in steps for each in results]


def test_tasks_are_scaled_down_into_suites_of_their_own(tmp_path: Path, store: Store) -> None:
    level = "KernelBench/level1"
    root = write(
        tmp_path,
        {
            f"{level}/1_plain.py": LARGE.format(check="pass"),
            f"{level}/2_looks.py": LARGE.format(check="assert float(x.sum()) > 0"),
            f"{level}/3_small.py": OP.format(factor=2),
            f"{level}/4_inline.py": OP.format(factor=2).replace("8, 8", "9000, 9000"),
            f"{level}/6_kills.py": "import os\nos.kill(os.getpid(), 9)\n" + LARGE.format(check="pass"),
            f"{level}/7_bad.py": "def (",
        },
    )
    import_clone("kernelbench", root, store=store)
    first = {each.where.rpartition("/")[2]: each for each in fitted(root, store, "2MB")}
    told = {name: each.task and fitted_of(each.task.source) for name, each in first.items()}
    assert {name: fit.changed for name, fit in told.items() if fit} == {
        "1_plain.py": {"batch_size": (4096, 256)},
        "2_looks.py": {"batch_size": (4096, 256)},
        "3_small.py": {},
    }
    problems = {name: each.problem for name, each in first.items() if each.status == "refused"}
    assert problems["4_inline.py"].startswith("a call moves 648 MB, and no integer at the top level")
    assert problems["6_kills.py"] == "its inputs cannot be made in a sandbox: its code ended the process (signal 9)"
    assert problems["7_bad.py"].startswith("line 1: is not Python")
    whole, small = (find_task(f"{suite}/1_plain", store=store) for suite in ("kernelbench-level1", SMALL))
    assert "batch_size = 4096" in whole.source and "batch_size = 256" in small.source
    again = {each.where.rpartition("/")[2]: each for each in fitted(root, store, "2MB")}
    assert {name: each.status for name, each in again.items() if each.task} == dict.fromkeys(
        ("1_plain.py", "2_looks.py", "3_small.py"), "unchanged"
    )
    assert all(each.fit is None for each in again.values() if each.task), "they are not tried again"
    alone = fitted(root, store, "2MB", only=("3_small",), domain="finite")
    assert [each.task.id for each in alone if each.task] == [f"{SMALL}.finite/3_small"]


SMALL = "kernelbench-level1-fit2MB"


def test_of_a_task_with_cases_those_that_fit_are_kept(tmp_path: Path, store: Store) -> None:
    cases = [case(64, 1024, dtype="float32"), case(1024, 1024, dtype="float32"), case(8, dtype="float32")]
    place = "reference/npukernelbench_level0"
    source = SOURCE.format(name='"1_elu.json"')
    broken = SOURCE.format(name='"2_elu.json"').replace("elu(x, alpha)", "elu(x, alpha).view(7, -1)")
    write(
        tmp_path,
        {
            "reference/math/none.txt": "",
            f"{place}/1_elu.py": source,
            f"{place}/1_elu.json": "\n".join(cases),
            f"{place}/2_elu.py": broken,
            f"{place}/2_elu.json": "\n".join(cases),
        },
    )
    steps = import_fitted(
        "multikernelbench",
        tmp_path,
        read_limit("1MB"),
        store=store,
        settings=load_settings(sandbox="process"),
        on_progress=lambda done, count: None,
        cancel=CancelToken(),
    )
    kept, refused = (each for results in steps for each in results)
    assert kept.task is not None and kept.task.id == "multikernelbench-npukernelbench_level0-fit1MB/1_elu"
    assert cases_of(kept.task.source) == (cases[0], cases[2])
    told = fitted_of(kept.task.source)
    assert told is not None and told.left_out == (1,) and told.describe() == "without 1 of its cases"
    assert refused.problem.startswith("none of its 3 cases fits: RuntimeError: shape '[7, -1]' is invalid")


def test_the_command_scales_down_and_shows_what_it_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path, {"KernelBench/level1/1_plain.py": LARGE.format(check="pass")})
    command = ["tasks", "import", "kernelbench", str(root), "--fit", "2MB", "--sandbox", "process"]
    assert run(command) == 0
    shown = capsys.readouterr()
    assert f"{SMALL}/1_plain: batch_size 4096 -> 256" in shown.err and SMALL in shown.out
    assert run([*command, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["tasks"]
    assert (line["status"], line["task"], line["fit"]) == ("unchanged", f"{SMALL}/1_plain", None)
    assert run(["tasks", "show", f"{SMALL}/1_plain"]) == 0
    assert (
        "# kernelbench-level1/1_plain scaled down to 2,000,000 bytes: batch_size 4096 -> 256" in capsys.readouterr().out
    )
    assert run(["tasks", "show", f"{SMALL}/1_plain", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fitted"]
    assert (told["of"], told["changed"]) == ("kernelbench-level1/1_plain", {"batch_size": [4096, 256]})
    assert run([*command[:-3], "2 MB"]) == 2
    assert "give a whole number of MB, MiB, GB or GiB" in capsys.readouterr().err
    assert run(["tasks", "import", "hpctranscompile", str(root), "--fit", "2MB"]) == 2
    assert "kernels of hpctranscompile are written for the sizes of their ops" in capsys.readouterr().err
    assert run(["tasks", "import", "kernelbench", str(root), "--again"]) == 2


def test_checking_goes_on_where_it_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {f"KernelBench/level1/{number}_op.py": OP.format(factor=number) for number in (2, 3, 4)}
    root = write(tmp_path, files)
    command = ["tasks", "import", "kernelbench", str(root), "--check", "--sandbox", "process"]
    killed = subprocess.Popen([sys.executable, "-m", "service.cli", *command], stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    lines = iter(killed.stderr.readline, "")
    assert any(line.startswith("[1/3]") for line in lines)
    killed.kill()
    killed.communicate()
    assert run([*command, "--json"]) == 0
    told = capsys.readouterr()
    kept = [check["kept"] for check in json.loads(told.out)["checks"]]
    assert kept[0] and not kept[2], "what was checked is not checked again"
    assert "[1/3] kernelbench-level1/2_op: " in told.err and "(checked earlier)" in told.err
    write(root, {"KernelBench/level1/3_op.py": OP.format(factor=9)})
    assert run([*command, "--json", "--only", "kernelbench-level1/[23]_op"]) == 0
    assert [check["kept"] for check in json.loads(capsys.readouterr().out)["checks"]] == [True, False]
    assert run([*command, "--json", "--only", "2_op", "--again"]) == 0
    assert [check["kept"] for check in json.loads(capsys.readouterr().out)["checks"]] == [False]


CUDA = '// "doubles" a value \\\n__global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n'


@pytest.fixture
def hpctranscompile(tmp_path: Path) -> Path:
    functionals, kernels = "EvalEngine/torch_functionals", "KernelBench_c"
    with_function = OP.format(factor=2).replace("def forward(self, x)", "def forward(self, x, fn=torch.relu)")
    return write(
        tmp_path / "clone",
        {
            f"{functionals}/level1/1_Double_.py": with_function,
            f"{functionals}/level1/2_Fenced.py": OP.format(factor=3),
            f"{functionals}/level1/3_Alone.py": OP.format(factor=4),
            f"{functionals}/level2/1_Latin.py": OP.format(factor=5),
            f"{kernels}/level1/1_Double_.cu": CUDA,
            f"{kernels}/level1/2_Fenced.cu": f"```cpp\n{CUDA.rstrip()}\n```\n",
            f"{kernels}/level2/1_Latin.cu": b"// \xe9\n",
            "HPCTransEval/IndependentOperator.json": '[{"op_name": "abs", "cuda_code": "", "c_code": ""}]',
            "EvalEngine/eval_KernelBench_c.py": "raise SystemExit('never run')",
        },
    )


def test_tasks_of_hpctranscompile_bring_the_kernels_that_are_to_be_translated(hpctranscompile: Path) -> None:
    found = read_clone("hpctranscompile", hpctranscompile)
    tasks = [each.task for each in found if each.task is not None]
    assert [task.id for task in tasks] == ["hpctranscompile-level1/1_Double_", "hpctranscompile-level1/2_Fenced"]
    for task in tasks:
        kernel = source_kernel_of(task.source)
        assert kernel is not None and (kernel.platform, kernel.source.rstrip()) == ("cuda", CUDA.rstrip())
        assert with_source_kernel(task, platform="cuda", kernel=None) == task


def test_what_brings_no_kernel_or_no_reference_is_refused_with_why(hpctranscompile: Path, store: Store) -> None:
    found = import_clone("hpctranscompile", hpctranscompile, store=store)
    refused = {Path(each.where).name: each.problem for each in found if each.status == "refused"}
    assert sorted(refused) == ["1_Latin.py", "3_Alone.py", "IndependentOperator.json#1"]
    assert "3_Alone.cu: no such file" in refused["3_Alone.py"]
    assert "1_Latin.cu: is not UTF-8" in refused["1_Latin.py"]
    assert refused["IndependentOperator.json#1"] == "has no text 'c_code'"
    assert find_task("hpctranscompile-level1/1_Double_", store=store, files=False).name == "1_Double_"


def test_a_kernel_that_is_a_link_is_not_followed(hpctranscompile: Path) -> None:
    kernel = hpctranscompile / "KernelBench_c/level1/1_Double_.cu"
    kernel.unlink()
    kernel.symlink_to("/etc/passwd")
    [first, *_] = read_clone("hpctranscompile", hpctranscompile)
    assert (first.task, first.problem) == (None, "its kernel is a link, which is not followed")
