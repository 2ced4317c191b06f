"""What machine code for a GPU needs and consists of: registers, spills, shared memory, instructions, occupancy.

It is read out of what NVIDIA's assembler and disassembler print. It is for people and models.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor of an architecture holds at once."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int


_MULTIPROCESSORS = {
    "sm_80": Multiprocessor(64, 32, 65536, 164 << 10),
    "sm_90a": Multiprocessor(64, 32, 65536, 228 << 10),
    "sm_100": Multiprocessor(64, 32, 65536, 228 << 10),
}


@dataclass(frozen=True)
class Compiled:
    """What came of one architecture.

    Attributes:
        architecture: `sm_90a`.
        error: the compiler's errors with line and caret; empty if there are none.
        kernels: of each kernel: registers, spilled bytes, shared memory, stack.
        sass: how many instructions of each kind there are in the machine code; empty where no disassembler is.
        seconds: how long it took.
    """

    architecture: str
    error: str
    kernels: tuple[dict[str, Any], ...] = ()
    sass: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def resources(log: str) -> list[dict[str, Any]]:
    """What ptxas says of each kernel: registers, spilled bytes, stack, shared memory."""
    found: list[dict[str, Any]] = []
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            found.append({"kernel": demangled(match[1]), "registers": 0, "shared_bytes": 0})
        if not found:
            continue
        if match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            for name, value in zip(("stack_bytes", "spill_stores", "spill_loads"), match.groups(), strict=True):
                found[-1][name] = int(value)
        if match := re.search(r"Used (\d+) registers", line):
            found[-1]["registers"] = int(match[1])
        if match := re.search(r"(\d+) bytes smem", line):
            found[-1]["shared_bytes"] = int(match[1])
    return found


def demangled(name: str) -> str:
    """A function's name as it is written, by c++filt where that is installed; without arguments."""
    try:
        done = subprocess.run(["c++filt", name], capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return name
    text = done.stdout.strip() or name
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth == 0 and at and not text.startswith("(anonymous", at):
            text = text[:at]
            break
    return text.replace("(anonymous namespace)::", "").removeprefix("void ").strip()[:160]


_KINDS = (
    ("tensor cores", re.compile(r"HMMA|IMMA|DMMA|QMMA|HGMMA|IGMMA|UTCHMMA|UTCQMMA|WGMMA|MMA")),
    ("vector loads", re.compile(r"LDG.*\.(?:64|128)")),
    ("scalar loads", re.compile(r"LDG")),
    ("vector stores", re.compile(r"STG.*\.(?:64|128)")),
    ("scalar stores", re.compile(r"STG")),
    ("local memory", re.compile(r"LDL|STL")),
    ("shared memory", re.compile(r"LDS|STS|LDSM|STSM")),
    ("asynchronous copies", re.compile(r"LDGSTS|UBLKCP|UTMALDG")),
    ("barriers", re.compile(r"BAR|SYNCS")),
    ("shuffles", re.compile(r"SHFL")),
    ("special functions", re.compile(r"MUFU")),
    ("fused multiply-add", re.compile(r"[FDH]FMA|HFMA2")),
    ("branches", re.compile(r"BRA|BRX|JMP")),
)


def kinds_of(listing: str) -> dict[str, int]:
    """How many instructions of each kind a listing of machine code has, and how many in all (without padding)."""
    line = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
    return count_kinds(listing, line, padding=("NOP",), kinds=_KINDS)


def count_kinds(
    listing: str, line: re.Pattern[str], *, padding: Sequence[str], kinds: Sequence[tuple[str, re.Pattern[str]]]
) -> dict[str, int]:
    """How many instructions of each kind a listing has, and how many in all.

    Args:
        listing: one instruction a line.
        line: matches the beginning of a line with an instruction; its group is the instruction's name.
        padding: instructions that do not count.
        kinds: each with what the names of its instructions begin with; the first that fits counts.
    """
    counts = {"all": 0}
    for text in listing.splitlines():
        match = line.match(text)
        if match is None or match[1] in padding:
            continue
        counts["all"] += 1
        for kind, pattern in kinds:
            if pattern.match(match[1]):
                counts[kind] = counts.get(kind, 0) + 1
                break
    return counts


def instructions(place: Path, cubin: bytes) -> dict[str, int]:
    """How many instructions of each kind a program has, by `bin/nvdisasm` of a folder; empty without it."""
    program = place / "bin" / "nvdisasm"
    if not os.access(program, os.X_OK):
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        # Targets of indirect branches, which take an analysis of the program, are not looked at.
        words = [str(program), "--print-code", "--no-dataflow", file.name]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return {}
    return kinds_of(done.stdout) if done.returncode == 0 else {}


def occupancy(architecture: str, registers: int, shared_bytes: int, threads: int) -> float | None:
    """The share of a multiprocessor's warps that can be there at once; None for an architecture that is not known."""
    limits = _MULTIPROCESSORS.get(architecture)
    if limits is None or threads < 1:
        return None
    warps = -(-threads // 32)
    per_warp = -(-max(1, registers) * 32 // 256) * 256
    blocks = min(
        limits.blocks,
        limits.warps // warps,
        limits.registers // per_warp // warps,
        limits.shared_bytes // (-(-(shared_bytes + 1024) // 128) * 128),  # the system keeps 1 KiB of each block's
    )
    return round(blocks * warps / limits.warps, 3)
