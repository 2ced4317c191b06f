"""Calls of models as they were stored: linked to what came of them, read as a transcript, written for training."""

import json
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.llm.ledger import request_digest
from agents.prompting.sections import render
from agents.protocols import Event, Outcome
from agents.strategies.tool_calls import TOOLS
from db.jobs import jobs
from db.records import EventRecord, JobRecord, JobStatus, LlmCall, TaskRecord
from service.database import open_store
from service.errors import BadRequest
from service.jobs.journal import Journal
from service.jobs.liveness import this_process
from service.jobs.persistence import save_task
from service.settings import load_settings
from service.transcripts.calls import CandidateResult, LinkedCall, calls_in, read_transcript, transcript_entries
from service.transcripts.render import WIDTH, tokens_text, transcript, transcript_json
from service.transcripts.training_export import CallFilter, JobCall, filter_calls, openai_line, write_lines
from tasks.outcomes import candidate_hash
from tasks.task import Task
from tests.fakes import fenced
from tests.support.commands import KERNELWRIGHT, environment

FIRST = "class ModelNew:\n    first = 1\n"
SECOND = "class ModelNew:\n    second = 2\n"
LASTING = {"task": '{"id": "local/op"}', "device": "a CPU", "reference": "class Model:\n    pass\n", "exemplar": "e\nf"}
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]not markup[/] \u202eevil"


def prompt(request, **sections):
    user = render({"request": request, **LASTING, **sections}) + f"\n\nDo {request}."
    return [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": user}]


def call(number, purpose, messages, reply, role="coder", **more):
    data = {"model": "openai/m", "role": role, "purpose": purpose, "prompt_tokens": 1200, "completion_tokens": 34}
    data |= {"cost_usd": 0.5, "latency_s": 2.0, "attempts": 1, "truncated": False, "key": f"{number}:{reply}"}
    data |= {"attempt": 1, "reasoning": "", "reasoning_tokens": None, "tool_calls": []}
    return Event("llm_call", number, {**data, "messages": messages, "reply": reply, **more})


def outcome(source, verdict, **more):
    return Outcome(candidate_hash(source), verdict, **more).to_json() | {"repeat_of_round": None}


def told():
    """A job of two rounds: one reply rejected, one candidate wrong, one passed; a model that failed once."""
    write = prompt("write")
    again = [*write, {"role": "assistant", "content": "Sorry."}, {"role": "user", "content": "No block. Again."}]
    judge = prompt("judge-repair", candidate=FIRST, evaluation='{\n"verdict": "wrong_output"\n}')
    repair = prompt("repair", candidate=FIRST, advice='{\n"change": "add one"\n}')
    advice = {"bottleneck": "b", "change": "add one"}
    passed = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "tags": ("custom_kernel",)}
    return [
        Event("job_started", 0, {"task_id": "local/op", "platform": "cpu", "rounds": 2}),
        Event("round_started", 1, {"request": "write"}),
        call(1, "write", write, "Sorry."),
        Event("reply_rejected", 1, {"role": "coder", "reason": "The reply holds no closed block."}),
        call(1, "write", again, fenced(FIRST, before="Better now.")),
        Event("candidate", 1, {"hash": candidate_hash(FIRST), "source": FIRST, "repeat_of_round": None}),
        Event("evaluated", 1, outcome(FIRST, "wrong_output", code="values", message=f"off by 1 {HOSTILE}")),
        Event("round_done", 1, {"verdict": "wrong_output"}),
        Event("llm_failed", 1, {"role": "judge", "message": "openai/m: the provider failed."}),
        call(1, "judge-repair", judge, fenced(json.dumps(advice), language="json"), role="judge", cost_usd=None),
        Event("advice", 1, {**advice, "mode": "judge-repair", "subject_hash": candidate_hash(FIRST)}),
        Event("round_started", 2, {"request": "repair"}),
        call(2, "repair", repair, fenced(SECOND) + HOSTILE, attempts=3),
        Event("candidate", 2, {"hash": candidate_hash(SECOND), "source": SECOND, "repeat_of_round": None}),
        Event("evaluated", 2, outcome(SECOND, "passed", **passed)),
        Event("best", 2, {"hash": candidate_hash(SECOND), "speedup": 2.0}),
        Event("round_done", 2, {"verdict": "passed"}),
        Event("job_stopped", 2, {"reason": "rounds", "detail": "2 of 2"}),
    ]


