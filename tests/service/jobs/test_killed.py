"""Jobs that are killed (`kill -9`) at random moments and resumed: nothing is paid for twice beyond what was in flight,
the result is that of an undisturbed run, and what is booked as spent is what the server billed."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.replay import resume_state_from_events
from service.database import open_store
from service.jobs.query import get_job, read_full_events
from service.mock_llm import Entry, Script, ScriptedCall, When, start_llm_server
from service.settings import load_settings
from tests.fakes import fenced
from tests.support.commands import OP

KILLS = 8  # of each strategy: 40 in all
STRATEGIES = ("judge", "sample", "contrastive", "tree", "tools")
ROUNDS = 10


def candidate(number: int) -> str:
    return f"class ModelNew:\n    number = {number}\n    speed = {(number * 7) % 24 / 4}\n"


def written(number: int) -> str:
    """The Coder's reply: one candidate, or three variants of which the last is the fastest."""
    if number % 3:
        return fenced(candidate(number))
    variants = sorted((candidate(number + step) for step in (100, 200, 300)), key=lambda text: float(text.split()[-1]))
    return "".join(fenced(text, language="python variant: unrolled") for text in variants)


def advice(number: int) -> str:
    mode = {"bottleneck": "memory", "change": f"change {number}", "expected_speedup": 2.0, "stop": False}
    return fenced(json.dumps({**mode, "evidence": ["speedup.eager"]}), language="json")


def repair(number: int) -> str:
    mode = {"bottleneck": "row 3", "change": f"repair {number}", "expected_speedup": 2.0, "stop": False}
    return fenced(json.dumps({**mode, "evidence": []}), language="json")


def script() -> Script:
    """What is answered depends on what is asked alone: the same in a run that is disturbed and in one that is not."""
    coder = [
        Entry(text=written(number), delay_s=0.02, when=When(request=request), repeat=True)
        for number in range(24)
        for request in ("write", "improve", "repair", "contrast")
    ]
    judge = [
        Entry(text=text(number), delay_s=0.02, when=When(request=request), repeat=True)
        for number in range(6)
        for request, text in (("judge-improve", advice), ("judge-repair", repair))
    ]
    tools = [
        Entry(
            tool_calls=(ScriptedCall(name="evaluate", arguments={"source": candidate(number)}),),
            delay_s=0.02,
            when=When(request="tools"),
            repeat=True,
        )
        for number in range(48)
    ]
    return Script(match=(*coder, *judge, *tools), by_digest=True)


class Runner:
    """Starts jobs in processes that can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = {
            "model": "openai/scripted",
            "rounds": ROUNDS,
            "plateau_rounds": 0,
            "price": "1.5,6",
            "budget_usd": 100.0,  # of which calls that a kill cut off use up their worst case
            "roofline_target": 1.0,
        }
        (folder / "op.py").write_text(OP)
        self.errors = (folder / "stderr").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killable_jobs"],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "OPENAI_API_KEY": "none", "HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        assert self._said() == "ready"

    def start(self, api_base: str, data: Path, strategy: str, action: str) -> int:
        settings = {**self.settings, "data_dir": str(data), "api_base": api_base, "strategy": strategy}
        command = {"action": action, "op": str(self.folder / "op.py"), "settings": settings}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return int(self._said())

    def end(self) -> int:
        return int(self._said().removeprefix("exited "))

    def _said(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.said_wrong()
        return line

    def said_wrong(self) -> str:
        return (self.folder / "stderr").read_text()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """One for all tests: it imports for seconds, and each job is a process of its own all the same."""
    with contextlib.closing(Runner(tmp_path_factory.mktemp("runner"))) as opened:
        yield opened


def state(data: Path) -> dict[str, Any]:
    """What the store says of the job."""
    store = open_store(load_settings(data_dir=data))
    try:
        job, events = get_job(store, 1), read_full_events(store, 1)
    finally:
        store.close()
    hashes = [event.data["hash"] for event in events if event.kind == "best"]
    evaluated = [event.data["candidate_hash"] for event in events if event.kind == "evaluated"]
    started = {(event.data["key"], event.data["attempt"]) for event in events if event.kind == "llm_started"}
    settled = {(event.data["key"], event.data["attempt"]) for event in events if event.kind == "llm_call"}
    return {
        "status": str(job.status),
        "stop": job.stop_reason,
        "rounds": job.rounds_done,
        "best": hashes[-1] if hashes else None,
        "bests": len(hashes),
        "evaluated": Counter(evaluated),
        "cost_usd": job.cost_usd,
        "spent": resume_state_from_events(events).spent,
        "open_calls": len(started - settled),
        "replies": len(settled),
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_killed_jobs_lose_nothing_and_pay_for_nothing_twice(strategy: str, runner: Runner, tmp_path: Path) -> None:
    rng = random.Random(f"{strategy} 1")
    with start_llm_server(script()) as quiet:
        runner.start(quiet.url, tmp_path / "whole", strategy, "start")
        assert runner.end() == 0, runner.said_wrong()
        expected, calls = state(tmp_path / "whole"), quiet.stats()["replies"]
    assert expected["status"] == "done"
    kills = jobs = 0
    while kills < KILLS:
        jobs += 1
        data = tmp_path / f"killed{jobs}"
        with start_llm_server(script()) as server:
            action, killed_here = "start", 0
            while True:
                child = runner.start(server.url, data, strategy, action)
                if kills < KILLS:
                    time.sleep(rng.uniform(0.05, 0.5))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                status = runner.end()
                if status == 0:
                    break
                assert status == signal.SIGKILL, runner.said_wrong()
                kills, killed_here = kills + 1, killed_here + 1
                if (data / "kernelwright.db").exists() and _has_job(data):
                    action = "resume"
            stats = server.stats()
        found = state(data)
        for same in ("status", "stop", "rounds", "best", "bests", "evaluated", "replies"):
            assert found[same] == expected[same], f"{same} after {killed_here} kills"
        _check_bill(found, stats, calls)
        print(
            f"{strategy}: {killed_here} kills, {calls} calls, {found['open_calls']} in flight at a kill,"
            f" {stats['replies'] - calls} of them answered twice; ${found['cost_usd']:.6f} spent,"
            f" at most ${found['spent'].unsettled_usd:.6f} more"
        )


def _has_job(data: Path) -> bool:
    store = open_store(load_settings(data_dir=data))
    try:
        get_job(store, 1)
        return True
    except Exception:
        return False
    finally:
        store.close()


def _check_bill(found: dict[str, Any], stats: dict[str, Any], calls: int) -> None:
    """The server's books against the job's: the same but for calls that a kill cut off."""
    spent = found["spent"]
    assert calls <= stats["replies"] <= calls + found["open_calls"], "none twice beyond those in flight"
    billed_usd = stats["prompt_tokens"] * 1.5e-6 + stats["completion_tokens"] * 6e-6
    assert found["cost_usd"] == pytest.approx(spent.cost_usd)
    assert spent.cost_usd <= billed_usd + 1e-9
    assert billed_usd <= spent.cost_usd + spent.unsettled_usd + 1e-9
    if stats["replies"] == calls:
        assert spent.cost_usd == pytest.approx(billed_usd)
        assert spent.tokens == stats["prompt_tokens"] + stats["completion_tokens"]
