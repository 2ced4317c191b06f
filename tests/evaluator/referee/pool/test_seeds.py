"""Seeds: one secret, no way from one seed to another."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee.pool.seeds import Seeds


@given(st.binary(min_size=16, max_size=16))
def test_seeds_repeat_with_the_secret_and_fit_into_torchs_generator(secret: bytes) -> None:
    first, second = Seeds(secret), Seeds(secret)
    drawn = [first.next() for _ in range(5)]
    assert drawn == [second.next() for _ in range(5)]
    assert len({seed for pair in drawn for seed in pair}) == 10
    assert all(0 <= seed < 2**62 for pair in drawn for seed in pair)


def test_secrets_differ_and_no_seed_is_an_affine_step_from_the_last() -> None:
    assert Seeds().named("model") != Seeds().named("model")
    drawn = [Seeds(bytes(16)).named(f"inputs {count}") for count in range(6)]
    steps = [(after - before) % 2**62 for before, after in pairwise(drawn)]
    assert len(set(steps)) == len(steps)
