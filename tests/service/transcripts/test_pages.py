"""A transcript in pages: what is new in each prompt, bounded, without secrets, and through JSON and back."""

import contextlib
import gc
import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.llm.error_mapping import REDACTED
from agents.prompting.sections import render
from agents.protocols import Event
from db.errors import NotInStore
from service.database import open_store
from service.settings import load_settings
from service.transcripts import pages
from service.transcripts.calls import LinkedCall, calls_in, read_transcript
from service.transcripts.pages import transcript_page, with_calls
from service.transcripts.parts import CallParts, in_parts, whole_parts
from service.transcripts.redaction import known_secrets, without_secrets
from service.transcripts.render import entry_json, entry_of_json, transcript
from service.views import transcript as views
from service.views.transcript import (
    CALLS_A_PAGE,
    CallView,
    EventLine,
    call_that_wrote,
    transcript_view,
    whole_call_view,
)
from tasks.outcomes import candidate_hash
from tests.support import seeded_store

SECRET = "sk-proj-1234567890abcdef"
OWN = "correct-horse-battery-staple"


@pytest.fixture
def made(tmp_path):
    store = open_store(load_settings(data_dir=tmp_path))
    yield seeded_store.Seeded(store)
    store.close()


def call(record, number, reply="Here.", role="coder", purpose="improve", **more):
    data = {
        "key": f"{number}/{role}", "attempt": 1, "model": "openai/m", "role": role, "purpose": purpose,
        "prompt_tokens": 100, "completion_tokens": 10, "cost_usd": 0.25, "latency_s": 2.0, "attempts": 1,
        "truncated": False, "reply": reply, "reasoning": "", "reasoning_tokens": None, "tool_calls": [],
        "messages": [{"role": "system", "content": "You write kernels."},
                     {"role": "user", "content": render({"device": "a CPU\nof 2 cores", "advice": f"try {number}"})}],
    }  # fmt: skip
    record(Event("llm_call", number, data | more))


def long_job(made, calls):
    """A job of so many calls, each with its round."""
    job = made.start("long")
    record = made.journal(job)
    for number in range(1, calls + 1):
        record(Event("round_started", number, {"request": "improve", "parent": None}))
        call(record, number)
    record(Event("llm_failed", calls, {"role": "coder", "message": "openai/m: the provider failed."}))
    return job


def read(made, job, **more):
    return transcript_page(made.store, job, **({"after": 0, "limit": 20, "messages": False, "secrets": ()} | more))


def numbers(entries):
    return [entry.call.number for entry in entries if isinstance(entry, CallParts)]


# Pages


def test_pages_hold_every_entry_once_and_in_order(made):
    job = long_job(made, 7)
    whole = [entry_json(entry) for entry in in_parts(read_transcript(made.store, job))]
    seen, cursor = [], 0
    while cursor is not None:
        page = read(made, job, after=cursor, limit=3, messages=True)
        assert len(numbers(page.entries)) <= 3
        seen += [entry_json(entry) for entry in page.entries]
        cursor = page.next_cursor
    assert seen == whole


def test_what_is_new_in_a_prompt_is_new_against_calls_of_earlier_pages(made):
    job = long_job(made, 3)
    (first,) = [entry for entry in read(made, job, limit=1).entries if isinstance(entry, CallParts)]
    (last,) = [entry for entry in read(made, job, after=2).entries if isinstance(entry, CallParts)]
    assert [(part.label, part.lasting) for part in first.prompt] == [
        ("system", True),
        ("device", True),
        ("advice", False),
    ]
    assert [(part.label, part.detail) for part in last.prompt] == [
        ("as before", "system"),
        ("as before", "device"),
        ("advice", "try 3"),
    ]
    assert first.call.messages == ()
    assert len(read(made, job, limit=1, messages=True).entries[-1].call.messages) == 2


def test_a_page_with_very_long_calls_ends_early(made, monkeypatch):
    job = long_job(made, 5)
    monkeypatch.setattr(pages, "MAX_PAGE_CHARS", 40)
    page = read(made, job)
    assert numbers(page.entries) == [1] and page.next_cursor == 1
    assert numbers(read(made, job, after=4).entries) == [5]


def test_a_job_without_calls_has_its_events_on_one_page(made):
    job = made.start("none")
    page = read(made, job)
    assert ([entry.kind for entry in page.entries], page.next_cursor) == (["job_started"], None)
    with pytest.raises(NotInStore):
        read(made, 99)


@given(st.lists(st.sampled_from(["call", "event"]), max_size=30))
def test_an_event_belongs_to_the_call_that_follows_it(kinds):
    number, entries = 0, []
    for kind in kinds:
        number += kind == "call"
        made = LinkedCall(number, 1, "coder", "write", "m", (), "", 1, 1, None, 0.0)
        entries.append(CallParts(made, (), ()) if kind == "call" else number)
    placed = with_calls(entries)
    assert [entry for entry, _ in placed] == entries
    for entry, place in placed:
        wanted = entry.call.number if isinstance(entry, CallParts) else max(min(entry + 1, number), 1)
        assert place == wanted


