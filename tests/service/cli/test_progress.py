"""What is shown of a job while it runs."""

import io

import pytest
from rich.console import Console

from agents.protocols import Event
from service.cli.progress import ACTIVITIES, ProgressState, _render
from service.mock_llm.script import CODER_REQUESTS, JUDGE_REQUESTS


def test_every_request_is_shown_in_words():
    assert set(ACTIVITIES) == {*CODER_REQUESTS, *JUDGE_REQUESTS}


@pytest.mark.parametrize(
    ("request_kind", "words"), [("improve", "the Coder improves"), ("tools", "the Coder works with tools")]
)
def test_a_round_that_begins_says_what_the_coder_does(request_kind, words):
    shown = ProgressState("title")
    assert shown.apply(Event("round_started", 1, {"request": request_kind})) == words
    assert shown.step == words


def test_the_judge_is_shown_only_where_it_is_asked():
    shown = ProgressState("title")
    shown.apply(Event("round_started", 1, {"request": "tools"}))
    shown.apply(Event("round_done", 1, {"verdict": "passed"}))
    assert "Judge" not in shown.step
    assert shown.apply(Event("llm_started", 1, {"purpose": "judge-improve"})) is None
    assert shown.step == "the Judge looks at it"
    shown.apply(Event("llm_started", 2, {"purpose": "improve"}))
    assert shown.step == "the Coder improves"


FAILED = Event(
    "llm_failed", 1, {"error": "ModelUnavailable", "message": "openai/x: no key is set.", "maybe_paid": False}
)


def test_the_failure_that_ends_a_job_is_left_to_its_end():
    shown = ProgressState("title")
    told = [
        shown.apply(event)
        for event in (
            Event("job_started", 0, {"rounds": 1}),
            Event("round_started", 1, {"request": "write"}),
            FAILED,
            Event("job_stopped", 1, {"reason": "model_unavailable", "detail": "openai/x: no key is set."}),
        )
    ]
    assert told == [None, "the Coder writes", None, None]
    text = io.StringIO()
    Console(file=text, width=80).print(_render(shown))
    assert "under way" not in text.getvalue()


def test_a_failure_after_which_the_job_goes_on_is_told_when_it_does():
    shown = ProgressState("title")
    assert shown.apply(FAILED) is None
    assert shown.apply(Event("llm_started", 1, {"purpose": "write"})) == "openai/x: no key is set."
    assert shown.apply(Event("llm_started", 1, {"purpose": "write"})) is None
    shown.apply(FAILED)
    assert shown.apply(Event("round_started", 2, {"request": "improve"})) == (
        "openai/x: no key is set.\nthe Coder improves"
    )