def stored(events):
    """Rows as the journal keeps them."""
    rows, calls = [], []
    for number, event in enumerate(events, start=1):
        data = dict(event.data)
        if event.kind == "llm_call":
            kept = {key: data[key] for key in LlmCall.__dataclass_fields__ if key in data}
            calls.append(LlmCall(round=event.round, **kept))
            for name in ("messages", "reply", "reasoning", "tool_calls"):
                del data[name]
        data.pop("source", None)
        rows.append(EventRecord(number, event.kind, event.round, data))
    return calls, rows


@pytest.fixture
def entries():
    return transcript_entries(*stored(told()))


@pytest.fixture
def data_dir(tmp_path):
    """The story of job 1 in a store."""
    settings = load_settings(data_dir=tmp_path / "data")
    store = open_store(settings)
    with store.write() as session:
        job_id = jobs.add_job(
            session,
            task_id=save_task(session, Task("op", "class Model: pass")),
            kind="optimize",
            platform="cpu",
            sandbox="docker",
            owner=this_process(),
            model="openai/m",
            strategy="judge",
            options={},
        )
    journal = Journal(store, job_id, lambda event: None)
    for event in told():
        journal(event)
    with store.write() as session:
        jobs.finish_job(session, job_id, this_process(), status=JobStatus.DONE, stop_reason="rounds")
    assert len(calls_in(read_transcript(store, job_id))) == 4
    store.close()
    return tmp_path / "data"


def run(data_dir, *arguments):
    return subprocess.run(
        [*KERNELWRIGHT, *map(str, arguments)],
        cwd=data_dir.parent,
        env=environment(data_dir.parent),
        capture_output=True,
        text=True,
        check=False,
    )


# Links


def test_each_call_knows_what_came_of_it(entries):
    first, second, judge, third = calls_in(entries)
    assert (first.rejected, first.candidate) == ("The reply holds no closed block.", None)
    assert second.rejected is None
    assert (second.candidate.round, second.candidate.verdict, second.candidate.code) == (1, "wrong_output", "values")
    assert (judge.candidate.round, judge.candidate.verdict) == (2, "passed")  # the candidate that followed its advice
    assert third.candidate == CandidateResult(
        2, candidate_hash(SECOND), "passed", None, "", ("custom_kernel",), 2.0, 1.9, 2.1
    )
    assert [linked.number for linked in (first, second, judge, third)] == [1, 2, 3, 4]
    assert third.attempts == 3


def test_a_candidate_that_was_not_evaluated_has_no_verdict():
    events = told()[:6]
    *_, last = calls_in(transcript_entries(*stored(events)))
    assert last.candidate == CandidateResult(1, candidate_hash(FIRST))


def test_a_call_stands_where_the_event_with_its_key_does():
    calls, events = stored(told())
    assert transcript_entries(calls[::-1], events) == transcript_entries(calls, events)
    assert [linked.reply for linked in calls_in(transcript_entries(calls[::-1], events))] == [
        call.reply for call in calls
    ]


def test_calls_without_a_key_or_an_event_stand_at_the_end_in_their_order():
    calls, events = stored(told())
    of_older_store = replace(calls[0], key=None, reply="older")
    without_event = replace(calls[0], key="1:of no event", reply="alone")
    entries = transcript_entries([of_older_store, without_event, *calls], events)
    assert [entry.reply for entry in entries[-2:]] == ["older", "alone"]
    assert [linked.candidate for linked in calls_in(entries)[-2:]] == [None, None]
    assert [linked.reply for linked in calls_in(entries)[:-2]] == [call.reply for call in calls]


def test_an_event_whose_call_is_not_stored_is_left_out():
    calls, events = stored(told())
    entries = transcript_entries(calls[1:], events)
    assert [linked.reply for linked in calls_in(entries)] == [call.reply for call in calls[1:]]
    assert not any(isinstance(entry, EventRecord) and entry.kind == "llm_call" for entry in entries)


def test_a_reply_that_was_given_up_leads_to_nothing():
    events = told()
    given_up = Event("round_done", 1, {"verdict": "no_candidate"})
    later = [Event(event.kind, 2, event.data) for event in events[4:6]]
    first, second = calls_in(transcript_entries(*stored([*events[:4], given_up, *later])))
    assert first.candidate is None
    assert second.candidate.round == 2


