"""What a task declares about how it is judged, read by `ast` alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.protocol import input_families, traits
from tasks import declarations
from tasks.declarations import declarations_of
from tasks.load import task_from_source
from tasks.task import TaskError

OP = (
    "import torch\n\n{}\n\ndef op(x, y):\n    return x + y\n\n"
    "def get_inputs():\n    return [torch.rand(4), torch.rand(4)]\n"
)


def test_nothing_declared_is_the_usual_case() -> None:
    found = declarations_of(task_from_source(OP.format(""), name="op").source)
    assert (found.tolerance, found.domain, found.shape_groups) == ({}, (), False)


@pytest.mark.parametrize(
    ("line", "tolerance"),
    [
        ('TOLERANCE = {"float32": 1e-4}', {"float32": 1e-4}),
        ('TOLERANCE: dict = {"bfloat16": 0.05, "int8": 0.001}', {"bfloat16": 0.05, "int8": 0.001}),
        ("TOLERANCE = 0.01", dict.fromkeys(declarations.FLOATS, 0.01)),
    ],
)
def test_a_tolerance_is_a_number_or_one_for_each_dtype(line: str, tolerance: dict[str, float]) -> None:
    assert declarations_of(task_from_source(OP.format(line), name="op").source).tolerance == tolerance


@pytest.mark.parametrize(
    ("line", "domain"),
    [('DOMAIN = "positive"', ("positive",)), ('DOMAIN = ("any", "unit")', ("any", "unit"))],
)
def test_a_domain_is_of_all_inputs_or_of_each(line: str, domain: tuple[str, ...]) -> None:
    assert declarations_of(task_from_source(OP.format(line), name="op").source).domain == domain


def test_shape_groups_are_noticed() -> None:
    source = OP.format("def get_input_groups():\n    return [get_inputs()]")
    assert declarations_of(task_from_source(source, name="op").source).shape_groups


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("TOLERANCE = 0.5", "TOLERANCE is 0.5; give a number between 0 and 0.1"),
        ("TOLERANCE = 0", "TOLERANCE is 0;"),
        ("TOLERANCE = True", "TOLERANCE is True;"),
        ("TOLERANCE = float('nan')", "TOLERANCE is not a literal value"),
        ('TOLERANCE = {"float8": 0.01}', "TOLERANCE names the dtype 'float8'; use one of: float64"),
        ('TOLERANCE = {"float32": "tight"}', "TOLERANCE is tight;"),
        ("TOLERANCE = 1e-3\nTOLERANCE = 1e-4", "gives its TOLERANCE twice"),
        ('DOMAIN = "prime"', "DOMAIN is 'prime'; give one of any, finite"),
        ('DOMAIN = ["any"]', "DOMAIN names 1 of 2 inputs"),
        ("DOMAIN = []", "DOMAIN names 0 of 2 inputs"),
        ("DOMAIN = [[]]", "DOMAIN is '[]'"),
        ("DOMAIN = get_inputs()", "DOMAIN is not a literal value"),
    ],
)
def test_what_the_referee_cannot_keep_to_is_an_invalid_op(line: str, complaint: str) -> None:
    with pytest.raises(TaskError) as error:
        task_from_source(OP.format(line), name="op")
    assert complaint in str(error.value)
    assert str(error.value).startswith("<op>:3: ") or "twice" in complaint
    assert "\n" not in str(error.value)


@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5))
def test_any_literal_is_accepted_or_refused_in_one_line(value: object) -> None:
    for name in ("TOLERANCE", "DOMAIN"):
        try:
            found = declarations_of(f"{name} = {value!r}")
        except TaskError as error:
            assert "\n" not in str(error)
        else:
            assert all(0 < number < declarations.MAX_TOLERANCE for number in found.tolerance.values())
            assert set(found.domain) <= set(declarations.DOMAINS)


def test_tasks_and_referee_mean_the_same() -> None:
    """Two packages that do not import each other."""
    assert set(declarations.DOMAINS) == set(input_families.DOMAINS)
    assert set(declarations.FLOATS) == set(traits.EPSILON)
