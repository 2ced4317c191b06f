"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Op = Annotated[str, typer.Argument(metavar="OP", help="A .py file with an op, or suite/name of a task.")]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Platform = Annotated[str | None, typer.Option(help="What to optimize for; see `kernelwright platforms`.")]
SandboxName = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="docker|process", help="Where foreign code runs; process is no security boundary."
    ),
]
JobId = Annotated[int, typer.Argument(metavar="ID", help="The job's number, as `kernelwright jobs list` shows it.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE.py", help="Where to write the kernel; the report goes beside it.")
]
Domain = Annotated[
    Literal["finite"] | None,
    typer.Option(metavar="finite", help="Judge on finite inputs only; such results have a board of their own."),
]
Origin = Annotated[
    str | None,
    typer.Option("--from", metavar="PLATFORM", help="Translate a kernel of this platform, such as cuda."),
]
SourceFile = Annotated[
    Path | None, typer.Option("--source", metavar="FILE", help="The kernel to translate, if the op brings none.")
]
Memory = Annotated[
    Literal["off", "similar", "all"] | None,
    typer.Option(
        metavar="off|similar|all",
        help="What jobs are told of earlier ones: nothing; what these proved on similar ops; on the same op, too."
        " Default: similar; in batches off.",
    ),
]
Baselines = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="What kernels are timed against, by commas: eager, compile, compile-max-autotune, onnxruntime, openvino."
        " Default: eager,compile.",
    ),
]
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Do it through this server (token: KERNELWRIGHT_TOKEN).")
]