def test_reasoning_and_tool_calls_are_kept():
    wish = tool_call("search")
    told_so = reply_to(1, text="", tool_calls=[wish]).data | {"reasoning": "hm", "reasoning_tokens": 7}
    (kept,) = calls_in(transcript_entries(*stored([Event("llm_call", 1, told_so)])))
    assert (kept.reasoning, kept.reasoning_tokens, kept.tool_calls) == ("hm", 7, (wish,))


def reply_to(number, purpose="improve", role="coder", tool_calls=(), text="reply"):
    return call(number, purpose, prompt(purpose), text, role=role, tool_calls=list(tool_calls))


def candidate_event(number, source):
    return Event("candidate", number, {"hash": candidate_hash(source), "source": source, "repeat_of_round": None})


def test_rounds_written_side_by_side_are_not_mixed_up():
    events = [
        reply_to(2, "judge-improve", "judge", text="for 2"),
        reply_to(3, "judge-improve", "judge", text="for 3"),
        Event("advice", 3, {"change": "b"}),
        Event("advice", 2, {"change": "a"}),
        reply_to(3, text="writes 3"),
        reply_to(2, text="cannot be used"),
        Event("reply_rejected", 2, {"role": "coder", "reason": "no block"}),
        reply_to(2, text="writes 2"),
        reply_to(4, "judge-improve", "judge", text="stop"),
        Event("advice", 4, {"change": "none", "stop": True}),
        candidate_event(2, FIRST),
        candidate_event(3, SECOND),
        candidate_event(5, "x"),
    ]
    candidate = {
        linked.reply: linked.candidate and linked.candidate.round
        for linked in calls_in(transcript_entries(*stored(events)))
    }
    assert candidate == {
        "for 2": 2,
        "for 3": 3,
        "writes 3": 3,
        "cannot be used": None,
        "writes 2": 2,
        "stop": None,
    }


def tool_call(name, **arguments):
    return {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_a_turn_with_tools_led_to_the_best_of_what_they_were_called_for():
    started = Event("round_started", 1, {"request": "tools"}), Event("round_started", 2, {"request": "tools"})
    broken = {"id": "1", "type": "function", "function": {"name": "evaluate", "arguments": "{"}}
    evaluating = [tool_call("evaluate", source=FIRST), tool_call("evaluate", source=SECOND), broken]
    submitting = reply_to(
        3, "tools", tool_calls=[tool_call("read_reference"), tool_call("submit", source=FIRST + "\n")]
    )
    key = "tools/1:" + request_digest("openai/m", prompt("tools"), TOOLS)
    events = [
        reply_to(1, "tools", tool_calls=evaluating),
        started[0],
        candidate_event(1, FIRST),
        Event("evaluated", 1, outcome(FIRST, "passed", speedup=1.5)),
        started[1],
        candidate_event(2, SECOND),
        Event("evaluated", 2, outcome(SECOND, "wrong_output")),
        Event("reply_rejected", 3, {"role": "coder", "reason": "not valid JSON"}),
        Event("llm_call", 3, {**submitting.data, "key": key}),
        reply_to(3, "tools", text="in plain words"),
    ]
    first, second, third = calls_in(transcript_entries(*stored(events)))
    assert (first.candidate.round, first.candidate.speedup) == (1, 1.5)
    assert (second.candidate.round, second.candidate.verdict) == (1, "passed")
    assert third.candidate is None
    text = "\n".join(line.text for line in transcript(transcript_entries(*stored(events))))
    assert f"[tool call] evaluate\n[source]\n{FIRST}" in text.replace("\n\n", "\n")
    assert "[tool call] submit\n[source] the file of round 1" in text
    line = openai_line(JobCall(job(), second))
    assert "submit" in [tool["function"]["name"] for tool in line["tools"]]
    assert all(tool["type"] == "function" for tool in line["tools"])


def test_tools_that_an_earlier_version_offered_are_left_out():
    old = reply_to(1, "tools", tool_calls=[tool_call("read_reference")])
    (linked,) = calls_in(transcript_entries(*stored([old])))
    assert "tools" not in openai_line(JobCall(job(), linked))


KINDS = [
    "llm_started",
    "llm_fault",
    "round_started",
    "llm_call",
    "reply_rejected",
    "candidate",
    "evaluated",
    "advice",
    "best",
    "job_stopped",
    "remeasured",
    "new_kind",
]
VALUES = st.one_of(
    st.none(), st.integers(), st.text(max_size=5), st.lists(st.text(max_size=3), max_size=2), st.floats()
)
KEYS = st.one_of(st.none(), st.sampled_from(["1/coder/0:a", "1/coder/0:b", "2/judge/0:c"]))
DATA = st.fixed_dictionaries(
    {"role": st.sampled_from(["coder", "judge", "other"]), "key": KEYS},
    optional=dict.fromkeys(
        [
            "reason",
            "hash",
            "request",
            "parent",
            "stop",
            "message",
            "verdict",
            "tags",
            "speedup",
            "speedup_low",
            "change",
            "repeat_of_round",
            "attempts",
        ],
        VALUES,
    ),
)
EVENTS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), DATA), max_size=12)
CALLS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["coder", "judge"]), st.text(max_size=200), st.text(max_size=200), KEYS
    ),
    max_size=6,
)


