"""What is shown of a job while it runs."""

import pytest

from agents.protocols import Event
from service.cli.progress import ACTIVITIES, ProgressState
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
