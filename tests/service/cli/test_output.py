"""Tables as terminals of any width show them."""

import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.output import print_table

COLUMNS = ("job", "task", "what the model was told")
ROW = (7, "kernelbench-level1/36_RMSNorm_", "fuse the two passes over the rows and keep the sums in registers")


def table(capsys: pytest.CaptureFixture[str], *rows: tuple[object, ...]) -> list[str]:
    print_table(COLUMNS, rows, right=("job",))
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_is_as_wide_as_columns_says_when_piped_and_breaks_no_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = table(capsys, ROW)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert all(word in words for value in ROW for word in str(value).split())


def test_a_table_whose_words_have_no_room_side_by_side_has_a_line_for_each_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    lines = table(capsys, ROW, (8, "a/b", None))
    assert lines[0] == f"{'job':<25}7"
    assert lines[1].split() == ["task", ROW[1]]
    assert lines[lines.index("") + 1 :] == [f"{'job':<25}8", f"{'task':<25}a/b", f"{COLUMNS[2]:<25}-"]


def test_where_whole_words_have_no_room_they_are_broken_at_their_joints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "45")
    lines = table(capsys, ROW, (8, "a/b", None))
    assert max(map(len, lines)) <= 45
    first = next(number for number, line in enumerate(lines) if line.split()[:1] == ["7"])
    assert [line.split()[:2] for line in lines[first : first + 2]] == [
        ["7", "kernelbench-level1/"],
        ["36_RMSNorm_", "passes"],
    ]


def test_without_columns_what_is_piped_has_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert any(ROW[1] in line and str(ROW[2]) in line for line in table(capsys, ROW))


@given(
    st.lists(st.tuples(*[st.text(st.characters(codec="ascii", categories=["L", "Nd", "Zs"]), max_size=60)] * 3),
             min_size=1, max_size=4),
    st.integers(20, 200),
)  # fmt: skip
def test_no_word_is_ever_broken(rows: list[tuple[str, ...]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            print_table(COLUMNS, rows)
    words = re.findall(r"\S+", out.getvalue())  # those of letters and digits have no joints
    assert all(words.count(word) for row in rows for cell in row for word in cell.split())
