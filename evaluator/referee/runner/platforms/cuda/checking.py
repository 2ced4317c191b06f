"""Makes recorded launches again, in a process that holds the kernels alone: in other orders and with sanitizers.

The process that runs this has loaded nothing of the candidate. It compiles the candidate's kernels to programs and runs
them; what they print is theirs, and counts against the candidate only, or together with outputs that are right.
"""

import json
import os
import re
import resource
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....protocol.framing import Message
from ....protocol.gpu_checks import NO_KERNEL, ORDERS, toolkit
from ..gpu import machine_code
from ..gpu.memory import RecordError, places_in, see_one_place
from ..gpu.runs import Run, RunLimit, held
from . import building, nvrtc, records, source
from .library import prepare

if TYPE_CHECKING:
    from ...main import Runner

_OPTIONS = {
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=77:report_signal_unsafe=0",
    "ASAN_OPTIONS": "detect_leaks=0:exitcode=78:detect_stack_use_after_return=0:allocator_may_return_null=1",
}
_FOUND = {77: "race", 78: "out_of_bounds"}
_REPORT_CHARACTERS = 3000
_LINE_CHARACTERS = 100  # of a line of source in a report


Compiler = Callable[
    [Sequence[nvrtc.Given], Sequence[str], Sequence[records.Launch], Sequence[str]], tuple[list[dict[str, Any]], str]
]
"""What a compiler for GPUs makes of sources, by architecture, or why it was not asked. It is given sources, kernels,
their launches and the architectures."""


def check(runner: "Runner", message: Message, dialect: building.Dialect, compiler: Compiler) -> Message:
    """Build the programs, run them, and reveal what the memory of outputs holds after each order.

    `message` holds the sources, as `tree` the inputs and records of an earlier call and of this one, the places of the
    outputs of both, and how long a run and all of them may take.
    """
    began = time.perf_counter()
    limit = RunLimit(float(message["run_s"]), time.monotonic() + float(message["all_s"]))
    before, inputs, *told = runner.decoded(message["tree"])
    told_before, told_last = (each.numpy().tobytes() for [each] in told)
    reply: dict[str, Any] = {"kernels": [], "forbidden": [], "runs": [], "error": "", "compiled": [], "compiler": ""}
    nothing = held(runner, [], {})
    try:
        earlier, record = records.read(told_before), records.read(told_last)
    except RecordError as error:
        return {**reply, **nothing, "error": str(error)}
    folder = Path.cwd() / "checks"
    folder.mkdir(exist_ok=True)
    path = folder / "record"
    path.write_bytes(told_last)
    launches = record.launches
    kernels = sorted({each.kernel for each in launches})
    given = [building.Sources(name, (), tuple(texts), {}, plain) for name, texts, plain in message["sources"]]
    forbidden = [
        [each.line, each.text]
        for one in given
        for text in one.cuda
        for each in (*source.rewrite(text).forbidden, *dialect.forbidden(text))
    ]
    reply |= {"kernels": kernels, "forbidden": forbidden}
    sources = [text for one in given for text in one.cuda]
    texts = [nvrtc.Given(text, one.plain) for one in given for text in one.cuda]
    compiled = partial(compiler, texts, [name for name in kernels if name != "?"], launches, message["architectures"])
    if not kernels or "?" in kernels:
        reply["compiled"], reply["compiler"] = compiled()
        reply["error"] = _unnamed(given) if kernels else NO_KERNEL
        return {**reply, **nothing}
    try:
        text = building.replay_text(given, kernels, dialect)
    except building.BuildError as error:
        reply["compiled"], reply["compiler"] = compiled()
        return {**reply, **nothing, "error": str(error)[:2000]}
    written = folder / "replay.cpp"
    written.write_text(text)
    places_before, places = places_in(message)
    try:
        records.see_that_nothing_else_worked(earlier, record, before, inputs)
        see_one_place(
            [earlier.regions.find(place) for place, _ in places_before],
            [record.regions.find(place) for place, _ in places],
        )
    except RecordError as error:
        reply["error"] = str(error)
    memory: dict[str, dict[tuple[int, int], bytes]] = {}

    build_s: dict[str, float] = {}

    def go(kind: str, orders: Sequence[str]) -> list[Run]:
        start = time.perf_counter()
        program = folder / kind
        try:
            see_that_it_can_run(kind)
            _compile(written, program, kind, dialect)
        except (building.BuildError, subprocess.SubprocessError) as error:
            return [Run(order, "not_run", str(error)[:2000], 0.0) for order in orders]
        finally:
            build_s[kind] = round(time.perf_counter() - start, 2)
        runs = []
        for order in orders:
            outputs = folder / f"{kind}-{order}"
            runs.append(_run(program, path, outputs, order, limit, len(launches), sources))
            if kind != "thread" and not runs[-1].found:
                memory[order] = _memory(outputs, places)
            outputs.unlink(missing_ok=True)
        return runs

    with ThreadPoolExecutor(3) as pool:
        in_bounds = pool.submit(go, "address", ORDERS)
        for_gpus = pool.submit(compiled)
        race_free = pool.submit(go, "thread", ("forward",))
    runs = in_bounds.result()
    # What one order has shown of addresses is told of them, and silence only where all were silent.
    address = next((run for run in runs if run.found), runs[0])
    if any(run.found in ("not_run", "timed_out") for run in runs):
        runs = go("plain", ORDERS)
    reply["compiled"], reply["compiler"] = for_gpus.result()
    thread = race_free.result()[0]
    reply["runs"] = [vars(run) for run in (*runs, replace(thread, what="thread"), replace(address, what="address"))]
    reply["build_s"] = build_s
    reply["seconds"] = round(time.perf_counter() - began, 2)
    return {**reply, **held(runner, places, memory)}


