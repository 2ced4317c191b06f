"""What an evaluation is predicted to need, and what becomes of a task that does not fit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.errors import Finding
from evaluator.referee.pool.memory_need import BASE_BYTES, Need
from evaluator.referee.pool.runner_pool import RunnerPool

MB, GB = 1 << 20, 1 << 30
SIZES = st.integers(0, 1 << 40)
NEEDS = st.builds(Need, SIZES, SIZES, SIZES, SIZES, st.integers(0, 3), st.booleans())


@given(NEEDS, st.integers(1 << 30, 1 << 44))
def test_what_has_room_for_more_copies_has_room_for_few(need: Need, memory_bytes: int) -> None:
    assert need.fits(memory_bytes) or not need.is_generous(memory_bytes)
    assert need.fits(max(memory_bytes, need.nbytes))
    assert need.fits(2 * memory_bytes) or not need.fits(memory_bytes), "more memory never makes a task too large"


@given(NEEDS, NEEDS)
def test_more_of_anything_never_needs_less(one: Need, other: Need) -> None:
    both = Need(
        one.input_bytes + other.input_bytes,
        one.output_bytes + other.output_bytes,
        one.state_bytes + other.state_bytes,
        one.temporary_bytes + other.temporary_bytes,
        one.extra_baselines + other.extra_baselines,
        one.champion or other.champion,
    )
    assert both.nbytes >= max(one.nbytes, other.nbytes) >= BASE_BYTES


@given(SIZES, SIZES)
def test_a_proof_takes_at_most_6_times_inputs_and_outputs(input_bytes: int, output_bytes: int) -> None:
    touched = input_bytes + output_bytes
    assert Need(input_bytes, output_bytes).nbytes <= BASE_BYTES + 6 * touched
    with_champion = Need(input_bytes, output_bytes, champion=True)
    assert with_champion.nbytes <= BASE_BYTES + 6 * touched + output_bytes, "another runner's outputs in a trial"


@pytest.mark.parametrize("memory_mb", [1024, 2048, 8192])
def test_a_small_task_fits_in_the_least_sandbox(memory_mb: int) -> None:
    assert Need(4 * MB, 4 * MB, MB).fits(memory_mb * MB)
    assert Need(4 * MB, 4 * MB, MB).is_generous(memory_mb * MB)


def test_a_task_that_does_not_fit_is_told_what_it_needs_and_what_to_do() -> None:
    class Pool:
        need = Need(2 * GB, 256 * MB, 0, 0)
        memory_bytes = 8 * GB

    pool: Any = Pool()
    with pytest.raises(Finding) as refused:
        RunnerPool._refuse_if_too_large(pool)
    assert (refused.value.verdict, refused.value.code) == ("task_invalid", "out_of_memory")
    assert refused.value.message == (
        "the task needs about 14.4 GiB of memory (inputs 2,048 MiB, outputs 256 MiB), the sandbox has 8.0 GiB: give it "
        "smaller shapes or the sandbox more memory (KERNELWRIGHT_MEMORY_MB=14800)"
    )
    pool.memory_bytes = 14_800 * MB
    RunnerPool._refuse_if_too_large(pool)
