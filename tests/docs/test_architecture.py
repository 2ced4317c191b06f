"""What pages say about the tree is true: paths exist, every room is named, lists are as long as they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PACKAGES = ("tasks", "sandbox", "evaluator", "agents", "whole_models", "db", "service", "web")
FOLDERS = (*PACKAGES, "tests", "benchmarks", "examples", "docs")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()

# `NAME` stands for any name.
_PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*[\w/]")
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
_LIST = re.compile(r"^### .+: (\d+) files\n\n((?:\d+\. .+\n)+)", re.MULTILINE)


def paths_named(page: str) -> set[str]:
    return set(_PATH.findall(page))


def exists(path: str) -> bool:
    return any(ROOT.glob(path.rstrip("/").replace("NAME", "*")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert [path for path in sorted(paths_named(text)) if not exists(path)] == []
    assert [link for link in _LINK.findall(text) if not (page.parent / link).exists()] == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`evaluator/referee/nowhere.py`, evaluator/platforms/NAME/nothing.py, http://host/docs/x, `db/store.py`."
    named = paths_named(text)
    assert named == {"evaluator/referee/nowhere.py", "evaluator/platforms/NAME/nothing.py", "db/store.py"}
    assert [path for path in named if exists(path)] == ["db/store.py"]
    assert exists("evaluator/platforms/NAME/")


def test_the_architecture_names_every_room() -> None:
    rooms = {
        f"{file.parent.relative_to(ROOT).as_posix()}/"
        for package in PACKAGES
        for file in (ROOT / package).rglob("__init__.py")
    }
    named = set(re.findall(r"^\| `([\w/]+/)` \|", ARCHITECTURE.partition("## The trust boundary")[0], re.MULTILINE))
    assert named == rooms


def test_each_list_of_files_is_as_long_as_its_heading_says() -> None:
    lists = _LIST.findall(ARCHITECTURE)
    assert len(lists) == 4
    for count, items in lists:
        files = re.findall(r"^\d+\. `([^`]+)`:", items, re.MULTILINE)
        assert len(files) == len(set(files)) == int(count)
        assert all((ROOT / file).is_file() for file in files)