def see_that_it_can_run(kind: str) -> None:
    """Check that a program of this kind can reserve the addresses that it needs.

    Raises:
        BuildError: it cannot.
    """
    if kind != "plain" and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        raise building.BuildError(
            f"the {kind} sanitizer reserves terabytes of addresses, which this sandbox limits, because it may make no "
            "control group that limits memory; run it as root, or in Docker"
        )


def _unnamed(given: Sequence[building.Sources]) -> str:
    """Which launches may be the ones that do not name their kernel: another program cannot make them again."""
    places = [
        f"line {each.line}: {each.text}" for one in given for text in one.cuda for each in source.rewrite(text).unnamed
    ]
    return "; ".join(["a launch does not name its kernel in full", *places[:3]])


def compile_only(message: Message, compiler: Compiler) -> Message:
    """Compile sources for GPUs that the emulation cannot run."""
    texts = [nvrtc.Given(text, plain) for _, given, plain in message["sources"] for text in given]
    compiled, said = compiler(texts, [], [], message["architectures"])
    return {"compiled": compiled, "compiler": said}


def by_nvrtc(
    texts: Sequence[nvrtc.Given],
    kernels: Sequence[str],
    launches: Sequence[records.Launch],
    architectures: Sequence[str],
) -> tuple[list[dict[str, Any]], str]:
    """What the compiler for GPUs makes of the sources, by architecture; or why it was not asked."""
    if toolkit() is None:
        return [], "NVIDIA's compiler is not installed (pip install 'kernelwright[cuda]')"
    try:
        made = nvrtc.compile_all(texts, kernels, architectures)
    except (source.SourceError, OSError) as error:
        return [], f"NVIDIA's compiler could not be asked: {error}"
    for each in made:
        for kernel in each.kernels:
            of_kernel = [one for one in launches if one.kernel == kernel["kernel"]]
            for one in of_kernel[:1]:
                kernel["occupancy"] = machine_code.occupancy(
                    each.architecture, kernel["registers"], kernel["shared_bytes"] + one.dynamic_bytes, one.threads
                )
    return [{**vars(each), "kernels": list(each.kernels)} for each in made], ""


def _compile(written: Path, program: Path, kind: str, dialect: building.Dialect) -> None:
    own = [f"-I{each}" for each in dialect.folders]
    ready = [f"-I{prepare.READY / kind}", *own, f"-I{building.INCLUDE}"]
    told = ["-fmax-errors=4", "-fdiagnostics-color=never"]
    objects = prepare.program_objects(kind, written.parent)
    building.compile_cpp(
        [*prepare.PROGRAMS[kind], *told, *ready, str(written), *objects, "-o", str(program)], timeout_s=120.0
    )


