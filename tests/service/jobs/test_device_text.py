"""What a job's models are told of the device: measured before the first prompt, and the same whenever it is resumed."""

import contextlib
import json
import threading
from dataclasses import dataclass, field, replace

import pytest

from agents.protocols import ModelUnavailable
from db.jobs import jobs
from evaluator.device_figures import FigureStore
from evaluator.platforms import load_platform
from sandbox.base import Completed, SandboxUnavailable
from service.cancellation import Cancelled, CancelToken
from service.database import open_store
from service.device_lock import hold_device
from service.evaluation_context import WAITING, EvaluationContext
from service.jobs import local
from service.jobs import run as job_run
from service.jobs.spec import DEVICE_TEXT
from service.settings import load_settings
from tasks.task import Task
from tests.evaluator.test_device_figures import FIGURES
from tests.fakes import ScriptedLLM, fenced
from tests.support.commands import OP
from tests.support.killable_jobs import QuickContext, Sandbox

FASTER = fenced("class ModelNew:\n    speed = 2\n")
ADVICE = fenced(
    json.dumps({"bottleneck": "b", "change": "c", "evidence": ["latency_ms.candidate"], "stop": True}), language="json"
)


@dataclass(frozen=True)
class TellingContext(QuickContext):
    """Tells another text each time that it is asked, as a device does that is measured anew."""

    asked: list[bool] = field(default_factory=list)

    def device_text(self, *, measure, **_):
        self.asked.append(measure)
        return f"a CPU\nmeasurement {len(self.asked)}"


@pytest.fixture
def world(monkeypatch, tmp_path):
    """Runs jobs: `world(llm, job_id)` starts one, or resumes it, and returns the numbers of times it asked."""
    (tmp_path / "op.py").write_text(OP)
    asked = []

    @contextlib.contextmanager
    def opened(task, settings, **_):
        yield TellingContext(task, load_platform("cpu"), Sandbox(), settings, asked=asked)

    monkeypatch.setattr(local, "open_evaluation_context", opened)
    settings = load_settings(data_dir=tmp_path / "data", model="openai/m", rounds=2)
    with contextlib.closing(open_store(settings)) as store:

        def run(llm, *, resumed=None, **changed):
            monkeypatch.setattr(job_run, "open_models", lambda *_, **__: llm)
            common = {"settings": settings.model_copy(update=changed), "store": store, "observe": lambda event: None}
            if resumed is None:
                return local.optimize(str(tmp_path / "op.py"), cancel=CancelToken(), **common)
            return local.resume(resumed, cancel=CancelToken(), **common)

        run.asked, run.store = asked, store
        yield run


def broken_off(world):
    """A job whose Judge could not be reached after the first candidate."""
    report = world(ScriptedLLM([FASTER, ModelUnavailable("openai/m", "no answer")]))
    assert report.stop_reason == "model_unavailable"
    return report.job.id


def devices(llm):
    return [llm.sections(index)["device"] for index in range(len(llm.prompts))]


def test_a_resumed_job_reads_the_text_with_which_it_began(world):
    job_id = broken_off(world)
    llm = ScriptedLLM([ADVICE])
    world(llm, resumed=job_id)
    assert llm.requests() == ["judge-improve"], "the Coder's call is answered from the record"
    assert devices(llm) == ["a CPU\nmeasurement 1"]
    assert world.asked == [True]


def test_the_text_is_kept_beside_what_identifies_the_device(world):
    job_id = broken_off(world)
    with world.store.read() as session:
        options = jobs.get_job(session, job_id).options
    assert options[DEVICE_TEXT] == "a CPU\nmeasurement 1"
    assert options["device"] == load_platform("cpu").device().describe()


def test_a_job_of_an_earlier_version_reads_the_description_as_before(world):
    job_id = broken_off(world)
    with world.store.write() as session:
        jobs.update_options(session, job_id, **{DEVICE_TEXT: None})
    llm = ScriptedLLM([FASTER, ADVICE])
    world(llm, resumed=job_id)
    assert set(devices(llm)) == {load_platform("cpu").device().describe()}
    assert world.asked == [True], "nothing is measured for it"