@given(CALLS, EVENTS)
def test_no_call_is_lost_and_nothing_reaches_the_terminal_as_it_is(calls, events):
    kept = []
    for number, role, said, reply, key in calls:
        messages = [{"role": "user", "content": said}, {"role": "user"}]
        kept.append(LlmCall(number, "m", role, "write", messages, reply, 1, 1, None, 0.0, key))
    rows = [EventRecord(index, kind, number, data) for index, (kind, number, data) in enumerate(events)]
    entries = transcript_entries(kept, rows)
    assert sorted(linked.reply for linked in calls_in(entries)) == sorted(call.reply for call in kept)
    assert [linked.number for linked in calls_in(entries)] == list(range(1, len(kept) + 1))
    for line in transcript(entries):
        assert line.text.isprintable()
    json.dumps(transcript_json(entries), default=str)


# The transcript


def test_a_transcript_shows_of_each_prompt_what_is_new(entries):
    text = "\n".join(line.text for line in transcript(entries))
    assert text.count("You write kernels.") == 2  # once for each role
    assert text.count("class Model:\n    pass") == 1
    assert text.count("[as before] task, device, reference, exemplar") == 2  # the Judge's, the Coder's second
    assert text.count("[as before] its first 2 messages") == 1
    assert text.count("[as before] system") == 1
    assert "[assistant] the reply of call 1" in text
    assert text.count("No block. Again.") == 1
    assert text.count(FIRST) == 1  # in the reply; after that it is the file of round 1
    assert text.count("[candidate] the file of round 1") == 2
    assert f"```python\n{SECOND}" in text


def test_calls_of_a_compiler_search_have_no_tokens():
    assert tokens_text("builtin/compiler", 0, 0) == "– tokens"
    assert tokens_text("openai/m", 12, 3) == "12 tokens in, 3 out"


def test_a_transcript_tells_the_story_in_order(entries):
    text = "\n".join(line.text for line in transcript(entries))
    order = [
        "* the job starts: local/op on cpu",
        "-- call 1, round 1: coder, write",
        "openai/m: 1200 tokens in, 34 out, $0.5000, 2.0 s",
        "=> rejected: The reply holds no closed block.",
        "-- call 2",
        "=> round 1, ",
        "wrong_output (values)",
        "* the judge's model gave no reply: openai/m: the provider failed.",
        "-- call 3, round 1: judge, judge-repair",
        "price unknown",
        "=> round 2, ",
        "* advice after round 1: add one",
        "-- call 4, round 2: coder, repair",
        "3 attempts",
        "=> round 2, ",
        "passed, 2.00 (1.90-2.10) times eager [custom_kernel]",
        "* best so far: round 2, 2.00 times eager",
        "* the rounds end, rounds: 2 of 2",
    ]
    place = 0
    for words in order:
        place = text.index(words, place)


def test_a_transcript_fits_the_terminal_and_obeys_nobody(entries):
    lines = list(transcript(entries))
    for line in lines:
        assert line.text.isprintable()
        assert len(line.text) <= WIDTH
    assert any("[bold red]not markup[/]" in line.text for line in lines)