def _run(
    program: Path, record: Path, outputs: Path, order: str, limit: RunLimit, launches: int, sources: Sequence[str] = ()
) -> Run:
    """Run a program, which must make so many launches of kernels in these sources."""
    start, began = time.perf_counter(), time.monotonic()
    environment = {"PATH": os.environ.get("PATH", ""), "TMPDIR": str(program.parent), **_OPTIONS}
    words = [str(program), str(record), str(outputs), order]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        while True:
            try:
                out, err = process.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                if limit.is_over(process.pid, began):
                    process.kill()
                    process.communicate()
                    return Run(order, "timed_out", limit.told, round(time.perf_counter() - start, 3))
    seconds = round(time.perf_counter() - start, 3)
    printed = (err + b"\n" + out)[-200_000:].decode("utf-8", "replace")
    try:
        said = json.loads(out.decode("utf-8", "replace").strip().splitlines()[-1])
        made, fault = said["launches"], str(said["fault"])
    except (ValueError, KeyError, IndexError, TypeError):
        made, fault = None, printed[-300:]
    if process.returncode == 0 and made == launches and outputs.is_file():
        return Run(order, "", "", seconds)
    if process.returncode == 66:
        return Run(order, "fault", fault[:_REPORT_CHARACTERS], seconds)
    if process.returncode == 67:
        return Run(order, "not_run", fault[:_REPORT_CHARACTERS], seconds)
    if process.returncode in _FOUND and ("ERROR: AddressSanitizer" in printed or "WARNING: ThreadSanitizer" in printed):
        return Run(order, _FOUND[process.returncode], readable(printed, program, sources), seconds)
    if "Sanitizer" in printed:  # it could not start: its shadow memory has no room here, for one
        return Run(order, "not_run", printed.strip()[-400:], seconds)
    return Run(order, "died", f"the program ended with status {process.returncode}: {printed.strip()[-400:]}", seconds)


_FRAME = re.compile(
    r"#\d+ (?:0x[0-9a-f]+ in )?(?P<function>.+?) (?P<file>[^\s:]*cuda_sources(?:\[\d+\])?):(?P<line>\d+)"
)


# A sanitizer finds no line for some functions, templates above all.
_NO_LINE = re.compile(r"#\d+ (?!.*:\d+ \().*\([^()\s]+\+(?P<offset>0x[0-9a-f]+)\)")


def readable(printed: str, program: Path, sources: Sequence[str] = ()) -> str:
    """A sanitizer's report: what it found, and the lines of the candidate's sources that have part in it.

    The text of a line stands with its number, because who reads the candidate cannot count lines in a string of it.

    Args:
        printed: the report.
        program: the program that has printed it; where the report has no line, it is looked up there.
        sources: the candidate's sources.
    """
    kept: list[str] = []
    for line in printed.splitlines():
        if found := _FRAME.search(line):
            kept.append(_frame(found["function"], found["file"], found["line"], sources))
        elif lost := _NO_LINE.search(line):
            kept += _looked_up(program, lost["offset"], sources)
        elif "ERROR: AddressSanitizer" in line or "WARNING: ThreadSanitizer" in line:
            kept.append(
                re.sub(r"=*\d*=*(?:ERROR|WARNING): ", "", re.sub(r" \(pid=\d+\)", "", line)).split(" on address")[0]
            )
        elif re.match(r"\s*(?:READ|WRITE|Read|Write|Previous|Atomic|\S+ is located|allocated by)", line):
            kept.append("  " + re.sub(r"(?: at)? ?0x[0-9a-f]+|\[[^]]*\)", "", line).strip())
    return "\n".join(kept)[:_REPORT_CHARACTERS]


def _line_of(sources: Sequence[str], file: str, line: int) -> str:
    """A line of the sources, which `building.replay_text` calls `cuda_sources`, `cuda_sources[1]` and so on."""
    number = re.search(r"\[(\d+)\]$", file)
    lines = [*sources, ""][min(int(number[1]) if number else 0, len(sources))].splitlines()
    return lines[line - 1].strip()[:_LINE_CHARACTERS] if 0 < line <= len(lines) else ""


def _frame(function: str, file: str, line: str, sources: Sequence[str]) -> str:
    name = file.rpartition("/")[2]
    text = _line_of(sources, name, int(line))
    return f"    {function.partition('(')[0].removeprefix('void ')}, {name} line {line}" + (f": {text}" if text else "")


def _looked_up(program: Path, offset: str, sources: Sequence[str]) -> list[str]:
    """The lines of the candidate's sources at a place in a program, that of an inlined function before its caller's."""
    words = ["addr2line", "-f", "-C", "-i", "-e", str(program), offset]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    told = done.stdout.splitlines()
    places = (
        (name, re.match(r"(?P<file>\S*cuda_sources\S*):(?P<line>\d+)", at))
        for name, at in zip(told[::2], told[1::2], strict=False)
    )
    return [_frame(name, at["file"], at["line"], sources) for name, at in places if at]


def _memory(path: Path, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    """What the regions hold that the outputs lie in, cut to the outputs."""
    found: dict[tuple[int, int], bytes] = {}
    with path.open("rb") as file:
        while head := file.read(16):
            if len(head) < 16:
                break
            begin, size = struct.unpack("=QQ", head)
            if size > path.stat().st_size:
                break
            content: bytes | None = None
            for place, wanted in places:
                if begin <= place and place + wanted <= begin + size:
                    if content is None:
                        content = file.read(size)
                    found[place, wanted] = content[place - begin : place - begin + wanted]
            if content is None:
                file.seek(size, os.SEEK_CUR)
    return found
