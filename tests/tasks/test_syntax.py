"""Sources as syntax trees: from many threads at once, without a word about their literals."""

import ast
import gc
import sys
import threading
import warnings
from pathlib import Path

import pytest

from tasks import syntax

SOURCE = Path(syntax.__file__).read_text() * 30


def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    failed: list[BaseException] = []

    def parse_often() -> None:
        for _ in range(20):
            try:
                syntax.parse(SOURCE)
            except BaseException as error:
                failed.append(error)

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)  # what is collected runs finalizers, between which threads change
    try:
        threads = [threading.Thread(target=parse_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
    assert failed == []


def test_a_library_that_parses_meanwhile_is_outwaited(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 3

    def parse(source: str) -> ast.Module:
        if failures:
            raise failures.pop()
        return real(source)

    monkeypatch.setattr(ast, "parse", parse)
    assert isinstance(syntax.parse("x = 1"), ast.Module)
    assert failures == []


def test_an_invalid_escape_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        syntax.parse(r"x = '\d'")


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        syntax.parse("x = = 1")


def test_one_expression_is_read_and_nothing_else() -> None:
    assert ast.unparse(syntax.expression("a * (b + 1)")) == "a * (b + 1)"
    for text in ("a = 1", "a; b", ""):
        with pytest.raises(SyntaxError):
            syntax.expression(text)