def test_of_the_history_only_new_rounds_are_shown():
    rounds = [{"round": number, "change": f"change {number}"} for number in (1, 2, 3)]
    calls = [
        LlmCall(
            number, "m", "coder", "x", prompt("x", history=json.dumps(rounds[:number], indent=1)), "r", 1, 1, None, 0
        )
        for number in (1, 2, 3)
    ]
    text = "\n".join(line.text for line in transcript(transcript_entries(calls, [])))
    assert [text.count(f"change {number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert "[history] 2 as before, and:" in text


def test_code_is_kept_and_prose_wrapped():
    code = "x = 1" + " " * 100 + "# far out"
    reply = "word " * 40 + f"\n~~~~\n{code}\n```\nstill code " + "z " * 60 + "\n~~~~\n" + "end " * 40
    calls = [LlmCall(1, "m", "coder", "write", [], reply, 1, 1, None, 0.0)]
    lines = list(transcript(transcript_entries(calls, [])))
    assert [line.text for line in lines if line.kind == "code"] == reply.split("\n")[1:-1]
    assert all(len(line.text) <= WIDTH for line in lines if line.kind == "text")


def test_tool_calls_and_their_answers_are_shown(entries):
    linked = calls_in(entries)[0]
    wish = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"query": "avx"}'}}
    answer = {"role": "tool", "tool_call_id": "1", "content": "Use AVX2."}
    first = replace(linked, reply="", tool_calls=(wish,), reasoning="I should look.", reasoning_tokens=5)
    asked = {"role": "assistant", "content": "", "tool_calls": [wish]}
    second = replace(linked, number=2, messages=(*linked.messages, asked, answer))
    text = "\n".join(line.text for line in transcript([first, second]))
    assert "5 of them reasoning" in text
    assert "I should look." in text
    assert text.count('[tool call] search\n{"query": "avx"}') == 1
    assert "[assistant] the reply of call 1" in text
    assert "[tool]\nUse AVX2." in text


@pytest.mark.parametrize(
    "arguments", ["{", "[" * 100_000, '{"source": "\\ud800\\n"}', "[1]", "", None, 7, {"source": "a\nb"}]
)
def test_tool_calls_of_any_shape_are_shown(arguments):
    for call in ({"function": {"name": "check", "arguments": arguments}}, {"name": HOSTILE, "arguments": arguments}):
        (linked,) = calls_in(transcript_entries(*stored([reply_to(1, "tools", tool_calls=[call, {}])])))
        assert all(line.text.isprintable() for line in transcript([linked]))
        openai_line(JobCall(job(), linked))


# For training


def job(number=1, **more):
    task = TaskRecord(1, "local", "op", "hash", "math", "float32", source="source")
    values = dict.fromkeys(JobRecord.__dataclass_fields__)
    values |= {"id": number, "task": task, "platform": "cpu", "sandbox": "docker", "strategy": "judge"}
    return JobRecord(**{**values, **more})


def linked(number=1, *, speedup=None, low=None, verdict="passed", tags=(), role="coder", **more):
    candidate = CandidateResult(1, f"hash{number}", verdict, tags=tags, speedup=speedup, speedup_low=low)
    about = (number, 1, role, "write", "m", ({"role": "user", "content": "?"},), "reply", 1, 10, None, 0.0)
    return LinkedCall(*about, **{"candidate": candidate, **more})


def numbers(found):
    return [(each.job.id, each.call.number) for each in found]


def test_only_what_is_wanted_is_kept():
    linked_calls = [
        JobCall(job(), each)
        for each in (
            linked(1, speedup=2.0, low=1.8),
            linked(2, speedup=3.0, low=2.9, tags=("noisy", "custom_kernel")),
            linked(3, verdict="wrong_output"),
            linked(4, candidate=None, rejected="no block"),
            linked(5, speedup=1.1, low=0.9, role="judge"),
        )
    ]
    assert numbers(filter_calls(linked_calls, CallFilter())) == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert numbers(filter_calls(linked_calls, CallFilter(role="judge"))) == [(1, 5)]
    assert numbers(filter_calls(linked_calls, CallFilter(role="all"))) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]
    assert numbers(filter_calls(linked_calls, CallFilter(role="all", passed=True))) == [(1, 1), (1, 2), (1, 5)]
    assert numbers(filter_calls(linked_calls, CallFilter(min_speedup=1.5))) == [
        (1, 1)
    ]  # the faster one cannot be relied on
    assert numbers(filter_calls(linked_calls, CallFilter(min_speedup=1.9))) == []
    with pytest.raises(BadRequest, match="--role x"):
        filter_calls(linked_calls, CallFilter(role="x"))


