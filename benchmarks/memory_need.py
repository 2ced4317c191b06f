"""How much memory an evaluation takes, against what one call of the task takes and gives: inputs, outputs, parameters.

Run: python -m benchmarks.memory_need [--mb 256 512] [--ops relu matmul …] [--memory-mb 12000] [--name now]
Writes benchmarks/results/memory_need.json (by name, op and size) and memory_need.md. It needs Docker.

Each candidate is its reference, so nothing but the evaluation itself takes memory. The figure is the most that the
kernel counted for the container; file pages that it could drop at any time are left out where it tells them. *times*:
what is beyond the predicted base, in multiples of inputs, outputs and parameters. What a call takes besides is part of
the need, and not of *predicted*.
"""

import argparse
import json
import math
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from evaluator.referee.pool.memory_need import BASE_BYTES, Need
from sandbox.docker.container import OWNER_LABEL
from sandbox.docker.engine import connect
from sandbox.docker.sandbox import DockerSandbox
from sandbox.owner import this_process
from tasks.build import task_from_source

RESULTS = Path(__file__).parent / "results"
HEADER = "import torch\nimport torch.nn as nn\n"
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
# Of each op: its parameters, the arguments, the result, and inputs that hold so many numbers together; those of `outer`
# hold few, and its result as many.
OPS: dict[str, tuple[str, str, str, str]] = {
    "relu": ("pass", "x", "torch.relu(x)", "torch.randn({rows}, 4096)"),
    "add": ("pass", "x, y", "x + y", "torch.randn({half}, 4096), torch.randn({half}, 4096)"),
    "outer": ("pass", "x", "x[:, None] * x[None, :]", "torch.randn({side})"),
    "sum": ("pass", "x", "x.sum(-1)", "torch.randn({rows}, 4096)"),
    "softmax": ("pass", "x", "torch.softmax(x, -1)", "torch.randn({rows}, 4096)"),
    "matmul": ("pass", "x, y", "x @ y", "torch.randn({rows}, 2048), torch.randn(2048, {rows})"),
    "linear": ("self.linear = nn.Linear(4096, 1024)", "x", "self.linear(x)", "torch.randn({rows}, 4096)"),
    "conv2d": (
        "self.conv = nn.Conv2d(16, 16, 3, padding=1)", "x", "self.conv(x)", "torch.randn({images}, 16, 256, 256)"
    ),
    "cross_entropy": (
        "pass", "x, y", "nn.functional.cross_entropy(x, y)",
        "torch.randn({rows}, 4096), torch.randint(0, 4096, ({rows},))",
    ),
}  # fmt: skip


def source_of(op: str, mb: int) -> str:
    """A task whose inputs take so many MiB, or of `outer` the result."""
    init, names, body, inputs = OPS[op]
    numbers = mb * (1 << 20) // 4
    sizes = {
        "rows": numbers // 4096,
        "half": numbers // 8192,
        "images": numbers // (16 << 16),
        "side": math.isqrt(numbers),
    }
    return HEADER + MODEL.format(init=init, names=names, body=body, inputs=inputs.format(**sizes))


class Watch:
    """Reads the kernel's account of this process's containers until it is left: the most that one of them took."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._client = connect()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        folders: list[Path] = []
        looked = 0.0
        while not self._over.wait(0.02):
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                mine = self._client.containers.list(
                    filters={"label": f"{OWNER_LABEL}={this_process().to_label()}"}, ignore_removed=True
                )
                folders = [found for each in mine if (found := _folder_of(str(each.id))) is not None]
            for folder in folders:
                with suppress(OSError, ValueError):
                    self.peak_bytes = max(self.peak_bytes, _used_bytes(folder))


def _folder_of(container: str) -> Path | None:
    for pattern in (f"memory/docker/{container}", f"system.slice/docker-{container}.scope", f"docker/{container}"):
        if (folder := Path("/sys/fs/cgroup") / pattern).exists():
            return folder
    return None


def _used_bytes(folder: Path) -> int:
    """What a control group holds, without file pages that are nobody's shared memory."""
    told = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    if "total_rss" in told:  # version 1
        return int(told["total_rss"]) + int(told["total_shmem"])
    return int(told["anon"]) + int(told["shmem"])


