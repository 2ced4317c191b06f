"""What a round costs besides the model and the evaluation: graph, prompts, parsing, ledger, store.

Run: python -m benchmarks.round_overhead [--rounds 60]
Writes benchmarks/results/round_overhead.md. The model is the scripted server on this machine. The evaluator answers
after a fixed time from the candidate's text (tests/support/killable_jobs.py). Both are subtracted, all else is real.
Each job is then resumed, which answers its rounds from the record.
"""

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agents.llm.client import open_llm
from agents.llm.models import import_litellm
from agents.protocols import Event
from service.cancellation import CancelToken
from service.database import open_store
from service.jobs import local
from service.jobs import run as job_run
from service.mock_llm import start_llm_server
from service.settings import load_settings
from tests.service.jobs.test_killed import STRATEGIES, script
from tests.support.commands import OP
from tests.support.killable_jobs import EVALUATION_S, opened_quickly

RESULTS = Path(__file__).parent / "results"


def measure(strategy: str, rounds: int, api_base: str, folder: Path) -> tuple[list[float], list[float]]:
    """Seconds that each round took besides calls and evaluations, at first and when the job is run again.

    The job is interrupted just before its end and resumed: all its rounds are then answered from the record. The first
    round of each run is left out; it also opens what all need.
    """
    settings = load_settings(
        data_dir=folder / strategy,
        api_base=api_base,
        model="openai/scripted",
        strategy=strategy,
        rounds=rounds,
        plateau_rounds=0,
        roofline_target=1.0,
    )
    (folder / "op.py").write_text(OP)
    store = open_store(settings)
    marks: list[float] = []
    waited: list[float] = [0.0]

    def observe(event: Event) -> None:
        if event.kind == "llm_call":
            waited[-1] += float(event.data["latency_s"])  # type: ignore[arg-type]
        elif event.kind == "evaluated" and event.data["repeat_of_round"] is None:
            waited[-1] += EVALUATION_S
        elif event.kind == "round_done":
            marks.append(time.perf_counter())
            waited.append(0.0)
        elif event.kind == "job_stopped":
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        local.optimize(str(folder / "op.py"), settings=settings, store=store, observe=observe, cancel=CancelToken())
    again: list[float] = []

    def observe_again(event: Event) -> None:
        if event.kind == "round_done":
            again.append(time.perf_counter())

    local.resume(1, settings=settings, store=store, observe=observe_again, cancel=CancelToken())
    store.close()
    first = [after - before - wait for before, after, wait in zip(marks, marks[1:], waited[1:], strict=False)]
    return first, [after - before for before, after in itertools.pairwise(again)]


def shown(seconds: list[float]) -> str:
    """The cells of a table: how many, the median, and what 95 % stay below."""
    found = sorted(seconds)
    high = found[min(len(found) - 1, int(0.95 * len(found)))]
    return f"{len(found)} | {statistics.median(found) * 1e3:.1f} | {high * 1e3:.1f}"


def main() -> int:
    """Measure each strategy and write the table. Rounds that models write side by side are left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    import_litellm()
    patched: Any = local
    patched.open_evaluation_context = opened_quickly
    patched = job_run
    patched.open_models = lambda settings, context, **_: open_llm(api_base=settings.api_base)
    lines = ["| strategy | run | rounds | median ms | 95 % ms |", "|---|---|---|---|---|"]
    with start_llm_server(script()) as server, tempfile.TemporaryDirectory() as folder:
        for strategy in (name for name in STRATEGIES if name in ("judge", "contrastive", "tools")):
            first, again = measure(strategy, options.rounds, server.url, Path(folder))
            lines += [f"| {strategy} | first | {shown(first)} |", f"| {strategy} | resumed | {shown(again)} |"]
    command = f"Command: `python -m benchmarks.round_overhead --rounds {options.rounds}`"
    text = f"# What a round costs besides the model and the evaluation\n\n{command}\n\n"
    (RESULTS / "round_overhead.md").write_text(text + "\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
