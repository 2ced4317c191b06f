"""Makes recorded launches again, in processes that hold the kernels alone, and compiles them for GPUs.

The process that runs this has loaded nothing of the candidate. It reads the kernels out of the source by `ast`, and
forks a process for each run, so that none meets what another one leaves.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ....protocol.framing import Message
from ....protocol.gpu_checks import NO_KERNEL, ORDERS
from ..gpu.memory import RecordError, places_in, see_one_place
from ..gpu.runs import Run, RunLimit, held
from . import compiling, records, source
from .records import Record
from .replaying import replay

if TYPE_CHECKING:
    from ...main import Runner

_COMPILE_S = 60.0  # after this no other configuration is begun
_MOST_CONFIGURATIONS = 32  # that are run, beside the first


def check(runner: "Runner", message: Message) -> Message:
    """Make the launches of a call again and reveal what the memory of outputs holds after each run.

    `message` holds the candidate's source, as `tree` the inputs and records of an earlier call and of this one, the
    places of the outputs of both, and how long a run and all of them may take.
    """
    began = time.perf_counter()
    until = time.monotonic() + float(message["all_s"])
    torch.set_num_threads(1)  # threads do not survive a fork
    before, inputs, *told = runner.decoded(message["tree"])
    reply: dict[str, Any] = {"kernels": [], "forbidden": [], "runs": [], "error": "", "compiled": [], "compiler": ""}
    nothing = held(runner, [], {})
    try:
        earlier, record = (records.read(each) for each in told)
    except RecordError as error:
        return {**reply, **nothing, "error": str(error)}
    reply["kernels"] = list(record.kernels)
    try:
        kernels = source.kernels_of(message["source"], (*record.kernels, *record.functions))
    except source.SourceError as error:
        return {**reply, **nothing, "error": str(error), "compiler": str(error)}
    reply["forbidden"] = [[str(each.line), each.text] for each in kernels.forbidden]
    if not record.kernels or kernels.forbidden:
        return {**reply, **nothing, "error": "" if kernels.forbidden else NO_KERNEL, "compiler": NO_KERNEL}
    path = Path.cwd() / "kernels.py"
    path.write_text(kernels.text)
    jobs = _Jobs(Path.cwd())
    architectures = [str(name) for name in message["architectures"]]
    for name in architectures:
        jobs.add(name, _compile_job(path, record, name), RunLimit(_COMPILE_S + 60, until))
    places_before, places = places_in(message)
    at = {place: records.memory_of(record, *place) for place in places}
    try:
        records.see_that_nothing_else_worked(earlier, record, before, inputs)
        see_one_place([records.memory_of(earlier, *place) for place in places_before], [at[place] for place in places])
    except RecordError as error:
        reply["error"] = str(error)
    else:
        limit = RunLimit(float(message["run_s"]), until)
        _add_runs(jobs, path, record, {place[0] for place in at.values() if place}, limit)
    done = jobs.run()
    compiled = [done.pop(name).value for name in architectures]
    if all(compiled):
        reply["compiled"] = compiled
    else:
        reply["compiler"] = "Triton's compiler ended without a word"
    memory = {}
    runs = []
    for what, job in done.items():
        found, text, unclear, notes = job.value or (*job.failed, [], {})
        runs.append(vars(Run(what, found, text, job.seconds)))
        if what == ORDERS[0]:
            reply["notes"] = notes
        if what == ORDERS[0] and not found:
            runs.append(vars(Run("races", "unclear" if unclear else "", "; ".join(unclear[:3]), job.seconds)))
        if not found:
            memory[what] = {
                (place, size): job.content[spot[0]][spot[1] : spot[1] + size]
                for (place, size), spot in at.items()
                if spot
            }
    # What one order has shown of addresses is told of them, and silence only where all were silent.
    orders = [run for run in runs if run["what"] in ORDERS]
    if orders:
        bounds = next((run for run in orders if run["found"]), orders[0])
        runs.append({**bounds, "what": "bounds"})
    reply |= {"runs": runs, "seconds": round(time.perf_counter() - began, 2)}
    return {**reply, **held(runner, places, memory)}


def _compile_job(path: Path, record: Record, architecture: str) -> Callable[[], tuple[Any, dict[int, Any]]]:
    different: dict[str, dict[str, Any]] = {}
    for depth in range(max((len(launch) for launch in record.launches), default=0)):
        for launch in record.launches:
            if depth < len(launch):
                variant = launch[depth]
                said = {name: _kind(each) for name, each in variant["arguments"].items()}
                different.setdefault(json.dumps([variant["kernel"], variant["options"], said]), variant)

    def job() -> tuple[Any, dict[int, Any]]:
        until = time.monotonic() + _COMPILE_S
        made = compiling.compile_all(path, [*different.values()], architecture, lambda: time.monotonic() < until)
        return {**vars(made), "kernels": list(made.kernels)}, {}

    return job


def _kind(argument: dict[str, Any]) -> Any:
    """What of an argument the compiler makes a difference of."""
    if "region" in argument:
        return [argument["dtype"], argument["offset"] % 16]
    value = argument.get("value")
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value in (0, 1) or abs(value) < 1 << 16 else [value % 16 == 0, value >= 1 << 31]
    return argument


def _add_runs(jobs: "_Jobs", path: Path, record: Record, wanted: set[int], limit: RunLimit) -> None:
    def run(order: str, variant: int, *, races: bool) -> Callable[[], tuple[Any, dict[int, Any]]]:
        return lambda: replay(path, record, order=order, variant=variant, races=races, wanted=wanted)

    for order in ORDERS:
        jobs.add(order, run(order, 0, races=order == ORDERS[0]), limit)
    width = max(len(launch) for launch in record.launches)
    for variant in range(1, min(width, _MOST_CONFIGURATIONS + 1)):
        chosen = next(launch[variant] for launch in record.launches if len(launch) > variant)
        what = f"configuration {compiling.described(chosen)}"
        jobs.add(what, run(ORDERS[0], variant, races=False), limit)


@dataclass
class _Job:
    """Work in a process of its own, and what came of it: a value, or why there is none."""

    work: Callable[[], tuple[Any, dict[int, Any]]]
    limit: RunLimit
    path: Path
    pid: int = 0
    began: float = 0.0
    seconds: float = 0.0
    value: Any = None
    content: dict[int, bytes] = field(default_factory=dict)
    failed: tuple[str, str] = ("not_run", "it did not run")


@dataclass
class _Jobs:
    """Work that is done in forked processes, as many at a time as there are processors."""

    folder: Path
    all: dict[str, _Job] = field(default_factory=dict)

    def add(self, name: str, work: Callable[[], Any], limit: RunLimit) -> None:
        """Another piece of work, which is begun after those before it."""
        self.all[name] = _Job(work, limit, self.folder / f"job{len(self.all)}")

    def run(self) -> dict[str, _Job]:
        """Do all of it."""
        waiting, running = [*self.all.values()], list[_Job]()
        most = max(1, len(os.sched_getaffinity(0)))
        while waiting or running:
            while waiting and len(running) < most:
                job = waiting.pop(0)
                job.began = time.monotonic()
                job.pid = os.fork()
                if job.pid == 0:
                    _work(job)
                running.append(job)
            running = [job for job in running if not _ended(job)]
            time.sleep(0.005)
        return self.all


def _work(job: _Job) -> None:
    """Do the work of a child, write down what came of it, and end."""
    try:
        os.setpgid(0, 0)
        value, content = job.work()
        lengths = [[index, each.nbytes] for index, each in content.items()]
        with job.path.open("wb") as file:
            file.write(json.dumps([value, lengths]).encode() + b"\n")
            for each in content.values():
                file.write(each.tobytes())
    finally:
        os._exit(0)


def _ended(job: _Job) -> bool:
    seconds = time.monotonic() - job.began
    pid, status = os.waitpid(job.pid, os.WNOHANG)
    if pid == 0 and not job.limit.is_over(job.pid, job.began):
        return False
    if pid == 0:
        os.killpg(job.pid, signal.SIGKILL)
        os.waitpid(job.pid, 0)
        job.failed = ("timed_out", job.limit.told)
    elif job.path.is_file():
        with job.path.open("rb") as file:
            job.value, lengths = json.loads(file.readline())
            job.content = {index: file.read(size) for index, size in lengths}
        job.path.unlink()
    else:
        job.failed = ("died", f"the process ended with status {status}")
    job.seconds = round(seconds, 3)
    return True
