"""What leaves the referee and what the host takes from it: finite numbers, printable text, no traceback."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.platforms import load_platform
from evaluator.referee.sanitize import fault, one_line, plain
from evaluator.referee_process import HarnessFailed, run_referee
from sandbox.base import Command, Completed, Limits, Promise

text = st.text(st.characters() | st.sampled_from(["\ud800", "\x1b", "\x00", "\u202e"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_anything_becomes_json_that_can_be_printed_stored_and_read_by_anyone(value: Any) -> None:
    made = plain(value)
    told = json.dumps(made, allow_nan=False, ensure_ascii=False)
    assert json.loads(told.encode("utf-8")) == made
    assert all(char.isprintable() for char in told)
    assert plain(made) == made


def test_lines_and_tabs_stay_and_escape_codes_go() -> None:
    assert plain("one\n\ttwo \x1b[31mred\x00") == "one\n\ttwo  [31mred "
    assert one_line("one\n\ttwo \x1b[31mred", 8) == "one two…"


def test_what_is_nested_without_end_is_no_result() -> None:
    value: Any = 1
    for _ in range(500):
        value = [value]
    with pytest.raises(ValueError, match="nested"):
        plain(value)


def test_a_fault_is_one_line_and_names_its_place() -> None:
    try:
        raise TypeError("two\nlines \x1b[31m")
    except TypeError as error:
        told = fault(error)
    assert told.startswith("TypeError at test_sanitize.py:")
    assert told.isprintable()


class Answering:
    """A sandbox in which a referee prints what a test wants it to."""

    def __init__(self, completed: Completed) -> None:
        self.name = "answering"
        self.promises: frozenset[Promise] = frozenset()
        self.completed = completed

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        for line in self.completed.stderr.splitlines(keepends=True):
            if on_stderr is not None:
                on_stderr(line)
        return self.completed

    def prepare(self, command: Command) -> None:
        raise NotImplementedError

    def describe(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        pass


def completed(stdout: bytes, stderr: bytes = b"", exit_code: int = 0) -> Completed:
    return Completed(
        exit_code=exit_code, stdout=stdout, stderr=stderr, wall_s=1.0, timed_out=False, out_of_memory=False,
        output_truncated=False, cancelled=False,
    )  # fmt: skip


def told(given: Completed, seen: list[str]) -> dict[str, Any]:
    return run_referee(
        "check", load_platform("cpu"), {}, device=0, sandbox=Answering(given), limits=Limits(), on_progress=seen.append
    )


def test_the_host_takes_no_nan_and_no_escape_codes_from_a_referee() -> None:
    answer = b'{"speedup": NaN, "limit": 1e999, "name": "\\u001b[31m \\ud800", "flops": 1' + b"0" * 400 + b"}"
    seen: list[str] = []
    result = told(completed(answer, b"progress: \x1b[2Jnow\n"), seen)
    assert result == {"speedup": None, "limit": None, "name": " [31m  ", "flops": None}
    assert seen == ["[2Jnow"]


@pytest.mark.parametrize("answer", [b"[]", b"", b"{", b'{"a":' * 200 + b"1" + b"}" * 200, b"9" * 5000])
def test_what_is_no_result_is_none(answer: bytes) -> None:
    with pytest.raises(HarnessFailed):
        told(completed(answer), [])


def test_a_referee_that_fails_says_why_in_one_printable_line() -> None:
    with pytest.raises(HarnessFailed) as caught:
        told(completed(b"", b"progress: x\nthe referee failed: TypeError \x1b[31m\n", 1), [])
    assert caught.value.message.endswith("status 1 and no result: the referee failed: TypeError [31m")
