"""What NVIDIA's management library (NVML) tells of a GPU: its facts, its present state, and who computes on it.

Names, numbers and structures are those of NVML's reference manual. The host and the referee both ask.
"""

import contextlib
import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _TOO_SMALL = 0, 7
_TEXT_BYTES = 96
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_TEMPERATURE_OF_GPU = 0
_UNKNOWN_BYTES = (1 << 64) - 1

REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
"""What may hold clocks down, by its bit in the answer about clock event reasons."""

DISTURBING = frozenset({0x8, 0x20, 0x40, 0x80})
"""Reasons that make times of the same kernel differ: heat, and power that fails."""


class NvmlError(OSError):
    """NVML is not there, or refused a question."""


@dataclass(frozen=True)
class Gpu:
    """What stays the same of a GPU until its driver or its settings change; None: NVML does not tell."""

    index: int
    uuid: str
    name: str
    compute_capability: str
    memory_bytes: int
    driver: str
    minor: int | None = None  # N of /dev/nvidiaN
    max_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    persistent: bool | None = None
    ecc: bool | None = None
    partitioned: bool | None = None  # into MIG instances


@dataclass(frozen=True)
class State:
    """What a GPU was doing at one moment; None: NVML does not tell."""

    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    reasons: int = 0
    busy: float | None = None  # share of the last moments in which some kernel ran


@dataclass(frozen=True)
class User:
    """A process that has a context on a GPU; `memory_bytes` is None where NVML does not tell."""

    pid: int
    memory_bytes: int | None


class Nvml(Protocol):
    """An open session of NVML."""

    def count(self) -> int:
        """How many GPUs there are."""
        ...

    def at(self, index: int) -> Gpu:
        """The GPU of an index, in the order of the bus.

        Raises:
            NvmlError: there is none.
        """
        ...

    def state(self, uuid: str) -> State:
        """What a GPU does.

        Raises:
            NvmlError: there is none.
        """
        ...

    def users(self, uuid: str) -> tuple[User, ...]:
        """The processes that compute on a GPU, by the pids of NVML's own pid namespace.

        Raises:
            NvmlError: there is none, or it does not tell.
        """
        ...


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, as `nvmlDeviceGetComputeRunningProcesses_v3` fills it."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlSession:
    """See `Nvml`; made by `opened`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def count(self) -> int:
        """See `Nvml`."""
        return self._number("nvmlDeviceGetCount_v2") or 0

    def at(self, index: int) -> Gpu:
        """See `Nvml`."""
        handle = ctypes.c_void_p()
        self._ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        major, minor, memory = ctypes.c_int(), ctypes.c_int(), _Memory()
        self._ask("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        self._ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        limit_mw = self._number("nvmlDeviceGetEnforcedPowerLimit", handle)
        return Gpu(
            index=index,
            uuid=self._text("nvmlDeviceGetUUID", handle),
            name=self._text("nvmlDeviceGetName", handle),
            compute_capability=f"{major.value}.{minor.value}",
            memory_bytes=int(memory.total),
            driver=self._text("nvmlSystemGetDriverVersion"),
            minor=self._number("nvmlDeviceGetMinorNumber", handle),
            max_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", handle, ctypes.c_uint(_CLOCK_SM)),
            max_memory_clock_mhz=self._number("nvmlDeviceGetMaxClockInfo", handle, ctypes.c_uint(_CLOCK_MEMORY)),
            power_limit_w=None if limit_mw is None else limit_mw / 1e3,
            persistent=_flag(self._number("nvmlDeviceGetPersistenceMode", handle)),
            ecc=_flag(self._first_of_two("nvmlDeviceGetEccMode", handle)),
            partitioned=_flag(self._first_of_two("nvmlDeviceGetMigMode", handle)),
        )

    def state(self, uuid: str) -> State:
        """See `Nvml`."""
        handle, busy, reasons = self._by_uuid(uuid), _Utilization(), ctypes.c_ulonglong()
        power_mw = self._number("nvmlDeviceGetPowerUsage", handle)
        tells_busy = self._answers("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy))
        self._answers("nvmlDeviceGetCurrentClocksThrottleReasons", handle, ctypes.byref(reasons))
        return State(
            clock_mhz=self._number("nvmlDeviceGetClockInfo", handle, ctypes.c_uint(_CLOCK_SM)),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", handle, ctypes.c_uint(_CLOCK_MEMORY)),
            temperature_c=self._number("nvmlDeviceGetTemperature", handle, ctypes.c_uint(_TEMPERATURE_OF_GPU)),
            power_w=None if power_mw is None else power_mw / 1e3,
            reasons=int(reasons.value),
            busy=busy.gpu / 100 if tells_busy else None,
        )

    def users(self, uuid: str) -> tuple[User, ...]:
        """See `Nvml`."""
        handle, room = self._by_uuid(uuid), 16
        while True:
            found, count = (_Process * room)(), ctypes.c_uint(room)
            status = self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
            if status == _SUCCESS:
                return tuple(User(int(each.pid), _known(int(each.used))) for each in found[: count.value])
            if status != _TOO_SMALL or room > 4096:
                raise NvmlError(f"nvmlDeviceGetComputeRunningProcesses_v3: status {status}")
            room = max(2 * room, 2 * count.value)

    def _by_uuid(self, uuid: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._ask("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return handle

    def _call(self, name: str, *arguments: Any) -> int:
        """The status of a call.

        Raises:
            NvmlError: this version of the library has no such function.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(f"{name}: not in this version of NVML") from None
        return int(function(*arguments))

    def _ask(self, name: str, *arguments: Any) -> None:
        status = self._call(name, *arguments)
        if status != _SUCCESS:
            raise NvmlError(f"{name}: status {status}")

    def _answers(self, name: str, *arguments: Any) -> bool:
        with contextlib.suppress(NvmlError):
            self._ask(name, *arguments)
            return True
        return False

    def _number(self, name: str, *arguments: Any) -> int | None:
        value = ctypes.c_uint()
        return int(value.value) if self._answers(name, *arguments, ctypes.byref(value)) else None

    def _first_of_two(self, name: str, handle: ctypes.c_void_p) -> int | None:
        """The present one of a present and a pending setting."""
        present, pending = ctypes.c_uint(), ctypes.c_uint()
        told = self._answers(name, handle, ctypes.byref(present), ctypes.byref(pending))
        return int(present.value) if told else None

    def _text(self, name: str, *arguments: Any) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._ask(name, *arguments, text, ctypes.c_uint(_TEXT_BYTES))
        return text.value.decode("utf-8", "replace")


