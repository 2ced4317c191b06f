"""Reads the tasks of a clone of KernelBench, MultiKernelBench or HPCTransCompile. Nothing in the clone is executed.

A clone is foreign. Links are not followed, folders are searched only at the two levels that hold tasks, and each file
is bounded like every op (tasks/text.py). A file that cannot be used is reported with the reason; reading continues.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.build import task_from_source
from tasks.metadata import CATEGORIES
from tasks.parse import parse
from tasks.shape_cases import cases_of, dtype_of, reads_cases, with_cases
from tasks.source_kernel import SourceKernel
from tasks.task import Task, TaskError
from tasks.text import decode_source, read_source, task_error
from tasks.translate import bring_kernel, read_kernel_file
from tasks.tvm_kernel import Record, read_records

KINDS = ("kernelbench", "multikernelbench", "hpctranscompile")
MAX_FILES = 5000
PACKAGES = frozenset({"torch", "numpy", "einops"})
"""What a sandbox has beside Python's own modules."""

_LEVEL = re.compile(r"level([1-9][0-9]?)")
_FENCE = re.compile(r"```[a-z+]*\n(.*)\n```", re.DOTALL)
_TITLES = {"kernelbench": "KernelBench", "multikernelbench": "MultiKernelBench", "hpctranscompile": "HPCTransCompile"}
_FUNCTIONALS = "EvalEngine/torch_functionals"
_RECORDS = {"IndependentOperator": "operators", "ComputationGraph": "graphs", "ModelBuildingBlock": "blocks"}
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class ClonedFile:
    """A file of the clone with its task, or with the reason why it has none.

    `where` is its path in the clone. `suite` and `name` are those of its task, or would be.
    """

    where: str
    task: Task | None = None
    problem: str = ""
    suite: str = ""
    name: str = ""


def read_clone(kind: str, root: Path, *, suite: str | None = None) -> list[ClonedFile]:
    """All tasks of a clone, by folder and name. `suite` takes the place of the kind in the names of the suites.

    KernelBench: `KernelBench/level1/*.py` and so on, as suites `kernelbench-level1`. MultiKernelBench:
    `reference/CATEGORY/*.py`, as suites `multikernelbench-CATEGORY` of that category. `root` may be the clone or the
    folder that holds the levels or categories. HPCTransCompile: `EvalEngine/torch_functionals/level1/*.py` with the
    CUDA kernel of the same name in `KernelBench_c/level1`, as suites `hpctranscompile-level1`. The records of the JSON
    files in its folder `HPCTransEval` become ops with a kernel in C as the reference (`tasks.tvm_kernel`), as suites
    `hpctranscompile-operators`, `-graphs` and `-blocks`.

    A file that makes its inputs from a JSON file beside it becomes a task that holds its cases (`tasks.shape_cases`). A
    file that imports what a sandbox does not have is one with a problem.

    Raises:
        TaskError: it is not such a clone, it holds no file of a task, or more than `MAX_FILES`.
    """
    named = kind if suite is None else suite
    kernels: Path | None = None
    if kind == "multikernelbench":
        top, suites = _categories(root, named)
    elif kind == "kernelbench":
        top, suites = _levels((root / "KernelBench", root), root, kind, "KernelBench", named)
    else:
        top, suites = _levels((root / _FUNCTIONALS,), root, kind, _FUNCTIONALS, named)
        kernels = root / "KernelBench_c"
    found: list[ClonedFile] = []
    for folder, name, category in suites:
        if folder.is_symlink():
            found.append(ClonedFile(_shown(folder, top), problem="is a link, which is not followed", suite=name))
            continue
        for path in _files(folder):
            if len(found) >= MAX_FILES:
                raise task_error(str(root), f"holds more than {MAX_FILES} files", "name the clone itself")
            kernel = None if kernels is None else kernels / folder.name / f"{path.stem}.cu"
            found.append(_read(path, top, name, category, kernel))
    if kernels is not None:
        for file, part in _RECORDS.items():
            found += _read_file_of_records(root / "HPCTransEval" / f"{file}.json", f"{named}-{part}")
    if not found:
        looked = ", ".join(_shown(folder, top) for folder, _, _ in suites[:4]) + (", ..." if len(suites) > 4 else "")
        what = f"holds no task: there is no .py file in {looked}"
        raise task_error(str(root), what, f"name a whole clone of {_TITLES[kind]}")
    return found


def _read_file_of_records(path: Path, suite: str) -> list[ClonedFile]:
    """The ops of a file of records; none if there is no such file."""
    where = f"HPCTransEval/{path.name}"
    if path.is_symlink() or path.parent.is_symlink():
        return [ClonedFile(where, problem="is a link, which is not followed", suite=suite)]
    if not path.exists():
        return []
    try:
        return [_of_record(record, f"{where}#{record.number}", suite) for record in read_records(path)]
    except TaskError as error:
        return [ClonedFile(where, problem=_without_place(str(error), str(path), where), suite=suite)]


