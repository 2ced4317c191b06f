"""Run as `python -m ... FOLDER DEVICE WARM_CALLS`: one call of a candidate in a process of its own, which is watched.

Nsight Compute and compute-sanitizer watch what they have started themselves. This process loads the candidate from
the runner's file, out of the same build folder, and gives it the runner's inputs and state. The call that counts comes
after untimed ones, between cudaProfilerStart and cudaProfilerStop.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..imports import OnGpuImports

FOREIGN, INIT, INPUTS, STATE = "candidate", "init.pt", "inputs.pt", "state.pt"
"""The module that the candidate is, and the files in FOLDER that hold what it is given."""


def main(folder: Path, device: str, warm_calls: int) -> None:
    """Load the candidate and call it."""
    imports = OnGpuImports(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    imports.before_torch()
    import torch

    from .... import model_state

    imports.after_torch()
    module = _imported(folder.parent / f"{FOREIGN}.py")
    torch.manual_seed(0)
    model = module.ModelNew(*_load(folder / INIT, "cpu"))
    state = _load(folder / STATE, "cpu")
    own = model_state.all_tensors(model)
    with torch.no_grad():
        for name, value in state["tensors"].items():
            if name in own and own[name].shape == value.shape:
                own[name].copy_(value)
        if isinstance(model, torch.nn.Module):
            model.to(device).train(state["training"])
        inputs = _load(folder / INPUTS, device)
        for _ in range(warm_calls):
            model(*inputs)
        _counted(lambda: model(*inputs), device)


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(FOREIGN, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[FOREIGN] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load(path: Path, device: str) -> Any:
    """What the runner has written. It may hold values of any type; whoever wrote it runs here in any case."""
    import torch

    return torch.load(path, map_location=device, weights_only=False)


def _counted(call: Callable[[], object], device: str) -> None:
    import torch

    if device != "cuda":
        call()
        return
    profiler: Any = torch.cuda.profiler
    torch.cuda.synchronize()
    profiler.start()
    call()
    torch.cuda.synchronize()
    profiler.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
