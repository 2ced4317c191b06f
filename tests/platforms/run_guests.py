"""Runs candidates of an emulated platform without a referee: `__main__` of a package that a sandbox executes.

It gets a platform's name and, beside it, `cases.json`: an op and a candidate by name. It prints for each case what
ended the guest, or else whether its outputs are right at each vector length, its counts, and what eager would take.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent))

import torch

from evaluator.referee.protocol import kernel_program as kp
from evaluator.referee.protocol.instructions import VLENS
from evaluator.referee.protocol.tensors import DTYPES
from evaluator.referee.runner.platforms import operator_counts
from evaluator.referee.runner.platforms.emulated import guest, program

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def loaded(source: str) -> ModuleType:
    """The module of a file's text."""
    module = ModuleType("case")
    exec(source, module.__dict__)
    return module


def answer(machine: guest.Machine, table: operator_counts.CountTable, op: str, source: str) -> dict[str, object]:
    """What one case shows."""
    torch.manual_seed(1)
    reference = loaded(op)
    given, arguments = reference.get_inputs(), reference.get_init_inputs()
    model = reference.Model(*arguments)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    states = {name: value.detach() for name, value in model.state_dict().items()}
    described: list[program.Builder] = []
    sys.modules[machine.instruction_set.name] = program.module(machine.instruction_set.name, lambda: described[0])
    candidate = loaded(source).ModelNew(*arguments)
    forms = {name: (NAMES[value.dtype], tuple(value.shape)) for name, value in states.items()}
    described.append(program.Builder(machine.instruction_set.name, forms))
    arrays = [described[0].add(kp.Input(i), NAMES[x.dtype], tuple(x.shape)) for i, x in enumerate(given)]
    numbers: list[int] = []
    rows: list[tuple[str, tuple[int, ...]]] = []
    described[0].spec(candidate(*arrays), numbers, rows)
    made = described[0]
    whole = kp.Program(made.source, made.flags, tuple(made.arrays), tuple(made.launches), tuple(numbers))
    read = [given[each.number] if isinstance(each, kp.Input) else states[each.name]
            for each in made.arrays if not isinstance(each, kp.Made)]  # fmt: skip
    contents = [value.contiguous().view(-1).view(torch.uint8).clone() for value in read]
    try:
        layout, ended = machine.run(whole, contents, VLENS, timeout_s=10)
    except guest.GuestError as error:
        return {"kind": error.kind, "message": str(error)}
    eager = operator_counts.OperatorCounter(operator_counts.OperatorCosts(table))
    with torch.no_grad(), eager:
        value = model(*given)
    expected = value if isinstance(value, list | tuple) else [value]
    right = []
    for each in ended:
        got = [
            each.arena[placed.offset : placed.offset + placed.nbytes].view(DTYPES[dtype]).reshape(shape)
            for placed, (dtype, shape) in zip((layout.arrays[n] for n in numbers), rows, strict=True)
        ]
        right.append(all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(got, expected, strict=True)))
    kinds = {vlen: each.counts for vlen, each in zip(VLENS, ended, strict=True)}
    counted = {vlen: counts["total"] for vlen, counts in kinds.items()}
    return {"right": right, "counted": counted, "kinds": kinds, "eager": eager.total}


def main() -> None:
    """Answer every case."""
    here, name = Path(__file__).parent, sys.argv[1]
    base = f"evaluator.referee.runner.platforms.{name}"
    instruction_set = getattr(importlib.import_module(f"{base}.instruction_set"), name.upper())
    table = importlib.import_module(f"{base}.instruction_table").INSTRUCTION_TABLE
    with tempfile.TemporaryDirectory() as folder:
        machine = guest.Machine(instruction_set, Path(folder))
        cases = json.loads((here / "cases.json").read_text())
        print(json.dumps({case: answer(machine, table, *texts) for case, texts in cases.items()}))


if __name__ == "__main__":
    main()
