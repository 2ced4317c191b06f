"""What is shown of a job while it runs."""

import pytest

from agents.protocols import Event
from service.cli.progress import DOING, Shown
from service.mock_llm.script import CODER_REQUESTS, JUDGE_REQUESTS


def test_every_request_is_shown_in_words():
    assert set(DOING) == {*CODER_REQUESTS, *JUDGE_REQUESTS}


@pytest.mark.parametrize(
    ("request_kind", "words"), [("improve", "the Coder improves"), ("tools", "the Coder works with tools")]
)
def test_a_round_that_begins_says_what_the_coder_does(request_kind, words):
    shown = Shown("title")
    assert shown.take(Event("round_started", 1, {"request": request_kind})) == words
    assert shown.step == words


def test_the_judge_is_shown_only_where_it_is_asked():
    shown = Shown("title")
    shown.take(Event("round_started", 1, {"request": "tools"}))
    shown.take(Event("round_done", 1, {"verdict": "passed"}))
    assert "Judge" not in shown.step
    assert shown.take(Event("llm_started", 1, {"purpose": "judge-improve"})) is None
    assert shown.step == "the Judge looks at it"
    shown.take(Event("llm_started", 2, {"purpose": "improve"}))
    assert shown.step == "the Coder improves"
