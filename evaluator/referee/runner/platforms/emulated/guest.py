"""Runs programs of kernels under qemu-user, in a runner of the referee's own that has loaded nothing foreign.

A candidate's C is compiled by the clang that lies at a fixed place, linked with `driver.c`, and run once for each
vector length. The plugin (`plugin.c`) counts the instructions and ends a guest that leaves its memory or calls the
system. Inputs and outputs lie in an arena, a file in memory that the guest maps; nothing of it is shared with the
candidate's Python process.
"""

import contextlib
import hashlib
import mmap
import os
import select
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ....protocol import kernel_program as kp
from .instruction_set import InstructionSet

_FOLDERS = ("/usr/bin", "/usr/local/bin")
_LINES = 40  # of a compiler's messages that are told
_COMPILE_S = 60.0

ARENA = 0x4000000000  # as in driver.c
_HEADER_BYTES = 1 << 19
_MAPPINGS = 0x60000  # in the header, as in driver.c
_PAGE_BYTES = 4096
_STACK_BYTES = 1 << 20
_GAP_BYTES = 4096  # between arrays; nothing there may be touched
_ALIGNED_BYTES = 64
_POISON = 0xFF  # in every array that the candidate has made, before it is written to
_IMAGE_END = 0x10000000  # the guest's code and data end below

_READABLE, _WRITABLE = 1, 2
_KINDS = 6  # of instructions that are counted
_RANGES, _LAPS = 512, 256
_REPORT = struct.Struct(f"<9Q{_KINDS}Q{_LAPS}QQ")
_RANGE = struct.Struct("<3Q")
_REPORT_BYTES = _REPORT.size + _RANGES * _RANGE.size
_NONE, _READ, _WRITE, _SYSTEM_CALL, _TRAP, _CLOCK, _TOUCHED = range(7)


class GuestError(Exception):
    """A program that does not compile (kind `build`), or a guest that broke a rule (`error`) or hangs (`timed_out`).

    The message is for the candidate.
    """

    def __init__(self, message: str, detail: str = "", *, kind: str = "error") -> None:
        super().__init__(message)
        self.detail = detail
        self.kind = kind


@dataclass(frozen=True)
class Placed:
    """An array in the arena: where it lies there, how large it is, whether kernels may write to it, and its name."""

    offset: int
    nbytes: int
    writable: bool
    name: str

    @property
    def address(self) -> int:
        """In the guest."""
        return ARENA + self.offset

    @property
    def pages(self) -> tuple[int, int]:
        """Offsets of the first page's start and the last page's end; both are the same if it has no bytes."""
        return self.offset // _PAGE_BYTES * _PAGE_BYTES, _up(self.offset + self.nbytes, _PAGE_BYTES)


@dataclass(frozen=True)
class Layout:
    """Where everything lies in an arena."""

    arrays: tuple[Placed, ...]
    size: int
    by_page: bool

    @classmethod
    def of(cls, program: kp.Program, given: Sequence[torch.Tensor], *, by_page: bool) -> "Layout":
        """The layout of a program's arrays.

        Args:
            program: the program.
            given: inputs and state, in the order of the program's arrays.
            by_page: whether each array has pages of its own. It ends with a page then, but for what keeps its first
                element at a multiple of 64 bytes.
        """
        offset, placed, sizes = _HEADER_BYTES + _GAP_BYTES + _STACK_BYTES + _GAP_BYTES, [], iter(given)
        for number, array in enumerate(program.arrays):
            nbytes = array.nbytes if isinstance(array, kp.Made) else next(sizes).numel()
            what = {kp.Input: "input", kp.State: "state"}.get(type(array), "made by empty()")
            name = f"array {number} ({what}{f' {array.label}' if array.label else ''}, {nbytes:,} bytes)"
            if by_page:
                offset = _up(offset, _PAGE_BYTES) + _up(nbytes, _PAGE_BYTES) - _up(nbytes, _ALIGNED_BYTES)
            placed.append(Placed(offset, nbytes, not isinstance(array, kp.State), name))
            offset = _up(offset + nbytes + _GAP_BYTES, _ALIGNED_BYTES)
        return cls(tuple(placed), _up(offset, _PAGE_BYTES), by_page)

    @property
    def first_mapped(self) -> int:
        """The bytes of the arena that the guest maps by the arguments of its program."""
        return _HEADER_BYTES if self.by_page else self.size

    def mappings(self) -> list[tuple[int, int, int]]:
        """Offset, size and rights of what else it maps: the stack, pages of arrays, and the header as read-only."""
        if not self.by_page:
            return []
        found = [(_HEADER_BYTES + _GAP_BYTES, _STACK_BYTES, _READABLE | _WRITABLE)]
        for placed in self.arrays:
            start, end = placed.pages
            if start < end:
                found.append((start, end - start, _READABLE | _WRITABLE * placed.writable))
        return [*found, (0, _HEADER_BYTES, _READABLE)]


