"""The referee imports nothing of ours; its verdicts, codes and tags are those of tasks/outcomes.py all the same."""

import ast
from collections.abc import Iterator
from pathlib import Path

from evaluator.platforms import PLATFORM_NAMES, load_platform
from evaluator.referee.correctness import neighbours
from evaluator.referee.correctness.findings import SKIPPED
from evaluator.referee.isolation import exhaustion
from evaluator.referee.protocol.gpu_checks import SANITIZERS
from evaluator.referee.timing import sequential
from tasks.outcomes import (
    CANCELLED,
    CODE_TEXTS,
    GUARDED,
    SKIPPED_NOTE,
    TAGS,
    Decision,
    NeighbourResult,
    Respect,
    Verdict,
)

REFEREE = Path(__file__).parents[3] / "evaluator" / "referee"
CODE_AT = {"Finding": 2, "Wrong": 0}
"""Which argument of these calls is a code."""


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(REFEREE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield f"{path.relative_to(REFEREE).as_posix()}:{getattr(node, 'lineno', 0)}", node


def calls(*names: str) -> Iterator[tuple[str, str, ast.Call]]:
    for where, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
            if name in names:
                yield where, name, node


def argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    given = {found.arg: found.value for found in call.keywords}
    return call.args[position] if position < len(call.args) else given.get(keyword)


def texts(node: ast.AST | None) -> set[str]:
    """The strings that an expression may stand for, as far as they are written in it."""
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_a_check_that_was_left_out_says_so_in_the_same_words() -> None:
    assert SKIPPED == SKIPPED_NOTE


def test_a_trial_decides_in_the_same_words() -> None:
    assert set(sequential.Decision) == set(Decision)


def test_inputs_beside_the_tasks_own_have_the_same_results_and_respects() -> None:
    results = (neighbours.RIGHT, neighbours.WRONG, neighbours.FAILS, neighbours.UNTRIED, neighbours.SKIPPED)
    assert results == tuple(NeighbourResult)
    assert tuple(Respect) == neighbours.RESPECTS
    checks = [{"respect": neighbours.SHAPE, "result": result} for result in results]
    assert {check["result"] for check in checks if neighbours.Neighbours([], {}, [check]).guards} == GUARDED


def test_every_verdict_is_written_out_and_known() -> None:
    found = [(where, texts(argument(call, 0, "verdict"))) for where, _, call in calls("Finding")]
    assert found
    assert [where for where, verdicts in found if not verdicts or not verdicts <= set(Verdict)] == []


def test_every_code_is_one_of_its_verdicts() -> None:
    offenders = []
    for where, name, call in calls("Finding", "Wrong"):
        [verdict] = texts(argument(call, 0, "verdict")) if name == "Finding" else {Verdict.WRONG_OUTPUT}
        codes = texts(argument(call, CODE_AT[name], "code"))
        offenders += [f"{where}: {verdict} ({code})" for code in codes - set(CODE_TEXTS.get(verdict, {}))]
    assert offenders == []


def test_every_way_in_which_a_runner_fails_is_a_code_where_it_is_the_referees_own() -> None:
    kinds = [texts(argument(call, 0, "kind")) for _, _, call in calls("RunnerFailed")]
    assert set().union(*kinds) <= set(CODE_TEXTS[Verdict.SANDBOX_ERROR])


def test_every_problem_of_the_task_check_has_a_code_of_an_invalid_task() -> None:
    found = set().union(*(texts(argument(call, 0, "code")) for _, _, call in calls("_problem")))
    assert found
    assert found | {"failed"} <= set(CODE_TEXTS[Verdict.TASK_INVALID])


def test_every_tag_is_known() -> None:
    found = set().union(*(texts(call.args[0]) for _, _, call in calls("self.tags.append")))
    found |= {load_platform(name).timed for name in PLATFORM_NAMES} - {"wall", "nothing"}
    assert found | {"compiled", "executed", *SANITIZERS.values()} == set(TAGS)


def test_nothing_is_explained_that_the_referee_does_not_say() -> None:
    said = {node.value for _, node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    known = {*Verdict, *TAGS, *(code for codes in CODE_TEXTS.values() for code in codes)}
    assert known - said == {CANCELLED}


def test_codes_that_are_not_written_where_they_are_given_are_these() -> None:
    found = set()
    for where, name, call in calls("Finding", "Wrong"):
        code = argument(call, CODE_AT[name], "code")
        if code is not None and not isinstance(code, ast.Constant):
            found.add((where.split(":")[0], ast.unparse(code)))
    assert found == {
        ("correctness/accuracy.py", "code"),  # device, layout, dtype or shape
        ("correctness/check.py", "wrong.code"),
        ("timing/spot_checks.py", "wrong.code"),
        ("pool/runner_pool.py", "code"),  # what a candidate hoards
        ("errors.py", "code"),  # timed_out or out_of_memory, of the reference
        ("errors.py", "failure.kind"),
        ("platforms/screened/screening.py", "_code_in(text)"),  # divergence or deadlock
        ("platforms/screened/source_kernel.py", "code"),  # one of a candidate's, of a source kernel
        ("platforms/screened/screening.py", "found"),  # race or out_of_bounds
    }
    assert {*exhaustion._BOUNDS, "memory"} == set(CODE_TEXTS[Verdict.OUT_OF_MEMORY])
