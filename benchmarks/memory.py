"""What memory across jobs gains: held-back ops with and without it, by the built-in and by a scripted model.

Run: python -m benchmarks.memory --data FOLDER [--part builtin] [--part scripted] [--rounds 5] [--held-back NAME ...]
     [--teach NAME ...]

First a store in FOLDER is taught by jobs without memory on other ops (resumable: ops with a job that is done are not
run again). Then each held-back op is optimized twice, each time from a copy of that store: with `--memory off` and with
`--memory similar`. Writes benchmarks/results/memory.json (resumable) and memory.md.

The part `builtin` runs `builtin/compiler` on the starter suite; it needs a quiet machine, since figures that are
`noisy` teach nothing. The part `scripted` runs ops of the platform `riscv`, whose figures are counted instructions, by
a model that answers from a script over HTTP.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agents.prompting.sections import parse, render
from service.mock_llm import Entry, Script, When, start_llm_server
from tasks.suites import load_suite

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
OPS = ROOT / "evaluator/platforms/riscv/prompts/exemplars"
HELD_BACK = {"builtin": ("add_layer_norm", "gelu_tanh", "masked_softmax"), "scripted": ("residual",)}
TEACH = {"scripted": ("math", "optimizer")}
RESIDUAL_OP = '''"""A residual connection: half of x is added.

Category: math
Dtype: float32
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x, residual):
        return residual + 0.5 * x


def get_inputs():
    return [torch.randn(64, 300), torch.randn(64, 300)]


def get_init_inputs():
    return []
'''
RESIDUAL_KERNEL = '''import riscv

SOURCE = r"""
#include <riscv_vector.h>

void add_half(const float *x, const float *residual, float *y, long n) {
    for (size_t vl; n > 0; n -= vl, x += vl, residual += vl, y += vl) {
        vl = __riscv_vsetvl_e32m8(n);
        vfloat32m8_t sum = __riscv_vle32_v_f32m8(residual, vl);
        __riscv_vse32(y, __riscv_vfmacc(sum, 0.5f, __riscv_vle32_v_f32m8(x, vl), vl), vl);
    }
}
"""

kernels = riscv.build(SOURCE)


class ModelNew:
    def __call__(self, x, residual):
        y = riscv.empty_like(x)
        kernels.add_half(x, residual, y, x.numel())
        return y