def _up(size: int, step: int) -> int:
    """The least multiple of `step` that is no less than `size`."""
    return (size + step - 1) // step * step


@dataclass(frozen=True)
class Ended:
    """A guest that ran to its end: its arena, and what was counted."""

    arena: torch.Tensor  # bytes
    counts: dict[str, int]
    laps: list[int]
    loaded_bytes: int
    stored_bytes: int


@dataclass
class _Started:
    vlen: int
    process: "subprocess.Popen[bytes]"
    arena: mmap.mmap
    report: mmap.mmap
    log: Any


@dataclass
class Machine:
    """The compiler and the emulator, and the executables that were built so far."""

    instruction_set: InstructionSet
    folder: Path
    _built: dict[str, Path] = field(default_factory=dict)
    _driver: Path | None = None
    _plugin: Path | None = None

    def build(self, program: kp.Program) -> Path:
        """The program's executable.

        Raises:
            GuestError: it does not compile.
            OSError: the compiler cannot be started.
        """
        source = translation_unit(program)
        key = hashlib.sha256("\0".join((source, *program.flags)).encode()).hexdigest()[:16]
        if key not in self._built:
            self._ready()
            assert self._driver is not None
            unit, kernels, executable = (self.folder / f"{key}{suffix}" for suffix in (".c", ".o", ""))
            unit.write_text(source, encoding="utf-8")
            target, sysroot = self.instruction_set.target, self.instruction_set.sysroot
            options = (*target, *program.flags, "-nostdlibinc", "-isystem", str(sysroot / "include"))
            warnings = ("-fno-caret-diagnostics", "-fno-color-diagnostics", "-w")
            self._tool("clang", *options, *warnings, "-c", str(unit), "-o", str(kernels))
            libraries = ("-L", str(sysroot / "lib"), "-lm")
            parts = (str(self._driver), str(kernels))
            self._tool("linker", "-static", "--gc-sections", "-o", str(executable), *parts, *libraries)
            _segments(executable.read_bytes())
            self._built[key] = executable
        return self._built[key]

    def run(
        self, program: kp.Program, given: Sequence[torch.Tensor], vlens: Sequence[int], *, timeout_s: float
    ) -> tuple[Layout, list[Ended]]:
        """Run a program once for each vector length, side by side.

        Args:
            program: what to run.
            given: the bytes of inputs and state, in the order of the program's arrays.
            vlens: bits of a vector register.
            timeout_s: for all of them.

        Raises:
            GuestError: it does not compile, or a run broke a rule or did not end.
            OSError: compiler or emulator cannot be started.
        """
        executable = self.build(program)
        layout = Layout.of(program, given, by_page=self.instruction_set.mapped_by_page)
        image = executable.read_bytes()
        started: list[_Started] = []
        try:
            for vlen in vlens:
                started.append(self._start(executable, image, program, given, layout, vlen))
            deadline = time.monotonic() + timeout_s
            return layout, [self._end(each, layout, image, deadline, timeout_s) for each in started]
        finally:
            for each in started:
                each.process.kill()
                each.process.wait()
                each.log.close()

    def _start(
        self,
        executable: Path,
        image: bytes,
        program: kp.Program,
        given: Sequence[torch.Tensor],
        layout: Layout,
        vlen: int,
    ) -> _Started:
        arena_fd, report_fd = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("arena", "report"))
        try:
            os.ftruncate(arena_fd, layout.size)
            os.ftruncate(report_fd, _REPORT_BYTES)
            arena, report = mmap.mmap(arena_fd, layout.size), mmap.mmap(report_fd, _REPORT_BYTES)
            _fill(arena, program, given, layout)
            _tell_ranges(report, image, layout)
            log = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - closed when the guest has ended
            options = ("-cpu", self.instruction_set.cpu.format(vlen=vlen, quads=vlen // 128))
            plugin = ("-plugin", f"{self._plugin},report={report_fd}")
            process = subprocess.Popen(
                (
                    _found(self.instruction_set.emulator),
                    *options,
                    *plugin,
                    str(executable),
                    *map(str, (arena_fd, layout.first_mapped)),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                cwd="/",
                pass_fds=(arena_fd, report_fd),
            )
        finally:
            os.close(arena_fd)
            os.close(report_fd)
        return _Started(vlen, process, arena, report, log)

    def _ready(self) -> None:
        """Compile driver and plugin, before anything foreign is compiled.

        Raises:
            RuntimeError: addresses are not random here, so a guest might know where the emulator keeps its counts.
        """
        if self._plugin is not None:
            return
        random = Path("/proc/sys/kernel/randomize_va_space")
        if random.exists() and random.read_text().strip() == "0":
            raise RuntimeError("the kernel does not place programs at random addresses (randomize_va_space is 0)")
        if not (self.instruction_set.sysroot / "lib" / "libm.a").is_file():
            raise FileNotFoundError(f"{self.instruction_set.library} is not installed in the sandbox")
        self.folder.mkdir(parents=True, exist_ok=True)
        here = Path(__file__).parent
        driver, plugin = self.folder / "driver.o", self.folder / "plugin.so"
        independent = self.folder / "plugin.o"
        try:
            own = ("-O2", "-ffreestanding", "-nostdlibinc", "-I", str(self.instruction_set.folder), "-c")
            self._tool("clang", *self.instruction_set.target, *own, str(here / "driver.c"), "-o", str(driver))
            self._tool("clang", *own, "-fPIC", str(here / "plugin.c"), "-o", str(independent))
            self._tool("linker", "-shared", "-o", str(plugin), str(independent))
        except GuestError as error:
            raise RuntimeError(f"driver and plugin do not compile: {error}") from None
        self._driver, self._plugin = driver, plugin

    def _end(self, started: _Started, layout: Layout, image: bytes, deadline: float, timeout_s: float) -> Ended:
        where = f"at vlen {started.vlen}"
        if not _ends(started.process.pid, max(0.0, deadline - time.monotonic())):
            raise GuestError(f"{where}, the kernels did not end within {timeout_s:.3g} s", kind="timed_out")
        status = started.process.wait()
        armed, finished, fault, address, size, pc, loaded, stored, laps, *rest = _REPORT.unpack_from(started.report)
        started.log.seek(0)
        log = started.log.read(4000).decode("utf-8", "replace").strip()
        if fault:
            raise GuestError(f"{where}, {_describe(self.instruction_set, fault, address, size, pc, layout, image)}")
        if not armed:
            raise RuntimeError(f"the emulator did not start ({status}): {log[:300]}")
        if status != 0 or not finished:
            name = signal.Signals(-status).name if status < 0 and -status in set(signal.Signals) else f"status {status}"
            hint = {"SIGSEGV": ": memory was touched that it does not have", "SIGILL": ": an illegal instruction"}
            if "Assertion" in log:
                hint = {name: self.instruction_set.untranslated}
            raise GuestError(f"{where}, the kernels were ended by {name}{hint.get(name, '')}", log)
        counts = dict(zip(self.instruction_set.kinds, rest, strict=False))
        taken = rest[_KINDS:][: min(laps, _LAPS)]
        arena = torch.frombuffer(started.arena, dtype=torch.uint8)
        if layout.by_page:
            _check_between(arena, layout, where)
        return Ended(arena, counts, [b - a for a, b in zip([0, *taken], taken, strict=False)], loaded, stored)

    def _tool(self, name: str, *arguments: str) -> None:
        try:
            done = subprocess.run(
                (_found(self.instruction_set.programs[name]), *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={"PATH": ":".join(_FOLDERS), "LANG": "C.UTF-8"},
                timeout=_COMPILE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GuestError(
                f"{self.instruction_set.programs[name]} took more than {_COMPILE_S:g} s", kind="build"
            ) from None
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").replace(f"{self.folder}/", "").strip().splitlines()
            first = next((line for line in lines if "error:" in line), lines[0] if lines else "no message")
            raise GuestError(first[:400], "\n".join(lines[:_LINES]), kind="build")


def versions(instruction_set: InstructionSet) -> dict[str, str | None]:
    """The first line that compiler, linker and emulator say of themselves; None: not installed."""
    found: dict[str, str | None] = {}
    for program in instruction_set.programs.values():
        found[program] = None
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = (_found(program), "--version")
            said = subprocess.run(command, capture_output=True, text=True, env={}, timeout=20, check=True).stdout
            found[program] = said.splitlines()[0][:100]
    return found


def _found(program: str) -> str:
    """The path of a program, looked for in the system's folders and never in a PATH that anyone has set."""
    for folder in _FOLDERS:
        if (path := Path(folder, program)).is_file():
            return str(path)
    raise FileNotFoundError(f"{program} is not installed in the sandbox")


def translation_unit(program: kp.Program) -> str:
    """The candidate's source, and behind it the function that calls its kernels, where their prototypes convert."""
    cases = []
    for index, launch in enumerate(program.shapes_of_launches()):
        kinds = {"array": "pointer", "integer": "integer", "number": "number"}
        values = ", ".join(f"kw_a[{place}].{kinds[kind]}" for place, kind in enumerate(launch.kinds))
        cases.append(f'#line {index + 1} "launch"\n    case {index}: {launch.function}({values}); break;')
    joined = "\n".join(cases)
    return (
        f'#line 1 "kernels.c"\n{program.source}\n#line 1 "launch"\n'
        "union kw_argument { void *pointer; __INT64_TYPE__ integer; double number; };\n"
        "__attribute__((optnone)) void kw_launch(__UINT64_TYPE__ kw_index, const union kw_argument *kw_a) {\n"
        "  switch (kw_index) {\n"
        f"{joined}\n  }}\n}}\n"
    )


def _fill(arena: mmap.mmap, program: kp.Program, given: Sequence[torch.Tensor], layout: Layout) -> None:
    launches = program.shapes_of_launches()
    stack_end = ARENA + _HEADER_BYTES + _GAP_BYTES + _STACK_BYTES
    header = [struct.pack("<2Q", len(program.launches), stack_end)]
    for launch in program.launches:
        words = [struct.pack("<Q", launches.index(launch.shape))]
        for argument in launch.arguments:
            if isinstance(argument, kp.ArrayArgument):
                words.append(struct.pack("<Q", layout.arrays[argument.array].address))
            else:
                words.append(struct.pack("<d" if isinstance(argument, float) else "<q", argument))
        header.append(b"".join(words).ljust(8 * (kp.MAX_ARGUMENTS + 1), b"\0"))
    data = b"".join(header)
    arena[: len(data)] = data
    mappings = layout.mappings()
    numbers = [len(mappings), *(number for mapping in mappings for number in mapping)]
    arena[_MAPPINGS : _MAPPINGS + 8 * len(numbers)] = struct.pack(f"<{len(numbers)}Q", *numbers)
    view = torch.frombuffer(arena, dtype=torch.uint8)
    contents = iter(given)
    for array, placed in zip(program.arrays, layout.arrays, strict=True):
        if layout.by_page:
            view[slice(*placed.pages)].fill_(_POISON)
        into = view[placed.offset : placed.offset + placed.nbytes]
        if isinstance(array, kp.Made):
            into.fill_(_POISON)
        else:
            into.copy_(next(contents))


def _tell_ranges(report: mmap.mmap, image: bytes, layout: Layout) -> None:
    stack = ARENA + _HEADER_BYTES + _GAP_BYTES
    ranges = [
        *((placed.address, placed.address + placed.nbytes, _READABLE | _WRITABLE * placed.writable)
          for placed in layout.arrays),
        (stack, stack + _STACK_BYTES, _READABLE | _WRITABLE),
        *_segments(image),
        (ARENA, ARENA + _HEADER_BYTES, _READABLE),
    ]  # fmt: skip
    report[_REPORT.size - 8 : _REPORT.size] = struct.pack("<Q", len(ranges))
    for number, each in enumerate(ranges):
        _RANGE.pack_into(report, _REPORT.size + number * _RANGE.size, *each)


def _ends(pid: int, timeout_s: float) -> bool:
    """Whether a child ends in time. `Popen.wait` looks again and again, and up to 50 ms late."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


def _check_between(arena: torch.Tensor, layout: Layout, where: str) -> None:
    """Check that what no array fills of its pages is as it was: nobody sees a vector's store there.

    Raises:
        GuestError: it is not.
    """
    for placed in layout.arrays:
        first, last = placed.pages
        end = placed.offset + placed.nbytes
        if bool((arena[first : placed.offset] != _POISON).any()):
            raise GuestError(f"{where}, the kernels write before the start of {placed.name}")
        if bool((arena[end:last] != _POISON).any()):
            raise GuestError(f"{where}, the kernels write behind the end of {placed.name}")


def _describe(
    instruction_set: InstructionSet, fault: int, address: int, size: int, pc: int, layout: Layout, image: bytes
) -> str:
    by = _function_at(image, pc)
    if fault in (_READ, _WRITE):
        doing = "reads" if fault == _READ else "writes"
        return f"{by} {doing} {size} byte{'s' * (size > 1)} {_locate(address, layout, writes=fault == _WRITE)}"
    if fault == _TOUCHED:
        place = _locate(address, layout, writes=True)
        return f"{by} {'writes' if place.startswith('to ') else 'touches memory'} {place}"
    if fault == _SYSTEM_CALL:
        return f"the kernels make system call {address}; they may make none"
    if fault == _TRAP:
        return f"{by} executes {instruction_set.trap}"
    return f"{by} reads a clock or a counter of the machine; a run must depend on its inputs alone"


def _locate(address: int, layout: Layout, *, writes: bool) -> str:
    for placed in layout.arrays:
        if placed.address <= address < placed.address + placed.nbytes:
            if writes and not placed.writable:
                return f"to {placed.name}, which is read-only"
            return f"across the end of {placed.name}"
        behind = address - (placed.address + placed.nbytes)
        if 0 <= behind < _GAP_BYTES // 2:
            return f"at {behind} bytes behind the end of {placed.name}"
        if 0 < placed.address - address <= _GAP_BYTES // 2:
            return f"at {placed.address - address} bytes before the start of {placed.name}"
    return f"at address {address:#x}, which belongs to no array, nor to its code, data or stack"


# The parts of an ELF file that are needed here: what is loaded, and which function an address lies in.


def _segments(image: bytes) -> list[tuple[int, int, int]]:
    """Start, end and rights of what the loader maps, below `_IMAGE_END`.

    Raises:
        GuestError: the program's code and data are too large.
    """
    found = []
    offset, entry_bytes, count = (*struct.unpack_from("<Q", image, 32), *struct.unpack_from("<2H", image, 54))
    for number in range(count):
        kind, flags, _, start, _, _, nbytes, _ = struct.unpack_from("<2I6Q", image, offset + number * entry_bytes)
        if kind == 7 and nbytes > 4096:  # PT_TLS; as large as driver.c has room for
            raise GuestError(f"thread-local variables take {nbytes:,} bytes, more than 4,096", kind="build")
        if kind == 1:  # PT_LOAD
            if start + nbytes > _IMAGE_END:
                raise GuestError(f"its code and data end at {start + nbytes:#x}, above {_IMAGE_END:#x}", kind="build")
            found.append((start, start + nbytes, _READABLE * bool(flags & 4) | _WRITABLE * bool(flags & 2)))
    return found


def _function_at(image: bytes, address: int) -> str:
    """The function that an address lies in, with the offset there."""
    offset, entry_bytes, count = (*struct.unpack_from("<Q", image, 40), *struct.unpack_from("<2H", image, 58))
    sections = [struct.unpack_from("<2I4Q2I2Q", image, offset + number * entry_bytes) for number in range(count)]
    for _, kind, _, _, start, nbytes, link, _, _, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for place in range(start, start + nbytes, 24):
            name, info, _, _, value, size = struct.unpack_from("<IBBHQQ", image, place)
            if info & 15 == 2 and value <= address < value + size:
                text = image[names + name : image.index(b"\0", names + name)].decode("utf-8", "replace")
                return f"{text[:80]} (+{address - value:#x})"
    return f"the code at {address:#x}"


def counts_json(ended: Ended) -> Mapping[str, Any]:
    """What was counted in a run, as plain JSON."""
    return {
        "counts": ended.counts,
        "launches": ended.laps,
        "loaded_bytes": ended.loaded_bytes,
        "stored_bytes": ended.stored_bytes,
    }
