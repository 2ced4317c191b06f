"""A round in which the Coder handed in several variants: the page, the API, the report and the transcript show each."""

import pytest

from agents.protocols import Event, Outcome
from db.jobs import jobs
from db.records import JobStatus
from service.client.server import round_line
from service.jobs.journal import Journal
from service.jobs.liveness import this_process
from service.jobs.persistence import save_task
from service.jobs.query import RoundLine, round_lines
from service.transcripts.calls import calls_in, read_transcript
from service.transcripts.render import transcript
from tasks.load import task_from_source
from tasks.outcomes import candidate_hash
from tests.support.web_application import OP, opened

SOURCES = {name: f"class ModelNew:\n    name = {name!r}\n" for name in ("plain", "streaming", "blocked", "late")}
HASHES = {name: candidate_hash(source) for name, source in SOURCES.items()}


def evaluated(name, verdict="passed", **more):
    outcome = Outcome(HASHES[name], verdict, **more)
    return Event("evaluated", 1, {**outcome.to_json(), "repeat_of_round": None})


def events(*names):
    """A round with these variants, of which `late` is never evaluated."""
    call = {"model": "openai/m", "role": "coder", "purpose": "write", "prompt_tokens": 7, "completion_tokens": 3}
    call |= {"cost_usd": 0.5, "latency_s": 1.0, "attempts": 1, "attempt": 1, "truncated": False, "key": "1/coder/0:ab"}
    call |= {"messages": [], "reply": "Three of them.", "reasoning": "", "reasoning_tokens": None, "tool_calls": []}
    trials = {
        "plain": [evaluated("plain", speedup=2.0, speedup_low=1.9, speedup_high=2.1, latency_ms={"candidate": 4.0})],
        "streaming": [
            evaluated(
                "streaming",
                speedup=2.5,
                speedup_low=2.4,
                speedup_high=2.6,
                latency_ms={"candidate": 3.25},
                champion_hash=HASHES["plain"],
                over_champion=1.25,
                decision="better",
            ),
            Event("best", 1, {"hash": HASHES["streaming"], "speedup": 2.5, "tags": []}),
        ],
        "blocked": [evaluated("blocked", "wrong_output", code="values", message="row 3 differs")],
        "late": [],
    }
    written = [
        Event(
            "candidate",
            1,
            {
                "hash": HASHES[name],
                "source": SOURCES[name],
                "change": "first candidate",
                "repeat_of_round": None,
                "variant": place,
                "variants": len(names),
                "label": name,
            },
        )
        for place, name in enumerate(names, start=1)
    ]
    return [
        Event("job_started", 0, {"rounds": 1}),
        Event("round_started", 1, {"request": "write"}),
        Event("llm_call", 1, call),
        *written,
        *(event for name in names for event in trials[name]),
        Event("round_done", 1, {"verdict": "passed"}),
    ]


@pytest.fixture
def job(tmp_path):
    """An application with a job whose only round has three variants."""
    with opened(tmp_path) as web:
        owner = this_process()
        with web.store.write() as session:
            job_id = jobs.add_job(
                session,
                task_id=save_task(session, task_from_source(OP, name="relu")),
                kind="optimize",
                platform="cpu",
                sandbox="docker",
                owner=owner,
                model="openai/m",
                strategy="judge",
                options={"rounds": 1},
            )
        journal = Journal(web.store, job_id, lambda event: None)
        for event in events("plain", "streaming", "blocked"):
            journal(event)
        with web.store.write() as session:
            jobs.finish_job(session, job_id, owner, status=JobStatus.DONE, stop_reason="rounds")
        yield web, job_id


def test_the_page_shows_each_variant_with_its_figures_and_its_candidate(job):
    web, job_id = job
    text = web.client().get(f"/jobs/{job_id}").text
    for name in ("plain", "streaming", "blocked"):
        assert text.count(f'href="/jobs/{job_id}/candidates/{HASHES[name]}"') == 1
    assert "2.50×" in text and "2.00×" in text and "row 3 differs" in text
    assert "3.25" in text and "4.00" in text, "each has its own latency"
    assert "variant 2 of 3: streaming" in text, "the log names them"
    assert text.index("2.50×") < text.index("2.00×"), "the one that stands for the round comes first"
    assert web.client().get(f"/jobs/{job_id}/candidates/{HASHES['blocked']}").status_code == 200


def test_the_api_gives_each_variant_and_a_client_reads_them_back(job):
    web, job_id = job
    (found,) = web.client().get(f"/api/v1/jobs/{job_id}").json()["rounds"]
    assert (found["candidate_hash"], found["change"]) == (HASHES["streaming"], "first candidate")
    assert (found["over_best"], found["decision"]) == (1.25, "better")
    shown = [(each["change"], each["verdict"], each["over_best"]) for each in found["variants"]]
    assert shown == [("plain", "passed", None), ("streaming", "passed", 1.25), ("blocked", "wrong_output", None)]
    assert round_line(found) == round_lines(events("plain", "streaming", "blocked"))[0]
    older = {name: value for name, value in found.items() if name not in ("variants", "over_best", "decision")}
    assert round_line(older).variants == ()


def test_a_transcript_shows_what_came_of_each_variant(job):
    web, job_id = job
    entries = read_transcript(web.store, job_id)
    (call,) = calls_in(entries)
    assert call.candidate is not None and call.candidate.candidate_hash == HASHES["streaming"]
    assert [each.label for each in call.candidates] == ["plain", "streaming", "blocked"]
    results = [line.text for line in transcript(entries) if line.kind == "result"]
    assert [text.split(":")[0] for text in results if text.startswith("=>")] == [
        "=> plain",
        "=> streaming",
        "=> blocked",
    ]


def test_the_jobs_best_stands_for_its_round_whatever_the_trials_said():
    (line,) = round_lines(events("plain", "streaming"), HASHES["plain"])
    assert (line.candidate_hash, line.best, line.speedup) == (HASHES["plain"], True, 2.0)
    assert [each.best for each in line.variants] == [True, False]
    assert [each.candidate_hash for each in line.others] == [HASHES["streaming"]]


def test_a_retracted_variant_takes_nothing_from_the_others():
    judged = [(HASHES["plain"], 1, True), (HASHES["streaming"], 1, False)]
    (line,) = round_lines(events("plain", "streaming"), HASHES["streaming"], judged)
    assert not line.retracted and [each.retracted for each in line.variants] == [True, False]


def test_a_proof_is_of_its_own_variant():
    proof = Outcome(HASHES["streaming"], "passed", speedup=2.4, tags=("custom_kernel",)).to_json()
    (line,) = round_lines([*events("plain", "streaming"), Event("proved", 1, proof)], HASHES["streaming"])
    assert (line.speedup, line.tags) == (2.4, ("custom_kernel",))
    assert [each.speedup for each in line.variants] == [2.0, 2.4]
    assert (line.over_best, line.decision) == (1.25, "better"), "which no proof measures again"


def test_variants_are_under_way_until_they_are_evaluated_or_the_round_ends():
    names = ("plain", "late")
    *under_way, done = events(*names)
    (line,) = round_lines(under_way)
    assert [each.verdict for each in line.variants] == ["passed", "under way"]
    (line,) = round_lines([*under_way, done])
    assert [each.verdict for each in line.variants] == ["passed", "not evaluated"]
    (before,) = round_lines(under_way[:5])
    assert (before.verdict, before.candidate_hash) == ("under way", HASHES["plain"])


def test_a_round_with_one_candidate_has_no_variants():
    (line,) = round_lines(events("plain"))
    assert isinstance(line, RoundLine) and line.variants == () == line.others