'''
MAX_PROMPT_CHARS = 6000  # of each section that is shown
ADVICE = {
    "bottleneck": "instructions an element",
    "evidence": ["speedup.eager"],
    "change": "longer groups of registers",
    "expected_speedup": 2.0,
    "stop": False,
    "lessons": [],
}
ABOUT = """# What memory across jobs gains

Each held-back op was optimized twice from the same store, which other ops' jobs had taught: without memory and with
`--memory similar` (docs/memory.md). *first*: the speedup over eager of the first round's candidate, as its trial has
it. *best*: that of the delivered one, as its proof has it, with the 95 % interval. *round*: the round of the delivered
one. *evaluations*: how many there were, the proof included. *told*: kernels and lessons.

The scripted model writes a kernel with groups of eight vector registers at once if its prompt says that these won, and
with single ones otherwise. So its rows show the way from earlier verdicts over the prompt to fewer rounds. What a
language model makes of such a prompt they do not show.

Written by `python -m benchmarks.memory`.
"""


def script(name: str) -> Script:
    """What the scripted model answers for an op: a kernel with single vector registers first, and one with groups of
    eight where it is to improve that, or where its prompt has the lesson that these won.
    """
    long = RESIDUAL_KERNEL if name == "residual" else (OPS / f"{name}.py").read_text()
    short = long.replace("m8", "m1")
    told = When(role="coder", request="write", contains='"feature": "lmul-8"')
    return Script(
        match=(
            Entry(text=long, fence="python", when=told, repeat=True),
            Entry(text=short, fence="python", when=When(role="coder", request="write"), repeat=True),
            Entry(text=long, fence="python", when=When(role="coder"), repeat=True),
            Entry(text=json.dumps(ADVICE), fence="json", when=When(role="judge"), repeat=True),
        )
    )


def optimize(part: str, name: str, data: Path, rounds: int, memory: str) -> dict[str, Any]:
    """One `kernelwright optimize`, as a user would run it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERNELWRIGHT_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "service.cli", "optimize", "--rounds", str(rounds), "--memory", memory, "--json"]
    server = None
    if part == "builtin":
        command += [f"starter/{name}", "--model", "builtin/compiler"]
    else:
        server = start_llm_server(script(name).model_dump(mode="json", exclude_none=True))
        environment["OPENAI_API_KEY"] = "none"
        op = OPS / f"{name}_task.py"
        if name == "residual":
            op = data / "residual_task.py"
            op.write_text(RESIDUAL_OP)
        command += [str(op), "--platform", "riscv", "--model", "openai/scripted"]
        command += ["--api-base", server.url]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    finally:
        if server is not None:
            server.close()
    told: dict[str, Any] = json.loads(done.stdout)
    return told | {"wall_s": time.perf_counter() - start}


def teach(part: str, names: tuple[str, ...], data: Path, rounds: int) -> None:
    """Jobs without memory on these ops, but for ops with one that is done."""
    for name in names:
        if not any(task == (name if part == "builtin" else f"{name}_task") for task, _ in jobs_in(data)):
            print(f"teaching: {name}", file=sys.stderr)
            optimize(part, name, data, rounds, "off")


def jobs_in(data: Path) -> list[tuple[str, int]]:
    """The tasks' names and the ids of the jobs in a store that are done."""
    if not (data / "kernelwright.db").exists():
        return []
    with sqlite3.connect(data / "kernelwright.db") as store:
        query = "SELECT tasks.name, jobs.id FROM jobs JOIN tasks ON tasks.id = jobs.task_id WHERE jobs.status = 'done'"
        return store.execute(query).fetchall()


def held_back(part: str, name: str, data: Path, rounds: int, memory: str) -> dict[str, Any]:
    """A job on a held-back op from a copy of the store, and what came of it."""
    copy = data / "runs" / f"{part}-{name}-{memory}"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    with sqlite3.connect(data / "kernelwright.db") as source, sqlite3.connect(copy / "kernelwright.db") as target:
        source.backup(target)
    for folder in ("devices", "builds", "peaks"):
        if (data / folder).exists():
            (copy / folder).symlink_to(data / folder)
    told = optimize(part, name, copy, rounds, memory)
    job = told["job"]["id"]
    with sqlite3.connect(copy / "kernelwright.db") as store:
        rows = store.execute(
            "SELECT e.round, e.speedup, e.tags FROM evaluations e JOIN candidates c ON c.id = e.candidate_id"
            " WHERE c.job_id = ? ORDER BY e.created_at",
            (job,),
        ).fetchall()
        event = store.execute("SELECT data FROM events WHERE job_id = ? AND kind = 'memory'", (job,)).fetchone()
        call = store.execute("SELECT messages FROM llm_calls WHERE job_id = ? ORDER BY id", (job,)).fetchone()
        best = store.execute(
            "SELECT c.round FROM candidates c JOIN evaluations e ON e.candidate_id = c.id WHERE e.id = ?",
            (told["job"]["best_evaluation_id"],),
        ).fetchone()
    memory_told = {"kernels": [], "lessons": []} if event is None else json.loads(event[0])
    return {
        "first": next((speedup for number, speedup, _ in rows if number == 1), None),
        "best": None if told["best"] is None else (told["best"]["speedup"] or {}).get("eager"),
        "tags": [] if told["best"] is None else told["best"]["tags"],
        "round": None if best is None else best[0],
        "rounds": told["job"]["rounds_done"],
        "evaluations": len(rows),
        "noisy": sum("noisy" in tags for _, _, tags in rows),
        "wall_s": round(told["wall_s"], 1),
        "kernels": [{k: v for k, v in each.items() if k != "source"} for each in memory_told["kernels"]],
        "lessons": memory_told["lessons"],
        "prompt": None if call is None else json.loads(call[0]),
    }


def report(results: dict[str, Any], load: str) -> str:
    """The results as Markdown: a table, the lessons, and a prompt."""
    lines = [ABOUT, load, ""]
    lines += ["| op | by | memory | told | first | best (95 %) | round | evaluations | s | tags |", "|---" * 10 + "|"]
    for key, each in results.items():
        part, name, memory = key.split("/")
        best = each["best"]
        shown = "none" if best is None else f"{best['value']:.2f} ({best['low']:.2f} to {best['high']:.2f})"
        first = "failed" if each["first"] is None else f"{each['first']:.2f}"
        told = f"{len(each['kernels'])}, {len(each['lessons'])}"
        rounds = f"{each['round']} of {each['rounds']}"
        noisy = f", {each['noisy']} of the evaluations noisy" if each["noisy"] else ""
        cells = (name, part, memory, told, first, shown, rounds, each["evaluations"], each["wall_s"])
        lines.append(f"| {' | '.join(map(str, cells))} | {', '.join(each['tags'])}{noisy} |")
    for key, each in results.items():
        if not each["kernels"] and not each["lessons"]:
            continue
        lines += ["", f"## What {key} was told", ""]
        lines += [
            f"- kernel for {kernel['task']} (likeness {kernel['likeness']:.2f}), {kernel['speedup']:.2f} times eager,"
            f" evaluation `{kernel['evaluation_id']}`"
            for kernel in each["kernels"]
        ]
        for lesson in each["lessons"]:
            gain = "refused" if lesson["gain"] is None else f"{lesson['gain']:.2f} times as fast"
            ids = ", ".join(f"`{each_id[:12]}`" for each_id in lesson["evidence"])
            lines.append(
                f"- {lesson['says']}: {gain}, faster in {lesson['faster']}, slower in {lesson['slower']} of"
                f" {lesson['jobs']} jobs, bound by {lesson['bound']}; evaluations {ids}"
            )
    shown_prompt = next((e["prompt"] for e in results.values() if e["prompt"] and (e["kernels"] or e["lessons"])), None)
    if shown_prompt is not None:
        sections = parse(str(shown_prompt[1]["content"]))
        lines += ["", "## What memory adds to a prompt", "", "To the system message:", ""]
        lines += [f"> {str(shown_prompt[0]['content']).rpartition(chr(10) * 2)[2]}", "", "To the user message:"]
        for name in ("known_lessons", "known_kernels"):
            if name in sections:
                text = render({name: sections[name][:MAX_PROMPT_CHARS]})
                lines += ["", *(f"    {line}".rstrip() for line in text.splitlines())]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Teach, run what is not in the results yet, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("builtin", "scripted"), action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--held-back", nargs="+")
    parser.add_argument("--teach", nargs="+")
    parser.add_argument("--load", default="", help="what else the machine did, for the report")
    args = parser.parse_args()
    kept = RESULTS / "memory.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for part in args.part or ("scripted", "builtin"):
        held = tuple(args.held_back or HELD_BACK[part])
        others = tuple(task.name for task in load_suite("starter").tasks if task.name not in held)
        rounds = args.rounds if part == "builtin" else 2
        data = args.data.absolute() / part
        data.mkdir(parents=True, exist_ok=True)
        teach(part, tuple(args.teach or TEACH.get(part, others)), data, rounds)
        for name in held:
            for memory in ("off", "similar"):
                key = f"{part}/{name}/{memory}"
                if key not in results:
                    print(key, file=sys.stderr)
                    results[key] = held_back(part, name, data, rounds, memory)
                    kept.write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "memory.md").write_text(report(results, args.load))


if __name__ == "__main__":
    main()
