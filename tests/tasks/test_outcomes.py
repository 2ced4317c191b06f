"""The words for what becomes of a candidate."""

import hashlib

import pytest

from tasks.outcomes import (
    CODE_TEXTS,
    CYCLES,
    INSTRUCTIONS,
    TAGS,
    UNRANKED,
    VERDICT_TEXTS,
    WALL,
    Verdict,
    candidate_hash,
    clock_of,
    explain,
    is_ranked,
)


@pytest.mark.parametrize("source", ["", "class ModelNew: ...\n", "# größer: 倍 🚀\r\n", "nul \0"])
def test_a_candidates_hash_is_that_of_its_source_in_utf_8(source: str) -> None:
    assert candidate_hash(source) == hashlib.sha256(source.encode()).hexdigest()


def test_text_that_utf_8_cannot_encode_has_a_hash_of_its_own() -> None:
    texts = ["x = '\ud800'", "x = '\udfff'", "x = '\ufffd'", "x = '?'"]
    assert len({candidate_hash(text) for text in texts}) == len(texts)


def test_every_verdict_and_code_has_words_for_people() -> None:
    assert set(Verdict) <= set(VERDICT_TEXTS)
    assert set(CODE_TEXTS) <= set(Verdict)
    for verdict in Verdict:
        for code in (None, *CODE_TEXTS.get(verdict, {})):
            assert explain(verdict, code).startswith(VERDICT_TEXTS[verdict])
            assert explain(verdict, code).endswith(".")


@pytest.mark.parametrize(
    ("verdict", "code", "text"),
    [
        ("wrong_output", "shape", f"{VERDICT_TEXTS[Verdict.WRONG_OUTPUT]} An output has another shape."),
        ("wrong_output", "of another version", VERDICT_TEXTS[Verdict.WRONG_OUTPUT]),
        ("no_candidate", None, VERDICT_TEXTS["no_candidate"]),
        ("of another version", "shape", ""),
    ],
)
def test_what_another_version_said_is_left_unexplained(verdict: str, code: str | None, text: str) -> None:
    assert explain(verdict, code) == text


def test_one_tag_without_rank_is_enough() -> None:
    assert is_ranked(()) and is_ranked(("custom_kernel", "tie", "of another version"))
    assert not any(is_ranked(("custom_kernel", tag)) for tag in UNRANKED)
    assert {name for name, tag in TAGS.items() if not tag.ranked} == UNRANKED


def test_figures_of_a_counted_evaluation_are_cycles_wherever_they_are_shown() -> None:
    assert (clock_of(["custom_kernel"]), clock_of(["custom_kernel", "cycles"])) == (WALL, CYCLES)
    assert clock_of(["instructions", "trial"]) == INSTRUCTIONS
    assert INSTRUCTIONS.beside("2.31") == "2.31, counted: instructions"
    assert INSTRUCTIONS.latency(0.125749) == "125,749 instructions"
    assert CYCLES.name in TAGS and INSTRUCTIONS.name in TAGS
    assert CYCLES.name in TAGS and WALL.name not in TAGS
    assert (CYCLES.latency(0.0074), CYCLES.amount(0.0074), CYCLES.beside("2.31")) == (
        "7,400 cycles", 7400.0, "2.31, timed: cycles",
    )  # fmt: skip
    assert (WALL.latency(0.0074), WALL.latency(1234.5, digits=0), WALL.beside("2.31")) == (
        "0.0074 ms", "1234 ms", "2.31",
    )  # fmt: skip