@contextlib.contextmanager
def opened(library: str = LIBRARY) -> Iterator[NvmlSession]:
    """A session, open during the block.

    Raises:
        NvmlError: the library is not installed, or no driver answers.
    """
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise NvmlError(str(error)) from None
    session = NvmlSession(loaded)
    session._ask("nvmlInit_v2")
    try:
        yield session
    finally:
        session._answers("nvmlShutdown")


def reasons_text(reasons: int) -> list[str]:
    """The reasons in words; a bit that is not known is told by its number."""
    bits = [1 << number for number in range(reasons.bit_length()) if reasons >> number & 1]
    return [REASONS.get(bit, f"reason {bit:#x}") for bit in bits]


def disturbs(reasons: int) -> bool:
    """Whether one of the reasons makes times of the same kernel differ."""
    return any(reasons & bit for bit in DISTURBING)


def strangers(before: Iterable[int], now: Iterable[int], ours: Iterable[int]) -> list[int]:
    """The pids of processes that compute on a GPU beside an evaluation.

    In a container NVML may tell the pids of the host, by which an evaluation does not know its own processes. Then only
    those count that computed before it began.

    Args:
        before: who computed before the evaluation began.
        now: who computes.
        ours: the evaluation's own processes.
    """
    present, own = set(now), set(ours)
    known = {pid for pid in present - own if own & present or pid in set(before)}
    return sorted(known)


def _known(nbytes: int) -> int | None:
    return None if nbytes == _UNKNOWN_BYTES else nbytes


def _flag(number: int | None) -> bool | None:
    return None if number is None else bool(number)
