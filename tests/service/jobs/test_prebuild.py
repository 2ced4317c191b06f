"""Candidates that build slowly are built side by side before their evaluation is due, and nobody measures meanwhile."""

import threading
import time
from pathlib import Path

import pytest

from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, build_ahead
from evaluator.platforms import load_platform
from sandbox.base import Command, Sandbox
from service.cancellation import CancelToken
from service.device_lock import hold_device
from service.evaluation_context import EvaluationContext
from service.jobs.prebuild import AT_ONCE, Prebuilder
from service.settings import load_settings
from tasks.build import task_from_source
from tasks.outcomes import Verdict

HONEST = Path(__file__).parents[2] / "honest"
OP, CANDIDATE = (HONEST / "load_inline.py").read_text().split("# --- candidate ---\n")
TASK = task_from_source(OP, name="op")


class Watching:
    """A sandbox that notes what it ran, and how many ran at the same time."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner, self.name, self.promises = inner, inner.name, inner.promises
        self.modes: list[str] = []
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def run(self, command: Command, **options):
        with self.lock:
            self.modes.append(command.args[0])
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            return self.inner.run(command, **options)
        finally:
            with self.lock:
                self.inside -= 1

    def prepare(self, command: Command) -> None:
        pass

    def describe(self):
        return self.inner.describe()


def context_of(sandbox, folder: Path) -> EvaluationContext:
    return EvaluationContext(
        TASK, load_platform("cpu"), sandbox, load_settings(data_dir=folder / "data", lock_dir=folder)
    )


def variant(number: int) -> str:
    return CANDIDATE.replace("square_plus_one", f"square_plus_one_{number}")


@pytest.mark.docker
@pytest.mark.exclusive
def test_what_is_built_side_by_side_need_not_be_built_again(docker_sandbox, tmp_path):
    sandbox = Watching(docker_sandbox)
    context = context_of(sandbox, tmp_path)
    builds = Prebuilder(context, lambda text: None)
    for number in (1, 2):
        builds.start(variant(number))
    while sandbox.inside < 2:  # a build that has not begun would wait for who measures
        time.sleep(0.01)
    began = time.monotonic()
    with hold_device(context.locks, on_wait=lambda: None):  # as who measures does
        assert sandbox.inside == 0, "nobody measures while something is built"
    assert time.monotonic() - began > 1.0
    builds.wait(None)
    assert (sandbox.modes, sandbox.most) == (["build", "build"], 2)
    found = context.evaluate(variant(2), on_progress=lambda text: None, cancel=CancelToken())
    assert found.verdict is Verdict.PASSED, found.detail
    assert found.cost_s["build"] < 3.0, "it takes 9 s and more where it is not there"
    builds.close()
    builds.start(variant(3))
    assert sandbox.modes == ["build", "build", "evaluate"], "nothing is begun once the job is over"


@pytest.mark.docker
@pytest.mark.exclusive
def test_jobs_of_a_host_build_two_at_a_time_and_what_waits_is_given_up_when_an_evaluation_is_due(
    docker_sandbox, tmp_path
):
    sandbox, told = Watching(docker_sandbox), []
    jobs = [Prebuilder(context_of(sandbox, tmp_path), told.append) for _ in range(2)]
    for number in range(6):
        jobs[number % 2].start(variant(number))
    while sandbox.inside < AT_ONCE:
        time.sleep(0.05)
    began = time.monotonic()
    jobs[0].wait(0.5)
    assert time.monotonic() - began < 3.0, "it waits no longer than it was told"
    for builds in jobs:
        builds.wait(None)
        builds.close()
    assert sandbox.most == AT_ONCE
    assert told[0] == "waiting for candidates that are built"
    assert 2 <= len(sandbox.modes) < 6


@pytest.mark.docker
def test_what_cannot_be_built_and_what_builds_quickly_is_not_kept(docker_sandbox, tmp_path):
    cache, platform = BuildCache(tmp_path), load_platform("cpu")
    given = {"sandbox": docker_sandbox, "platform": platform, "effort": Effort(memory_mb=4096), "cache": cache}
    assert not build_ahead(TASK, CANDIDATE.replace("float* to", "flaot* to"), **given)
    assert not build_ahead(TASK, OP.replace("class Model(", "class ModelNew("), **given)
    assert not build_ahead(TASK, "raise SystemExit(3)", **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.docker
def test_a_job_that_ends_does_not_wait_for_builds(docker_sandbox, tmp_path):
    sandbox = Watching(docker_sandbox)
    builds = Prebuilder(context_of(sandbox, tmp_path), lambda text: None)
    for number in range(6):
        builds.start(variant(number))
    while not sandbox.inside:
        time.sleep(0.05)
    began = time.monotonic()
    builds.close()
    assert time.monotonic() - began < 5.0
    assert sandbox.inside == 0


def test_nothing_is_built_ahead_where_it_is_quick_or_where_runners_share_a_user(tmp_path):
    class Shared:
        name, promises = "shared", frozenset()

    context = context_of(Shared(), tmp_path)
    Prebuilder(context, lambda text: None).start(CANDIDATE)  # would fail: this sandbox cannot run anything
    assert not context.platform.builds_slowly("import ctypes, subprocess")
    assert not context.platform.builds_slowly("torch.compile(f)"), "it works at the first call"
    for way in ("load_inline(", "torch.utils.cpp_extension"):
        assert context.platform.builds_slowly(f"x = {way}")
