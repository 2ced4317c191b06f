"""Anchored edits: made where they fit exactly once, refused with the reason everywhere else."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.prompting.parse import Edit, EditError, ReplyError, apply_edits, extract_candidate, find_edits

FILE = "import torch\n\n\nclass ModelNew:\n    width = 4\n    depth = 4\n"


def block(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


def test_edits_change_what_they_quote_and_nothing_else() -> None:
    reply = "Wider.\n\n" + block("    width = 4\n", "    width = 8\n") + "and\n" + block("    depth = 4\n", "")
    assert extract_candidate(reply, base=FILE) == "import torch\n\n\nclass ModelNew:\n    width = 8\n"


def test_a_later_edit_sees_what_an_earlier_one_made() -> None:
    edits = (Edit("    width = 4\n", "    width = 8\n"), Edit("    width = 8\n", "    width = 16\n"))
    assert "width = 16" in apply_edits(FILE, edits)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (block("    height = 4\n", "    height = 8\n"), "not in the file as whole lines (it begins with 'height = 4')"),
        (block(" = 4\n", " = 8\n"), "is in the file 2 times"),
        (block("", "x\n"), "searches for nothing"),
        (block("class ModelNew:\n", "class Model:\n"), "After the edits the file defines no top-level class"),
        (block("    width = 4\n", "    width = (\n"), "After the edits the file is not valid Python"),
        ("<<<<<<< SEARCH\n    width = 4\n=======\n    width = 8\n" + block("import torch\n", ""), "not closed"),
        (block("    width = 4\n", "    width = 8\n") * 65, "at most 64"),
    ],
)
def test_edits_that_cannot_be_made_are_refused_with_the_reason(reply: str, words: str) -> None:
    with pytest.raises(ReplyError) as refused:
        extract_candidate(reply, base=FILE)
    assert words in str(refused.value)


def test_without_a_file_to_change_edits_are_no_candidate() -> None:
    with pytest.raises(ReplyError, match="no closed ```python block"):
        extract_candidate(block("    width = 4\n", "    width = 8\n"))


def test_a_whole_file_is_taken_where_there_are_no_edits() -> None:
    assert extract_candidate(f"```python\n{FILE}```\n", base="class ModelNew: pass\n") == FILE


def test_line_ends_of_other_systems_do_not_matter() -> None:
    reply = block("    width = 4\n", "    width = 8\n").replace("\n", "\r\n")
    assert "width = 8" in extract_candidate(reply, base=FILE.replace("\n", "\r\n"))


lines = st.lists(st.text("abc =", max_size=6), min_size=1, max_size=12)


@given(lines, st.data())
def test_any_run_of_lines_that_occurs_once_can_be_replaced(old: list[str], data: st.DataObject) -> None:
    source = "".join(f"{line}\n" for line in old)
    first = data.draw(st.integers(0, len(old) - 1))
    last = data.draw(st.integers(first, len(old) - 1))
    quoted = "".join(f"{line}\n" for line in old[first : last + 1])
    edits = find_edits(block(quoted, "new\n"))
    assert edits == (Edit(quoted, "new\n"),)
    if quoted.strip() and source.count(quoted) == 1:
        assert apply_edits(source, edits) == source.replace(quoted, "new\n")
    else:
        with pytest.raises(EditError):
            apply_edits(source, edits)


@given(st.text(max_size=300))
def test_any_text_is_edits_or_an_error(text: str) -> None:
    try:
        edits = find_edits(text)
    except EditError:
        return
    assert all(isinstance(edit, Edit) for edit in edits)


SLOW = re.compile(  # what the scanner does, as one expression; takes minutes on some texts
    r"^<{5,9} ?SEARCH[ \t]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} ?REPLACE[ \t]*$", re.MULTILINE | re.DOTALL
)
SLOW_OPENING = re.compile(r"^<{5,9} ?SEARCH[ \t]*$", re.MULTILINE)
MARKS = ["<<<<<<< SEARCH", "<<<<<SEARCH \t", "<<<< SEARCH", "<<<<<<<<<< SEARCH", "=======", "=====\t", "====", "=" * 10]
MARKS += [">>>>>>> REPLACE", ">>>>>REPLACE  ", ">>>>>>> REPLACE x", " =======", "x", "", "\r", "======= x"]


@given(st.lists(st.sampled_from(MARKS), max_size=14).map("\n".join), st.booleans())
def test_marks_mean_what_the_plain_expression_says(text: str, ends: bool) -> None:
    text += "\n" * ends
    expected = [Edit(match["old"], match["new"]) for match in SLOW.finditer(text)]
    if len(expected) == len(SLOW_OPENING.findall(text)):
        assert list(find_edits(text)) == expected
    else:
        with pytest.raises(EditError, match="not closed"):
            find_edits(text)


@pytest.mark.parametrize(
    "text",
    [
        "<<<<<<< SEARCH\n" * 100_000 + "=======\n" * 100_000 + "REPLACE",
        "<<<<<<< SEARCH\n" + "=======\n" * 250_000 + "REPLACE",
        "<<<<<<< SEARCH\n" + "=====" + " " * 2_000_000 + "x\nREPLACE",
        "<" * 2_000_000 + " SEARCH REPLACE",
        "\n" * 2_000_000 + "REPLACE",
        block("x\n", "y\n") * 50_000,
    ],
)
def test_hostile_marks_are_read_in_no_time(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(ReplyError):
        extract_candidate(text, base=FILE)
    assert time.monotonic() - started < 5
