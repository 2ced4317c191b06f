"""What a round costs besides the model and the evaluation: graph, prompts, parsing, ledger, store.

Run: PYTHONPATH=. python benchmarks/round_overhead.py [--rounds 60]
Writes benchmarks/results/round_overhead.md. The model is the scripted server on this machine, the evaluator answers
after a fixed time from the candidate's text (tests/killing.py); both are subtracted, all else is real.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agents.litellm_setup import import_litellm
from agents.llm import open_llm
from agents.ports import Event
from service import optimize
from service.llm_server import start_llm_server
from service.settings import load_settings
from service.stopping import Stop
from service.store import open_store
from tests.killing import EVALUATION_S, opened_quickly
from tests.test_jobs_killed import OP, STRATEGIES, script

RESULTS = Path(__file__).parent / "results"


def measure(strategy: str, rounds: int, api_base: str, folder: Path) -> list[float]:
    """Seconds that each round took besides calls and evaluations; of rounds side by side, their share."""
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

    optimize.optimize(str(folder / "op.py"), settings=settings, store=store, observe=observe, stop=Stop())
    store.close()
    # The first round also opens the connection.
    return [after - before - wait for before, after, wait in zip(marks, marks[1:], waited[1:], strict=False)]


def main() -> int:
    """Measure each strategy and write the table. Rounds that models write side by side are left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    import_litellm()
    seats: Any = optimize
    seats.open_bench = opened_quickly
    seats.open_models = lambda settings, bench, **_: open_llm(api_base=settings.api_base)
    lines = ["| strategy | rounds | median ms | 95 % ms |", "|---|---|---|---|"]
    with start_llm_server(script()) as server, tempfile.TemporaryDirectory() as folder:
        for strategy in (name for name in STRATEGIES if name in ("judge", "contrastive", "tools")):
            found = sorted(measure(strategy, options.rounds, server.url, Path(folder)))
            high = found[min(len(found) - 1, int(0.95 * len(found)))]
            lines.append(f"| {strategy} | {len(found)} | {statistics.median(found) * 1e3:.1f} | {high * 1e3:.1f} |")
    command = f"Command: `python benchmarks/round_overhead.py --rounds {options.rounds}`"
    text = f"# What a round costs besides the model and the evaluation\n\n{command}\n\n"
    (RESULTS / "round_overhead.md").write_text(text + "\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