def _of_record(record: Record, where: str, suite: str) -> ClonedFile:
    file = ClonedFile(where, suite=suite, name=f"{record.number}_{record.name}")
    if record.problem:
        return replace(file, problem=record.problem)
    try:
        return replace(file, task=task_from_source(record.source, name=file.name, suite=suite, where=where))
    except TaskError as error:
        return replace(file, problem=_without_place(str(error), where))


def _levels(
    tops: Sequence[Path], root: Path, kind: str, shown: str, named: str
) -> tuple[Path, list[tuple[Path, str, str | None]]]:
    for top in tops:
        levels = [(match, entry) for entry in _folders(top) if (match := _LEVEL.fullmatch(entry.name))]
        if levels:
            by_number = sorted(levels, key=lambda level: int(level[0][1]))
            return top, [(entry, f"{named}-level{match[1]}", None) for match, entry in by_number]
    remedy = f"name a clone of {_TITLES[kind]}, which holds {shown}/level1"
    raise task_error(str(root), f"holds no folder {shown}/level1, level2, ...", remedy)


def _categories(root: Path, named: str) -> tuple[Path, list[tuple[Path, str, str | None]]]:
    remedy = "name a clone of MultiKernelBench, which holds reference/activation"
    for top in (root / "reference", root):
        folders = _folders(top)
        if any(entry.name in CATEGORIES for entry in folders):
            return top, [
                (entry, f"{named}-{entry.name}", entry.name if entry.name in CATEGORIES else None)
                for entry in folders
                if _FOLDER.fullmatch(entry.name) and not entry.name.startswith("__")
            ]
    raise task_error(str(root), "holds no folder reference/CATEGORY", remedy)


def _folders(top: Path) -> list[Path]:
    """The folders in a folder, links to folders among them, by name; none where it cannot be read."""
    try:
        with os.scandir(top) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except (OSError, ValueError):
        return []


def _files(folder: Path) -> Iterator[Path]:
    """The Python files right in a folder, by the number that their names begin with, then by name."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".py") and not entry.name.startswith("__")]
    except OSError:
        return
    digits = re.compile(r"[0-9]{0,9}")
    yield from (
        folder / name for name in sorted(names, key=lambda name: (int((digits.match(name) or [""])[0] or 0), name))
    )


def _read(path: Path, top: Path, suite: str, category: str | None, kernel: Path | None) -> ClonedFile:
    """A task; with a kernel's file, one that brings this kernel."""
    where = _shown(path, top)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name.removesuffix(".py"))
    file = ClonedFile(where, suite=suite, name=name)
    if path.is_symlink():
        return replace(file, problem="is a link, which is not followed")
    if kernel is not None and any(each.is_symlink() for each in (kernel, *kernel.parents[:2])):
        return replace(file, problem="its kernel is a link, which is not followed")
    try:
        source = read_source(path)
        _refuse_missing_packages(parse(decode_source(source, where), where), where)
        if reads_cases(source):
            whole = with_cases(source, path, where)
            dtype = dtype_of(cases_of(whole))
            task = task_from_source(whole, name=name, suite=suite, category=category, dtype=dtype, where=where)
        else:
            task = task_from_source(source, name=name, suite=suite, category=category, where=where)
        if kernel is not None:
            found = SourceKernel("cuda", _without_fence(read_kernel_file(kernel)))
            task = replace(task, source=bring_kernel(task, found))
        return replace(file, task=task)
    except TaskError as error:
        return replace(file, problem=_without_place(str(error), str(path), where))


def _refuse_missing_packages(tree: ast.Module, where: str) -> None:
    """Refuse a file that cannot run in a sandbox for want of a package. Imports inside a `try` may fail.

    Raises:
        TaskError: it imports what is neither Python's own nor in `PACKAGES`.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, ast.Import | ast.ImportFrom):
            waiting.extend(() if isinstance(node, ast.Try) else ast.iter_child_nodes(node))
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = ["." if node.level else node.module or "."]
        for name in (each.partition(".")[0] for each in names):
            if name not in PACKAGES and name not in sys.stdlib_module_names:
                what = f"needs the package {name[:64]}" if name else "needs files beside it"
                known = ", ".join(sorted(PACKAGES))
                raise task_error(
                    where, f"{what}, which a sandbox does not have", f"there are: {known}", line=node.lineno
                )


def _without_fence(text: str) -> str:
    """The text in a Markdown fence, if it is in one: some kernels are stored as a model answered them."""
    return match[1] if (match := _FENCE.fullmatch(text.strip())) else text


def _without_place(complained: str, *places: str) -> str:
    """A complaint about a file, without the file's name."""
    for place in places:
        if complained.startswith(place):
            text = complained.removeprefix(place)
            return re.sub(r"^:([0-9]+): ", r"line \1: ", text).removeprefix(": ")
    return complained


def _shown(path: Path, top: Path) -> str:
    text = str(path.relative_to(top.parent if top.parent != path.parent else top))
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