# JSON


def test_entries_come_back_from_their_json(made):
    job = made.start("one")
    made.round(job, 1, seeded_store.evaluation("passed", speedup=1.5), best=True, text=seeded_store.HOSTILE)
    call(made.journal(job), 2, tool_calls=[{"id": "1", "type": "function", "function": {"name": "a", "arguments": ""}}])
    entries = read_transcript(made.store, job)
    sent = json.loads(json.dumps([entry_json(entry) for entry in in_parts(entries)], default=str))
    back = [entry_of_json(each) for each in sent]
    assert calls_in(back) == calls_in(entries)
    assert list(transcript(back)) == list(transcript(entries))


# Secrets


def test_secrets_are_removed_from_every_text(made, tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(f"{OWN}\n")
    settings = load_settings(api_key_file=key_file)
    said = f"my keys are {SECRET} and {OWN}"
    job = made.start("told")
    record = made.journal(job)
    tool_calls = [{"id": "1", "type": "function", "function": {"name": "evaluate", "arguments": said}}]
    messages = [{"role": "user", "content": said}, {"role": "tool", "content": said, "tool_call_id": "1"}]
    call(record, 1, said, reasoning=said, tool_calls=tool_calls, messages=messages)
    record(Event("reply_rejected", 1, {"role": "coder", "reason": said}))
    record(Event("llm_failed", 1, {"role": "coder", "message": said}))
    secrets = known_secrets(settings)
    assert OWN in secrets
    shown = [
        transcript_view(made.store, job, page=1, secrets=secrets),
        whole_call_view(made.store, job, 1, page=1, secrets=secrets),
        read(made, job, messages=True, secrets=secrets),
        without_secrets(read_transcript(made.store, job), secrets),
    ]
    for each in map(repr, shown):
        assert SECRET not in each and OWN not in each
        assert REDACTED in each


def test_a_key_that_cannot_be_read_hides_nothing_else(tmp_path):
    settings = load_settings(api_key_file=tmp_path / "none", token="kw_very-secret-token")
    assert "kw_very-secret-token" in known_secrets(settings)


# The view


def test_a_page_shows_a_bounded_number_of_calls_and_all_are_listed(made):
    job = long_job(made, CALLS_A_PAGE + 1)
    first, last, beyond = (transcript_view(made.store, job, page=page, secrets=()) for page in (1, 2, 99))
    assert sum(isinstance(item, CallView) for item in first.items) == CALLS_A_PAGE
    assert last == beyond
    assert [line.page for line in first.contents] == [1] * CALLS_A_PAGE + [2]
    assert (first.cost_usd, first.waited_s, first.failed) == (0.25 * 21, 2.0 * 21, 1)
    assert all(line.call.messages == () and line.call.reply == "" for line in first.contents)
    assert [item.failed for item in last.items if isinstance(item, EventLine)][-1] is True


def test_a_long_part_is_cut_on_the_page_and_whole_on_its_own(made, monkeypatch):
    monkeypatch.setattr(views, "WHOLE_PAGE_CHARS", 5_000)
    job = made.start("long")
    reply = "x" * 12_345
    call(made.journal(job), 1, reply, messages=[{"role": "user", "content": "y" * 4_000}])
    view = transcript_view(made.store, job, page=1, secrets=())
    (shown,) = [item for item in view.items if isinstance(item, CallView)]
    assert (len(shown.said[0].text), shown.said[0].left_out) == (8_000, 4_345)
    sheets = [whole_call_view(made.store, job, 1, page=page, secrets=()) for page in range(1, 5)]
    assert {sheet.pages for sheet in sheets} == {4}
    assert all(sum(len(part.text) for part in sheet.parts) <= 5_000 for sheet in sheets)
    assert "".join(part.text for sheet in sheets for part in sheet.parts) == "y" * 4_000 + reply
    assert "characters 5,001 to 10,000 of 12,345" in sheets[2].parts[0].part.detail


def tool_call(name, arguments):
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_a_reply_of_very_many_parts_is_shown_in_bounded_pages(made):
    job = made.start("many parts")
    call(made.journal(job), 1, tool_calls=[tool_call(f"t{number}", {"a": "1\n"}) for number in range(2_000)])
    (shown,) = [
        item for item in transcript_view(made.store, job, page=1, secrets=()).items if isinstance(item, CallView)
    ]
    assert (len(shown.said), shown.said_left_out, shown.prompt_left_out) == (100, 3_901, 0)
    first = whole_call_view(made.store, job, 1, page=1, secrets=())
    sheets = [whole_call_view(made.store, job, 1, page=page, secrets=()).parts for page in range(1, first.pages + 1)]
    assert max(map(len, sheets)) == views.WHOLE_PAGE_PARTS
    parts = [part for sheet in sheets for part in sheet]
    assert len(parts) == 2 + 1 + 4_000
    assert [part.place for part in parts] == list(range(1, 4_004))


def test_of_very_many_files_in_a_tool_call_the_first_stand_apart(made):
    job = made.start("many files")
    files = {"l" * 100: "\n"} | {f"k{number}": f"{number}\n" for number in range(50_000)}
    call(made.journal(job), 1, tool_calls=[tool_call("write", files)])
    began = time.perf_counter()
    whole_call_view(made.store, job, 1, page=1, secrets=())
    transcript_view(made.store, job, page=1, secrets=())
    assert time.perf_counter() - began < 8  # half a second where nothing else runs
    others, *apart = whole_parts(calls_in(read_transcript(made.store, job))[0])[3:]
    assert [(part.label, part.text) for part in apart] == [(f"k{number}", f"{number}\n") for number in range(7)]
    assert json.loads(others.text) == {
        key: text for key, text in files.items() if key not in {f"k{n}" for n in range(7)}
    }


def test_a_long_name_counts_as_text_of_its_page(made, monkeypatch):
    job = made.start("long names")
    for number in (1, 2):
        call(made.journal(job), number, tool_calls=[tool_call("n" * 1_000, {})])
    monkeypatch.setattr(pages, "MAX_PAGE_CHARS", 1_000)
    assert numbers(read(made, job).entries) == [1]


def test_parts_that_all_prompts_have_are_folded(made):
    job = long_job(made, 1)
    (shown,) = [
        item for item in transcript_view(made.store, job, page=1, secrets=()).items if isinstance(item, CallView)
    ]
    assert [(each.part.label, each.open) for each in shown.prompt if each.text is not None] == [
        ("system", False),
        ("device", False),
    ]
    assert shown.said[-1].open


def test_a_candidate_leads_to_the_call_that_it_is_from(made):
    job = made.start("one")
    made.round(job, 1, seeded_store.evaluation("passed", speedup=1.5), best=True)
    digest = made.candidates[job][1]
    assert call_that_wrote(made.store, job, digest) == 1
    assert call_that_wrote(made.store, job, candidate_hash("another")) is None


@contextlib.contextmanager
def at_most_mb(most):
    """Python holds no more at once within."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most * 2**20
    finally:
        tracemalloc.stop()


def test_only_the_texts_that_are_shown_are_read(made):
    job = made.start("long")
    record, said = made.journal(job), []
    for number in range(1, 42):  # a conversation: each prompt holds all before it
        said.append({"role": "tool", "content": f"{number}" + "x" * 60_000})
        call(record, number, messages=list(said))
    with at_most_mb(2):
        assert call_that_wrote(made.store, job, candidate_hash("none")) is None
    with at_most_mb(12):
        assert whole_call_view(made.store, job, 9, page=3, secrets=()).parts[2].text == said[8]["content"]
        assert len(calls_in([entry.call for entry in read(made, job, after=8, limit=1).entries])) == 1
    with at_most_mb(20):
        last = transcript_view(made.store, job, page=3, secrets=())
    (shown,) = [item for item in last.items if isinstance(item, CallView)]
    assert [(part.part.label, part.part.detail, part.chars) for part in shown.prompt] == [
        ("as before", "its first 40 messages", 0), ("tool", "", 60_002)
    ]  # fmt: skip
    assert [line.call.number for line in last.contents] == [*range(1, 42)]


def test_what_is_new_is_new_against_the_last_call_of_each_role_however_long_ago(made):
    job = made.start("two roles")
    record = made.journal(job)
    call(record, 1, role="judge")
    for number in range(2, CALLS_A_PAGE + 2):
        call(record, number)
    call(record, CALLS_A_PAGE + 2, role="judge")
    whole = [entry for entry in in_parts(read_transcript(made.store, job)) if isinstance(entry, CallParts)]
    shown = [item for item in transcript_view(made.store, job, page=2, secrets=()).items if isinstance(item, CallView)]
    assert [tuple(part.part for part in item.prompt) for item in shown] == [each.prompt for each in whole[-2:]]
    assert ("as before", "system") in [(part.label, part.detail) for part in whole[-1].prompt]


def test_a_call_that_is_under_way_is_told(made):
    job = made.start("one")
    begun = {"key": "k", "attempt": 1, "model": "m", "role": "judge", "purpose": "judge-improve"}
    made.journal(job)(Event("llm_started", 1, begun | {"worst_usd": 0.0, "worst_tokens": 0}))
    view = transcript_view(made.store, job, page=1, secrets=())
    assert view.under_way.doing == "the judge answers (judge-improve)"


def test_there_is_no_call_beyond_the_last(made):
    job = long_job(made, 2)
    assert (whole_call_view(made.store, job, 2, page=9, secrets=()).after) is None
    with pytest.raises(NotInStore, match="no call 3"):
        whole_call_view(made.store, job, 3, page=1, secrets=())


def test_a_whole_call_has_all_its_messages(made):
    job = long_job(made, 2)
    second = calls_in(read_transcript(made.store, job))[1]
    assert [(part.label, part.text) for part in whole_parts(second)] == [
        ("system", "You write kernels."),
        ("user", second.messages[1]["content"]),
        ("reply", "Here."),
    ]