def test_a_compiler_search_reads_no_figures_so_none_are_measured(world):
    world(ScriptedLLM([FASTER, ADVICE]), model="builtin/compiler")
    assert world.asked == [False]


# The measurement itself


class Measuring:
    """Answers with figures, or fails."""

    name = "measuring"
    promises = frozenset()

    def __init__(self, answer):
        self.answer = answer
        self.runs = 0

    def run(self, command, **_):
        self.runs += 1
        assert command.args == ("device", "cpu")
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, Completed):
            return self.answer
        told = json.dumps({"figures": self.answer, "cost_s": {"total": 1.0}})
        return Completed(0, told.encode(), b"", 1.0)

    def describe(self):
        return {"name": self.name}


def context_of(sandbox, folder):
    settings = load_settings(data_dir=folder / "data", lock_dir=folder)
    return EvaluationContext(Task("op", OP), load_platform("cpu"), sandbox, settings)


def text_of(context, told=None, *, measure=True, cancel=None):
    say = (lambda text: None) if told is None else told.append
    return context.device_text(measure=measure, on_progress=say, cancel=cancel or CancelToken())


def test_a_device_is_measured_once(tmp_path):
    sandbox = Measuring(FIGURES)
    context = context_of(sandbox, tmp_path)
    assert "GB/s" not in text_of(context, measure=False)
    assert sandbox.runs == 0
    texts = [text_of(context, measure=measure) for measure in (True, True, False)]
    assert "begin to pay at 8 MiB" in texts[0] and len(set(texts)) == 1
    assert sandbox.runs == 1
    assert FigureStore(tmp_path / "data" / "devices").known(context.device)


def test_what_other_programs_disturbed_serves_for_the_day(tmp_path):
    sandbox = Measuring({**FIGURES, "noisy": True})
    context = context_of(sandbox, tmp_path)
    assert all("may be too low" in text_of(context) for _ in range(2))
    assert sandbox.runs == 1
    [kept] = (tmp_path / "data" / "devices").glob("*.json")
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "measured_on": "2026-01-31"}))
    assert all("may be too low" in text_of(context) for _ in range(2))
    assert sandbox.runs == 2


@pytest.mark.parametrize(
    "failure",
    [
        Completed(1, b"", b"the referee failed: g++ failed\n", 1.0),
        Completed(None, b"", b"", 90.0, timed_out=True),
        Completed(0, b"no JSON", b"", 1.0),
        SandboxUnavailable("there is no engine.", "Start it."),
    ],
    ids=["failed", "timed out", "no JSON", "no sandbox"],
)
def test_a_device_that_cannot_be_measured_is_described_without_figures(tmp_path, failure):
    told, context = [], context_of(Measuring(failure), tmp_path)
    text = text_of(context, told)
    assert "execution units" in text and "GB/s" not in text
    assert any("could not be measured" in line for line in told)
    assert text_of(replace(context, sandbox=Measuring(FIGURES))) != text, "the next job tries again"


def test_a_job_that_is_cancelled_meanwhile_learns_nothing(tmp_path):
    stopped = Completed(None, b"", b"", 1.0, cancelled=True)
    with pytest.raises(Cancelled):
        text_of(context_of(Measuring(stopped), tmp_path))


def test_nothing_is_measured_while_the_device_is_in_use(tmp_path):
    context, told, cancel = context_of(Measuring(FIGURES), tmp_path), [], CancelToken()
    with hold_device(context.locks, on_wait=lambda: None):
        threading.Timer(0.3, cancel.request, ("cancelled",)).start()
        with pytest.raises(Cancelled):
            text_of(context, told, cancel=cancel)
    assert told == [WAITING] and context.sandbox.runs == 0
