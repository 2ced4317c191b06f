"""Candidates are screened first, and only those that survive are timed, where a worker with the device is connected."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from db.records import EvaluationRecord, WorkerRecord, WorkerStatus
from evaluator.platforms import load_platform, screening_platform
from service.errors import BadRequest
from service.jobs.liveness import this_process
from service.jobs.spec import spec_of
from service.settings import load_settings
from service.worker.screen_then_time import Place, Places, ScreeningEvaluator, places_of
from tasks.task import Task
from tests.platforms.kits import OP

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCREENS = WorkerRecord(
    "w1", this_process(), "cuda", 0, screening_platform("cuda").device().name, "aaa", "docker", "1", WorkerStatus.ALIVE,
    NOW, NOW, None,
)  # fmt: skip
TIMES = replace(SCREENS, id="w2", device="NVIDIA H100", kind="hhh", sandbox="process")
H100, OTHER_GPU, CPU = Place("hhh", "process"), Place("ggg", "docker"), Place("aaa", "docker")


@pytest.mark.parametrize(
    ("workers", "begun_on", "expected"),
    [
        ([], "aaa", Places(None, None)),
        ([SCREENS], "aaa", Places(CPU, None)),
        ([TIMES], "hhh", Places(None, H100)),
        ([SCREENS, TIMES], "aaa", Places(CPU, H100)),
        ([SCREENS, TIMES, replace(TIMES, kind="ggg", sandbox="docker")], "hhh", Places(CPU, H100)),
        ([SCREENS, TIMES, replace(TIMES, kind="ggg", sandbox="docker")], "aaa", Places(CPU, OTHER_GPU)),
        ([SCREENS, replace(TIMES, platform="triton")], "aaa", Places(CPU, None)),
    ],
)
def test_workers_of_the_platform_screen_or_time_and_the_jobs_own_class_comes_first(
    workers: list[WorkerRecord], begun_on: str, expected: Places
) -> None:
    assert places_of(workers, "cuda", SCREENS.device, begun_on=begun_on) == expected


@dataclass
class Fleet:
    """Workers whose verdicts are given; `asked` is what they were asked for."""

    places: Places
    verdicts: dict[Place, str]
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def evaluator(self) -> ScreeningEvaluator:
        return ScreeningEvaluator(lambda: self.places, cast(Any, self.at), CPU)

    def at(self, place: Place, name: str) -> Any:
        def evaluate(source: str, **how: Any) -> EvaluationRecord:
            self.asked.append((place.kind, name, how))
            record = object.__new__(EvaluationRecord)
            object.__setattr__(record, "verdict", self.verdicts[place])
            return record

        return evaluate


ROUND = {"round_number": 2, "profile": True, "trial": True, "champion": "best"}


def test_what_survives_is_timed_beside_the_best() -> None:
    fleet = Fleet(Places(CPU, H100), {CPU: "screened", H100: "passed"})
    assert fleet.evaluator()("x", **ROUND).verdict == "passed"
    screening, timing = fleet.asked
    assert screening == ("aaa", "screening", ROUND | {"profile": False, "trial": False, "champion": None})
    assert timing == ("hhh", "timing", ROUND)


@pytest.mark.parametrize("verdict", ["wrong_output", "crashed", "build_failed", "task_invalid", "sandbox_error"])
def test_what_does_not_survive_takes_no_time_of_the_device(verdict: str) -> None:
    fleet = Fleet(Places(CPU, H100), {CPU: verdict})
    assert fleet.evaluator()("x", **ROUND).verdict == verdict
    assert [kind for kind, *_ in fleet.asked] == ["aaa"]


def test_where_none_times_candidates_are_screened_and_profiled() -> None:
    fleet = Fleet(Places(CPU, None), {CPU: "screened"})
    assert fleet.evaluator()("x", **ROUND).verdict == "screened"
    assert [(kind, how["profile"]) for kind, _, how in fleet.asked] == [("aaa", True)]


def test_where_none_screens_candidates_are_timed_at_once() -> None:
    fleet = Fleet(Places(None, H100), {H100: "passed"})
    assert fleet.evaluator()("x", **ROUND).verdict == "passed"
    assert [kind for kind, *_ in fleet.asked] == ["hhh"]


def test_where_no_worker_seems_to_live_the_one_that_runs_the_job_is_asked() -> None:
    """Its own heartbeat was late."""
    fleet = Fleet(Places(None, None), {CPU: "screened"})
    assert fleet.evaluator()("x", **ROUND).verdict == "screened"
    assert [kind for kind, *_ in fleet.asked] == ["aaa"]


def test_a_device_that_comes_later_is_used_and_one_that_has_timed_is_waited_for() -> None:
    fleet = Fleet(Places(CPU, None), {CPU: "screened", H100: "passed", OTHER_GPU: "passed"})
    evaluator = fleet.evaluator()
    for times in (None, H100, None, OTHER_GPU):
        fleet.places = Places(CPU, times)
        evaluator("x", **ROUND)
    assert [kind for kind, name, _ in fleet.asked if name == "timing"] == ["hhh"] * 3


@pytest.mark.parametrize("platform", ["cuda", "triton"])
def test_jobs_of_platforms_that_screen_may_ask_for_it(platform: str) -> None:
    settings = load_settings(platform=platform, strategy="screen-then-time", model="openai/some")
    assert spec_of(Task(name="op", source=OP), settings, device="").strategy == "screen-then-time"


def test_a_platform_that_is_timed_everywhere_is_refused_with_those_that_are_not() -> None:
    settings = load_settings(platform="cpu", strategy="screen-then-time", model="openai/some")
    with pytest.raises(BadRequest, match=r"platforms whose candidates are screened.*cuda, triton.*'cpu'"):
        spec_of(Task(name="op", source=OP), settings, device=load_platform("cpu").device().describe())