def measured(op: str, mb: int, memory_mb: int, sandbox: DockerSandbox) -> dict[str, Any]:
    """One evaluation: its verdict, and how much memory it took."""
    source = source_of(op, mb)
    task = task_from_source(source, name=op)
    candidate = source.replace("class Model(", "class ModelNew(")
    effort = Effort(wall_s=420.0, memory_mb=memory_mb, call_timeout_s=60.0, measure_budget_s=0.5)
    start = time.perf_counter()
    with Watch() as watch:
        found = evaluate(
            task,
            candidate,
            sandbox=sandbox,
            platform=load_platform("cpu"),
            effort=effort,
            on_progress=lambda text: print(f"  at most {watch.peak_bytes >> 20:,} MiB before: {text}", file=sys.stderr),
        )
    return {
        "verdict": found.verdict.value + (f"/{found.code}" if found.code else ""),
        "message": found.message[:300],
        "absent": dict(found.profile).get("absent"),
        **_sizes_mb(source),
        "peak_mb": watch.peak_bytes >> 20,
        "seconds": round(time.perf_counter() - start, 1),
        "memory_mb": memory_mb,
    }


def _sizes_mb(source: str) -> dict[str, int]:
    """What a call touches and what is predicted of it, in MiB. The op is our own: it may run here, without memory."""
    import torch

    module: dict[str, Any] = {}
    with torch.device("meta"), torch.no_grad():
        exec(compile(source, "op", "exec"), module)  # noqa: S102 - written above
        model, inputs = module["Model"](), module["get_inputs"]()
        parts = (inputs, [model(*inputs)], list(model.state_dict().values()))
    sizes = [sum(tensor.nbytes for tensor in tensors) for tensors in parts]
    return {"touched_mb": sum(sizes) >> 20, "need_mb": Need(*sizes).nbytes >> 20}


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    names = sorted({key.split("/")[0] for key in results}, reverse=True)
    lines = [__doc__.split("\n\n")[2].strip() if __doc__ else "", ""]
    head = " | ".join(f"{name}: peak MiB | times | verdict" for name in names)
    lines += [
        f"| op | MiB | in + out + parameters MiB | predicted MiB | {head} |",
        "| --- | --: | --: | --: " + "| --: | --: | --- " * len(names) + "|",
    ]
    for key in sorted({tuple(key.split("/")[1:]) for key in results}, key=lambda key: (key[0], int(key[1]))):
        row, touched, need = [], 0, 0
        for name in names:
            found = results.get("/".join((name, *key)))
            if found is None:
                row += ["", "", ""]
                continue
            touched, need = found["touched_mb"], found["need_mb"]
            times = (found["peak_mb"] - (BASE_BYTES >> 20)) / touched
            row += [f"{found['peak_mb']:,}", f"{times:.1f}", found["verdict"]]
        lines.append(f"| {key[0]} | {key[1]} | {touched:,} | {need:,} | {' | '.join(row)} |")
    return "# Memory of an evaluation\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--ops", nargs="+", default=list(OPS))
    parser.add_argument("--memory-mb", type=int, default=12000)
    parser.add_argument("--name", default="now")
    parser.add_argument("--out", type=Path, default=RESULTS / "memory_need.json")
    given = parser.parse_args()
    sandbox = DockerSandbox(load_platform("cpu").image().tag)
    try:
        for op in given.ops:
            for mb in given.mb:
                found = measured(op, mb, given.memory_mb, sandbox)
                print(op, mb, json.dumps(found), file=sys.stderr, flush=True)
                results = json.loads(given.out.read_text()) if given.out.exists() else {}
                results[f"{given.name}/{op}/{mb}"] = found
                given.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
                given.out.with_suffix(".md").write_text(table(results))
    finally:
        sandbox.close()


if __name__ == "__main__":
    main()
