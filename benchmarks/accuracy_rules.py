"""What each accuracy rule lets through on the starter suite: ours, ours without its input families, and torch.allclose.

Run: python -m benchmarks.accuracy_rules [--only NAME ...]
Writes benchmarks/results/accuracy_rules.md. It judges tensors that the built-in tasks make in this process; nothing
foreign runs, and nothing is timed.
"""

import argparse
import math
import platform
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.referee.correctness import accuracy
from evaluator.referee.correctness.error_norms import own_error
from evaluator.referee.correctness.tolerances import Tolerances
from evaluator.referee.protocol import input_families
from evaluator.referee.protocol.traits import Traits
from evaluator.referee.runner import oracle, perturb
from tasks.declarations import declarations_of
from tasks.suites import load_suite

RESULTS = Path(__file__).parent / "results" / "accuracy_rules.md"
Model = Callable[..., Any]
Outputs = list[torch.Tensor]


@dataclass(frozen=True)
class Op:
    """A reference with its generator of inputs, and what its task declares."""

    model: Model
    get_inputs: Callable[[], list[Any]]
    declared: dict[str, float]
    domains: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: str) -> "Op":
        """The op of a trusted task: its source is executed here."""
        module = types.ModuleType("task")
        exec(compile(source, "<task>", "exec"), vars(module))  # noqa: S102 - built-in tasks alone
        torch.manual_seed(0)
        declared = declarations_of(source)
        model = module.Model(*module.get_init_inputs())
        return cls(model, module.get_inputs, dict(declared.tolerance), declared.domain)


@dataclass(frozen=True)
class Given:
    """One family's inputs, with what the reference and the oracle make of them."""

    family: str
    inputs: list[Any]
    reference: Outputs
    oracle: list[torch.Tensor | None]
    tolerances: Tolerances


def given(op: Op, seed: int = 1) -> Iterator[Given]:
    """The families that the referee would judge the op by, made in the same way."""
    tolerances, without = None, set[int]()
    for number, family in enumerate(input_families.FAMILIES):
        inputs, changed = perturb.make(op, family, seed + number, op.domains)
        dtypes = [str(value.dtype).removeprefix("torch.") for value in inputs if isinstance(value, torch.Tensor)]
        if input_families.skipped(family, op.domains, dtypes) or not changed:
            continue
        if family == input_families.TIES and tolerances is not None and tolerances.traits.unstable_ties:
            continue
        try:
            reference = call(op.model, inputs)
        except (IndexError, RuntimeError):
            if family == input_families.FAMILIES[0]:
                raise
            continue  # an index may be out of range: then a family says nothing
        answer = oracle.evaluate(op.model, copy_of(inputs))
        wide = tensors(answer["outputs"])
        if tolerances is None:
            tolerances = Tolerances(Traits.from_json(answer["traits"]), op.declared)
            without = {i for i, (r, o) in enumerate(zip(reference, wide, strict=True)) if _far(r, o, tolerances)}
        kept = [None if i in without else o for i, o in enumerate(wide)]
        hopeless = any(o is not None and _far(r, o, tolerances) for r, o in zip(reference, kept, strict=True))
        finite = all(float(torch.isfinite(r).float().mean()) >= 0.5 for r in reference)
        if family in input_families.NAN_REFUSES and any(bool(torch.isnan(r).any()) for r in reference):
            continue
        if family == input_families.NON_FINITE or (finite and not hopeless):
            yield Given(family, inputs, reference, kept, tolerances)


def _far(reference: torch.Tensor, wide: torch.Tensor, tolerances: Tolerances) -> bool:
    if not accuracy.is_rounded(reference):
        return False
    limit = tolerances.oracle_limit(str(reference.dtype).removeprefix("torch."))
    return own_error(reference, wide).distance > limit


def ours(candidate: Model, case: Given) -> str:
    """Why our rule refuses a candidate on these inputs; empty if it does not."""
    got = call(candidate, case.inputs)
    for number, (c, r, o) in enumerate(zip(got, case.reference, case.oracle, strict=True)):
        if c.shape != r.shape or c.dtype != r.dtype:
            return "form"
        wrong = accuracy.compare(
            f"[{number}]",
            c,
            r,
            o,
            case.tolerances.on(case.family),
            slack=input_families.slack(case.family),
            nan_for_inf=case.family == input_families.NON_FINITE,
        ).wrong
        if wrong is not None:
            return wrong.message
    return ""


def allclose(candidate: Model, case: Given, tolerance: float | None = None) -> bool:
    """Whether `torch.allclose` accepts a candidate on these inputs; by KernelBench's tolerances unless one is given."""
    pairs = list(zip(call(candidate, case.inputs), case.reference, strict=True))
    if tolerance is None:
        return all(accuracy.kernelbench(c, r) for c, r in pairs)
    return all(torch.allclose(c, r, atol=tolerance, rtol=tolerance) for c, r in pairs)


