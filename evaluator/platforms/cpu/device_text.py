"""What models are told of a processor: its description, all that its kernel says of it, and measured figures."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Device

_CPUS = Path("/sys/devices/system/cpu")
_VECTOR = re.compile(r"sse4_2|ssse3|avx\w*|fma|f16c|bmi[12]|gfni|amx_\w+|asimd\w*|sve\w*|i8mm|bf16")
_GAIN = 1.03  # of streaming stores over ordinary ones: less is no reason to use them
_COLUMNS = {
    "read": "read",
    "write": "write",
    "write_streamed": "write streamed",
    "copy": "copy",
    "copy_streamed": "copy streamed",
}
_WAKES = {"at_once": "right after another one", "after_1_ms": "after 1 ms of idleness", "after_10_ms": "after 10 ms"}


def device_text(
    device: Device, flags: Collection[str], sharing: Sequence[Sequence[int]], figures: Mapping[str, Any]
) -> str:
    """The text.

    Args:
        device: the device.
        flags: those of the processor, by the kernel's names.
        sharing: `sharing_cores`.
        figures: as the referee measured them (`runner/platforms/cpu/device_figures.py`); empty: it did not.
    """
    told = {
        **device.facts,
        "vector extensions": " ".join(vector_extensions(flags)) or "none known",
        "execution units": execution_units(sharing),
    }
    lines = [device.name, *(f"{key}: {value}" for key, value in told.items())]
    return "\n".join([*lines, *_measured(figures)] if figures else lines)


def vector_extensions(flags: Iterable[str]) -> list[str]:
    """Those of a processor's flags that matter to kernels with vectors."""
    return sorted(flag for flag in flags if _VECTOR.fullmatch(flag))


def execution_units(sharing: Sequence[Sequence[int]]) -> str:
    """Whether cores share them, in words."""
    if not sharing:
        return "each core has its own, as far as the kernel says"
    groups = ", ".join("+".join(map(str, group)) for group in sharing)
    return f"shared, for these are hardware threads of one core each: {groups}"


def sharing_cores(cpus: Path = _CPUS, allowed: Collection[int] | None = None) -> list[list[int]]:
    """The processors that are hardware threads of one core, as far as this process may use two or more of them."""
    usable = os.sched_getaffinity(0) if allowed is None else set(allowed)
    groups = set[tuple[int, ...]]()
    for cpu in usable:
        try:
            text = (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
            groups.add(tuple(sorted(usable.intersection(cpu_list(text)))))
        except (OSError, ValueError):
            continue
    return sorted(list(group) for group in groups if len(group) > 1)


def cpu_list(text: str) -> set[int]:
    """The processors of a list in the kernel's form: `0-3,8`.

    Raises:
        ValueError: it has another form.
    """
    found = set[int]()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


def streaming_pays_from(rates: Sequence[Mapping[str, float]]) -> float | None:
    """The smallest measured size from which on a copy by streaming stores is faster at every size; None: there is none.

    Sizes of which one of the two is not known say nothing.
    """
    pays: float | None = None
    for row in sorted(rates, key=lambda row: -row["bytes"]):
        if "copy" in row and "copy_streamed" in row:
            if row["copy_streamed"] < _GAIN * row["copy"]:
                break
            pays = row["bytes"]
    return pays


def _measured(figures: Mapping[str, Any]) -> list[str]:
    rates: list[dict[str, float]] = figures["rates"]
    columns = [name for name in _COLUMNS if any(name in row for row in rates)]
    table = [
        " | ".join([_size(row["bytes"]), *(f"{row[name] / 1e9:.3g}" if name in row else "unknown" for name in columns)])
        for row in rates
        if any(name in row for name in columns)
    ]
    disturbed = "; other programs kept it busy, so the figures may be too low" if figures.get("noisy") else ""
    wakes = ", ".join(f"{1e6 * figures['wake_s'][name]:.2g} µs {when}" for name, when in _WAKES.items())
    return [
        f"measured here by C++ kernels with {figures['threads']} OpenMP threads, on inputs written just before and"
        f" outputs that take turns, as in an evaluation{disturbed}:",
        " | ".join(["size of each array", *(f"{_COLUMNS[name]} GB/s" for name in columns)]),
        *table,
        "(copy: bytes read plus bytes written; streamed: by non-temporal stores)",
        *_streaming(rates),
        f"matrix products of float32 by torch: {figures['flops_per_s'] / 1e9:.3g} GFLOP/s",
        f"an empty parallel region of all threads takes {wakes}",
    ]


def _streaming(rates: Sequence[Mapping[str, float]]) -> list[str]:
    known = [row["bytes"] for row in rates if "copy" in row and "copy_streamed" in row]
    if not known:
        return []
    pays = streaming_pays_from(rates)
    if pays is None:
        return [f"non-temporal stores do not pay up to {_size(max(known))} of output on this device"]
    return [f"non-temporal stores begin to pay at {_size(pays)} of output on this device"]


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**20:g} MiB"
