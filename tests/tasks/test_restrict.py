"""A task that is asked for on finite inputs is a task of its own, under a name of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.build import task_from_source
from tasks.declarations import declarations_of
from tasks.load import find_task
from tasks.restrict import restrict, restricted_ref, split_ref
from tasks.suites import load_suite
from tasks.task import Task, TaskError

OP = """
import torch
{declared}

def op(x, n):
    return torch.relu(x) * n

def get_inputs():
    return [torch.randn(8, 8), 3]
"""


def made(declared: str = "", suite: str = "local") -> Task:
    return task_from_source(
        OP.format(declared=declared), name="relu", suite=suite, category="activation", dtype="float32"
    )


def test_an_op_of_the_users_own_gets_another_name_and_a_task_of_a_suite_another_suite() -> None:
    assert restrict(made(), "finite").id == "local/relu.finite"
    assert restrict(made(suite="starter"), "finite").id == "starter.finite/relu"


@pytest.mark.parametrize("task", load_suite("starter").tasks, ids=lambda task: task.name)
def test_every_built_in_task_can_be_asked_for_on_finite_inputs(task: Task) -> None:
    found = restrict(task, "finite")
    domain = declarations_of(found.source).domain
    assert domain and not {"any", "bounded"} & set(domain)
    assert (found.category, found.dtype) == (task.category, task.dtype)
    assert (found.source_hash == task.source_hash) == (found.id == task.id)
    assert restrict(found, "finite") == found
    if found.id != task.id:
        assert find_task(found.id) == found


def test_without_a_domain_it_stays_what_it_is() -> None:
    assert restrict(made(), None) == made()
    assert restricted_ref("starter/relu", None) == "starter/relu"


@pytest.mark.parametrize("declared", ['DOMAIN = "positive"', 'DOMAIN = ("unit", "fixed")', 'DOMAIN = "finite"'])
def test_a_task_that_declares_finite_inputs_stays_what_it_is(declared: str) -> None:
    assert restrict(made(declared), "finite") == made(declared)


@pytest.mark.parametrize("declared", ['DOMAIN = "bounded"', 'DOMAIN = ("any", "bounded")', 'DOMAIN = "any"'])
def test_other_declarations_are_changed_in_the_file_alone(declared: str) -> None:
    with pytest.raises(TaskError, match=r"declares the DOMAIN .*give each input its domain there"):
        restrict(made(declared), "finite")


def test_an_unknown_domain_is_refused_by_name() -> None:
    with pytest.raises(TaskError, match="--domain nan: unknown; there is: finite"):
        restrict(made(), "nan")


def test_an_unknown_task_on_a_domain_is_refused_by_name() -> None:
    with pytest.raises(TaskError, match="starter/nothing: no such task or file"):
        find_task("starter.finite/nothing")


NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,12}", fullmatch=True)


@given(NAMES, NAMES)
def test_the_name_on_a_domain_tells_the_whole_task(suite: str, name: str) -> None:
    for ref in (f"{suite}/{name}", suite):
        assert split_ref(restricted_ref(ref, "finite")) == (ref, "finite")


@pytest.mark.parametrize(
    "ref", ["starter/gelu.finite", "starter.nan/gelu", ".finite/gelu", "finite/gelu", "finite", ""]
)
def test_other_names_name_no_domain(ref: str) -> None:
    assert split_ref(ref) == (ref, None)