def call(model: Model, inputs: list[Any]) -> Outputs:
    """The outputs of one call on a copy of the inputs."""
    with torch.no_grad():
        return tensors(model(*copy_of(inputs)))


def copy_of(inputs: list[Any]) -> list[Any]:
    """The inputs, safe from being changed."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]


def tensors(value: Any) -> Outputs:
    """The tensors of an output, in order."""
    return [value] if isinstance(value, torch.Tensor) else [item for part in value for item in tensors(part)]


# Wrong candidates, each made of the reference.


class _Rounding(TorchDispatchMode):
    """Rounds what every operator returns: intermediate results kept in a narrower type."""

    def __init__(self, narrow: torch.dtype) -> None:
        super().__init__()
        self.narrow = narrow

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        values = out if isinstance(out, tuple) else (out,)
        rounded = tuple(rounded_to(value, self.narrow) if not func.is_view else value for value in values)
        return rounded if isinstance(out, tuple) else rounded[0]


class _HalfSums(TorchDispatchMode):
    """Adds up in float16, 32 terms at a time: sums, means, softmax's own and matrix products."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.rpartition("::")[2]
        if name in ("mm", "bmm"):
            return _half_product(args[0], args[1])
        if name == "addmm":
            return _half_product(args[1], args[2]) + args[0]
        if name in ("sum", "mean") and args[0].is_floating_point():
            out = func(*args, **(kwargs or {}))
            return _half_sum(args[0], args[1] if len(args) > 1 else None, out, mean=name == "mean")
        if name == "convolution":
            parts = [
                func(args[0][:, i : i + 1], args[1][:, i : i + 1], None, *args[3:]) for i in range(args[1].shape[1])
            ]
            total = parts[0]
            for part in parts[1:]:
                total = rounded_to(total + part, torch.float16)
            return total if args[2] is None else total + args[2][:, None, None]
        if name in ("_softmax", "_log_softmax", "cumsum", "native_group_norm", "native_layer_norm", "avg_pool2d"):
            out = func(*args, **(kwargs or {}))
            values = out if isinstance(out, tuple) else (out,)
            halves = tuple(rounded_to(value, torch.float16) for value in values)
            return halves if isinstance(out, tuple) else halves[0]
        return func(*args, **(kwargs or {}))


def rounded_to(value: Any, narrow: torch.dtype) -> Any:
    """A float32 tensor through a narrower type and back; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.float64):
        return value
    return value.to(narrow).to(value.dtype)


def _half_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for start in range(0, left.shape[-1], 32):
        total = rounded_to(total + left[..., start : start + 32] @ right[..., start : start + 32, :], torch.float16)
    return total


def _half_sum(value: torch.Tensor, dim: Any, out: torch.Tensor, *, mean: bool) -> torch.Tensor:
    dims = list(range(value.dim())) if dim is None or dim == [] else [d % value.dim() for d in _list(dim)]
    kept = [d for d in range(value.dim()) if d not in dims]
    rows = value.permute(*kept, *dims).reshape(*(value.shape[d] for d in kept), -1)
    total = torch.zeros(rows.shape[:-1])
    for start in range(0, rows.shape[-1], 32):
        total = rounded_to(total + rows[..., start : start + 32].sum(-1), torch.float16)
    return (total / rows.shape[-1] if mean else total).reshape(out.shape)


def _list(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _filled(fill: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Op], Model]:
    def make(op: Op) -> Model:
        return lambda *inputs: [fill(value) for value in tensors(op.model(*inputs))]

    return make


def _constant(value: torch.Tensor) -> torch.Tensor:
    if value.numel() == 1:
        return torch.ones_like(value)
    finite = value[torch.isfinite(value)]
    return torch.full_like(value, float(finite.mean()) if finite.numel() else 0.0)


def _last_row_skipped(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    if value.dim() > 0:
        value[-1] = 0.0
    return value if value.dim() > 0 else value * 0.999


def _replay(op: Op) -> Model:
    kept: list[Outputs] = []

    def replay(*inputs: Any) -> Outputs:
        if not kept:
            kept.append(tensors(op.model(*inputs)))
        return kept[0]

    return replay


def _inputs_in(narrow: torch.dtype) -> Callable[[Op], Model]:
    return lambda op: lambda *inputs: op.model(*(rounded_to(value, narrow) for value in inputs))


def _under(mode: Callable[[], TorchDispatchMode]) -> Callable[[Op], Model]:
    def make(op: Op) -> Model:
        def run(*inputs: Any) -> Any:
            with mode():
                return op.model(*inputs)

        return run

    return make


def truncated_to_tf32(value: Any) -> Any:
    """A float32 tensor with 10 bits of mantissa, as tensor cores read it."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return (value.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _up_to_8(value: Any) -> Any:
    return value.clamp(-8.0, 8.0) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _without_nan(value: Any) -> Any:
    return value.nan_to_num(0.0, math.inf, -math.inf) if isinstance(value, torch.Tensor) else value


