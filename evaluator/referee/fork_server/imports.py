"""Imports before any foreign code: torch is imported once, so that every runner is forked with torch in place."""

import contextlib
import gc
import importlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..protocol.gpu_checks import gpu_of
from ..runner.platforms.load import load_imports


@contextlib.contextmanager
def _nothing_is_garbage() -> Iterator[None]:
    """Suspend garbage collection during imports, because imported objects stay. It takes a seventh of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@_nothing_is_garbage()
def import_torch(platform: str) -> None:
    """Import the modules that runners need. No thread pool may start here, because a fork would break it.

    Args:
        platform: the platform whose settings torch reads when it is imported.

    Raises:
        RuntimeError: torch is imported already, and would not read these settings any more.
    """
    # Where Triton is installed, TorchInductor asks it about GPUs, which takes a second and changes what it does. Only
    # a platform whose own imports need it puts it in place of this.
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]
    load_imports(platform).before_torch()
    affinity = os.sched_getaffinity(0)
    # Read by torch when it is imported. One compile worker, because a pool would run beside timed calls.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch
    import torch.profiler
    import torch.utils.flop_counter  # noqa: F401

    load_imports(platform).after_torch()

    # Importing may have bound this thread to one processor. Processes that are forked here may run on any.
    os.sched_setaffinity(0, affinity)

    # A missing module would otherwise be looked up in the folder that this process was started from.
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]  # noqa: PTH109


@_nothing_is_garbage()
def import_compiler(platform: str) -> None:
    """Import all modules that torch.compile needs before it sees a model, so that no runner spends time on that."""
    import torch
    import torch._dynamo
    import torch._inductor.async_compile
    import torch._inductor.codecache
    import torch._inductor.compile_fx
    import torch._inductor.cpp_builder
    import torch.utils.cpp_extension

    class Warming(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3))
            self.calls: torch.Tensor
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            scaled = torch.tanh(self.scale * x)
            return scaled * 2 if float(scaled.sum()) > 0 else scaled + x

    with contextlib.suppress(ImportError):
        # Dynamo uses it where it is installed; it must not start a thread in what will be forked.
        importlib.import_module("tqdm").tqdm.monitor_interval = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
        load_imports(platform).prepare_compiler_folder(Path(folder) / "inductor")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        torch._inductor.codecache.torch_key()  # a hash over Inductor's files
        load_imports(platform).look_up_compiler()
        if gpu_of(platform)[1]:
            return  # a compilation asks the GPU, and one that sees none asks CUDA's runtime and switches guards off
        # Too small a tensor for more than one thread, and no code is generated: no pool is started.
        torch.compile(lambda x: x.relu() + 1, backend="aot_eager")(torch.ones(3))
        # A module, a number that is read of a tensor, another shape: what dynamo builds for these is shared, too.
        compiled = torch.compile(Warming(), backend="eager")
        with torch.no_grad():
            for rows in (1, 2):
                compiled(torch.ones(rows, 3))
        torch._dynamo.reset()


def start_fork_server(platform: str, *, compiler: bool = False) -> tuple[int, socket.socket]:
    """Fork a fork server (`server.serve`).

    Returns:
        Its pid, and the connection to it.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become_fork_server(theirs, platform, compiler=compiler)
    theirs.close()
    return pid, ours


def _become_fork_server(sock: socket.socket, platform: str, *, compiler: bool) -> None:
    """Serve as a fork server and never return. The result channel and the request are closed before that."""
    from . import server

    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.closerange(3, sock.fileno())
        os.closerange(sock.fileno() + 1, 4096)
        server.serve(sock, platform, compiler=compiler)
    finally:
        os._exit(0)