def test_a_line_is_a_chat_as_openai_reads_it(entries):
    wish = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    line = openai_line(JobCall(job(), replace(calls_in(entries)[3], tool_calls=(wish,))))
    assert set(line) == {"messages", "metadata"}
    assert [message["role"] for message in line["messages"]] == ["system", "user", "assistant"]
    assert line["messages"][-1]["tool_calls"] == [wish]
    assert SECOND in line["messages"][-1]["content"]
    metadata = line["metadata"]
    assert (metadata["job"], metadata["task"], metadata["role"], metadata["purpose"]) == (
        1,
        "local/op",
        "coder",
        "repair",
    )
    assert (metadata["verdict"], metadata["code"], metadata["speedup"], metadata["speedup_low"]) == (
        "passed",
        None,
        2.0,
        1.9,
    )
    assert (metadata["tags"], metadata["candidate_hash"]) == (["custom_kernel"], candidate_hash(SECOND))


def test_a_file_is_never_replaced(tmp_path):
    out = tmp_path / "chats.jsonl"
    write_lines([JobCall(job(), linked(1)), JobCall(job(), replace(linked(2), reply="\ud800 \u2028"))], out)
    lines = out.read_text().splitlines()
    assert [json.loads(line)["metadata"]["call"] for line in lines] == [1, 2]
    with pytest.raises(BadRequest, match="exists"):
        write_lines([], out)
    with pytest.raises(BadRequest, match="No such file"):
        write_lines([], tmp_path / "nowhere" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["chats.jsonl"]


# The commands


def test_a_transcript_is_printed_plain_into_a_pipe(data_dir):
    done = run(data_dir, "jobs", "show", 1, "--transcript")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "=> round 2, " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= WIDTH


def test_a_transcript_as_json_is_whole(data_dir):
    value = json.loads(run(data_dir, "jobs", "show", 1, "--transcript", "--json").stdout)
    assert value["schema"] == "kernelwright.transcript/1"
    calls = [entry for entry in value["entries"] if entry["entry"] == "call"]
    assert [len(entry["messages"]) for entry in calls] == [2, 4, 2, 2]
    assert calls[3]["led"]["verdict"] == "passed"
    assert {"job_started", "llm_failed", "best"} <= {entry.get("kind") for entry in value["entries"]}


def test_chats_are_exported(data_dir):
    done = run(data_dir, "jobs", "export", 1, "--format", "openai-jsonl")
    assert [json.loads(line)["metadata"]["call"] for line in done.stdout.splitlines()] == [1, 2, 4]
    out = data_dir.parent / "chats.jsonl"
    call_filter = ("--passed", "--min-speedup", "1.5", "--role", "all", "--out", out)
    written = run(data_dir, "jobs", "export", "--all", "--format", "openai-jsonl", *call_filter, "--json")
    assert json.loads(written.stdout) == {"schema": "kernelwright.chats/1", "jobs": [1], "count": 2, "file": str(out)}
    assert [json.loads(line)["metadata"]["role"] for line in out.read_text().splitlines()] == ["judge", "coder"]
    as_json = json.loads(run(data_dir, "jobs", "export", 1, 1, "--format", "openai-jsonl", "--json").stdout)
    assert (as_json["jobs"], as_json["count"], len(as_json["chats"])) == ([1], 3, 3)
    none = run(data_dir, "jobs", "export", 1, "--format", "openai-jsonl", "--min-speedup", 99)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "no chat is as wanted\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "0 jobs were named"),
        ([1, 2], "2 jobs were named"),
        ([1, "--passed"], "--format openai-jsonl"),
        (["--all"], "--format openai-jsonl"),
        ([1, "--format", "csv"], "--format csv: choose one of: kernel, openai-jsonl"),
        (["--format", "openai-jsonl"], "name the jobs"),
        ([1, "--all", "--format", "openai-jsonl"], "name the jobs"),
        ([9, "--format", "openai-jsonl"], "job 9 is not in the store"),
        ([1, "--format", "openai-jsonl", "--role", "poet"], "--role poet"),
        ([1, "--format", "openai-jsonl", "--out", "nowhere/x.jsonl"], "nowhere/x.jsonl"),
    ],
)
def test_what_cannot_be_exported_is_one_clear_line(data_dir, arguments, words):
    done = run(data_dir, "jobs", "export", *arguments)
    (line,) = done.stderr.splitlines()
    assert words in line
    assert (done.returncode, done.stdout) == (2, "")
