"""Run by test_candidates in a process of its own: compares candidates with their references.

Reads `[[name, reference path, candidate path], …]` from standard input and writes `{name: [problem, …]}`. Each
candidate is compared in a forked child, which has torch imported and may end as it likes.
"""

import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("loaded", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors_differ(kind: str, expected: Any, given: Any) -> list[str]:
    if not isinstance(expected, torch.Tensor):
        return [] if expected == given and type(expected) is type(given) else [f"{kind}: {given!r}, not {expected!r}"]
    if (expected.shape, expected.dtype, expected.stride()) != (given.shape, given.dtype, given.stride()):
        return [f"{kind}: {given.shape} {given.dtype} {given.stride()}, not {expected.shape} {expected.stride()}"]
    if expected.dtype.is_floating_point:
        tolerance = 2e-2 if expected.dtype in (torch.bfloat16, torch.float16) else 2e-5
        same = torch.allclose(expected, given, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = torch.equal(expected, given)
    return [] if same else [f"{kind}: values differ"]


def compare(reference_path: str, candidate_path: str) -> list[str]:
    task, candidate = load(reference_path), load(candidate_path)
    torch.manual_seed(1)
    model = task.Model(*task.get_init_inputs())
    torch.manual_seed(1)
    new = candidate.ModelNew(*task.get_init_inputs())
    problems = []
    if list(model.state_dict()) != list(new.state_dict()):
        problems.append("parameters: other names")
    for name, value in model.state_dict().items():
        problems += tensors_differ(f"initial {name}", value, new.state_dict()[name])
    new.load_state_dict(model.state_dict())
    groups = getattr(task, "get_input_groups", lambda: [task.get_inputs()])()
    for inputs in groups:
        mine = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, inputs)
        for _ in range(2):  # buffers change from call to call
            with torch.no_grad():
                expected, given = model(*inputs), new(*mine)
            first, tree = pytree.tree_flatten(expected)
            second, own_tree = pytree.tree_flatten(given)
            if tree != own_tree:
                problems.append(f"structure: {own_tree}, not {tree}")
                break
            for kind, before, after in (("output", first, second), ("input", inputs, mine)):
                for a, b in zip(pytree.tree_leaves(before), pytree.tree_leaves(after), strict=True):
                    problems += tensors_differ(kind, a, b)
        for name, value in model.state_dict().items():
            problems += tensors_differ(f"final {name}", value, new.state_dict()[name])
    return problems


def compare_in_a_child(reference_path: str, candidate_path: str) -> list[str]:
    """What is wrong with a candidate; that it ended its process is a problem like any other."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(2)  # here, since a pool of threads does not survive a fork
        try:
            problems = compare(reference_path, candidate_path)
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        with os.fdopen(writing, "w") as stream:
            json.dump(problems, stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return list(json.loads(said)) if said else ["it ended its process"]


def main() -> None:
    results = {name: compare_in_a_child(*paths) for name, *paths in json.load(sys.stdin)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