WRONG: dict[str, Callable[[Op], Model]] = {
    "zeros": _filled(torch.zeros_like),
    "a constant": _filled(_constant),
    "first output replayed": _replay,
    "inputs in bfloat16": _inputs_in(torch.bfloat16),
    "inputs in TF32": lambda op: lambda *inputs: op.model(*map(truncated_to_tf32, inputs)),
    "all in bfloat16": _under(lambda: _Rounding(torch.bfloat16)),
    "all in float16": _under(lambda: _Rounding(torch.float16)),
    "sums in float16": _under(_HalfSums),
    "last row left out": _filled(_last_row_skipped),
    "right up to 8": lambda op: lambda *inputs: op.model(*(_up_to_8(value) for value in inputs)),
    "blind to NaN": lambda op: lambda *inputs: op.model(*(_without_nan(value) for value in inputs)),
}
RULES = ("ours", "ours, as generated", "allclose 1e-4", "allclose 1e-2")


@dataclass(frozen=True)
class Found:
    """Which rules accept a candidate, and the family that ours refused it on."""

    accepted: tuple[str, ...]
    refused_on: str = ""


def judge(op: Op, cases: list[Given], make: Callable[[Op], Model]) -> Found | None:
    """What each rule says; None where the candidate computes just what the reference does."""
    plain = [case for case in cases if case.family.startswith(input_families.GENERATED)]
    candidate = make(op)
    if all(_same(call(candidate, case.inputs), case.reference) for case in cases):
        return None
    candidate = make(op)
    accepted = [
        f"allclose {text}" for text in ("1e-4", "1e-2") if all(allclose(candidate, case, float(text)) for case in plain)
    ]
    refused_on = ""
    for case in cases:
        if ours(candidate, case):
            refused_on = case.family
            break
    if refused_on not in (input_families.GENERATED, input_families.OTHER_SEED):
        accepted.append("ours, as generated")
    if not refused_on:
        accepted.append("ours")
    return Found(tuple(accepted), refused_on)


def _same(got: Outputs, want: Outputs) -> bool:
    return all(torch.allclose(c, r, atol=0.0, rtol=0.0, equal_nan=True) for c, r in zip(got, want, strict=True))


def table(results: dict[str, dict[str, Found | None]]) -> str:
    """Markdown: a row for each wrong candidate with how many of the tasks each rule accepts it on."""
    head = ("wrong candidate", "tasks", *RULES, "accepted by ours on", "accepted by allclose 1e-4 on")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in WRONG:
        found = {task: judged for task, row in results.items() if (judged := row[name]) is not None}
        by = {rule: [task for task, judged in found.items() if rule in judged.accepted] for rule in RULES}
        cells = [name, str(len(found)), *(str(len(by[rule])) for rule in RULES)]
        lines.append(
            "| " + " | ".join([*cells, *(", ".join(by[rule]) or "-" for rule in ("ours", "allclose 1e-4"))]) + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judge and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    results = {}
    for task in load_suite("starter").tasks:
        if options.only and task.name not in options.only:
            continue
        op = Op.of(task.source)
        cases = list(given(op))
        assert not any(ours(op.model, case) for case in cases), task.name  # the reference itself
        results[task.name] = {name: judge(op, cases, make) for name, make in WRONG.items()}
        for name, found in results[task.name].items():
            print(task.name, name, found, flush=True)
    text = table(results)
    print(text)
    if not options.only:
        facts = (
            f"- date: {time.strftime('%Y-%m-%d')}\n- command: python -m benchmarks.accuracy_rules\n"
            f"- torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}\n"
        )
        RESULTS.write_text(f"# What each accuracy rule lets through\n\n{facts}\n{NOTE}\n{text}")


NOTE = """\
Each number: on how many of the starter suite's tasks (all float32) the rule accepts a wrong candidate. `tasks` leaves
out those where it returns just what the reference does (an op without sums has none to do in float16). The rule
`allclose 1e-4` is KernelBench's for float32, `allclose 1e-2` what it had before and still has for half types:
`torch.allclose` with atol = rtol, on inputs as the task generates them, two sets here. Ours compares with a float64
oracle, on all input families (`docs/accuracy.md`); its second column keeps to the task's own inputs. The references
themselves pass.
"""

if __name__ == "__main__":
    sys.exit(main())
