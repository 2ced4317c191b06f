"""Differences of outputs in memory, as users of an emulator look at them."""

import torch

from evaluator.referee.correctness import difference


def test_runs_bytes_and_values_that_differ_are_listed() -> None:
    want = torch.arange(16, dtype=torch.float32)
    have = want.clone()
    have[3:6] = 0.0
    have[9] = 9.5
    assert difference.describe({"": have}, {"": want}).splitlines() == [
        "output: 4 of 16 elements differ much, in 2 runs",
        "  elements 3 to 5, bytes 0xc to 0x17",
        "  elements 9 to 9, bytes 0x24 to 0x27",
        "  element 3: 00 00 00 00 (0), the reference has 00 00 40 40 (3)",
        "  element 4: 00 00 00 00 (0), the reference has 00 00 80 40 (4)",
        "  element 5: 00 00 00 00 (0), the reference has 00 00 a0 40 (5)",
        "  element 9: 00 00 18 41 (9.5), the reference has 00 00 10 41 (9)",
    ]


def test_what_was_never_written_is_named() -> None:
    want = torch.ones(8, dtype=torch.int32)
    have = want.clone()
    have[6:] = -1
    assert "never written, it seems: 2 elements, the first is 6" in difference.describe({"[1]": have}, {"[1]": want})


def test_rounding_nan_in_both_and_other_shapes_are_no_difference() -> None:
    want = torch.tensor([1.0, float("nan"), float("inf")])
    assert difference.describe({"": want * (1 + 1e-6)}, {"": want}) == ""
    assert difference.describe({"": torch.ones(2)}, {"": want}) == ""
    assert difference.describe({}, {"": want}) == ""


def test_complex_booleans_and_empty_outputs_are_taken() -> None:
    want = torch.tensor([1 + 1j, 2.0])
    assert "1 of 2 elements" in difference.describe({"": want * torch.tensor([1.0, 2.0])}, {"": want})
    assert "1 of 2 elements" in difference.describe({"": torch.tensor([True, True])}, {"": torch.tensor([True, False])})
    assert difference.describe({"": torch.empty(0)}, {"": torch.empty(0)}) == ""
