"""What compute-sanitizer finds in a call, out of the text that it prints (its manual, Compute Sanitizer).

The text comes from the candidate's process, so its form is checked and nothing in it is believed.
"""

import re
from dataclasses import dataclass
from typing import Any

from ....protocol.untrusted import text

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FINDINGS = 20
"""The most rows that are told."""

ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Each tensor is then an allocation of its own. torch's cache has many in one, in which no use is out of bounds."""

_STATUS = 86  # of the program, where something is found: no other one ends so
_PRINTED = 200
_MOST_LINES = 20_000
_PLACE_LINES = 3  # of a finding, in which its place is
_MARK = "========="
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: ([\d,]{1,12}) (?:errors?|hazards?)\b")
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|\S+ SUMMARY:|Target application|No attachable process|This tool is|Please use|Warning: (?!Race)"
    r"|Internal|$"
)
_AT = re.compile(r"\bat (?P<kernel>.{1,300}?)\+0x[0-9a-f]{1,16}(?: in (?P<where>\S{1,300}))?")
_AT_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{1,16} in (?:(?P<where>[^\s:]{1,300}:\d{1,7}):)?(?P<kernel>.{1,300})")
_DETAILS = ("by thread", "and ", "Address ", "at ")
_KINDS = (
    (re.compile(r"Race reported", re.IGNORECASE), "race"),
    (re.compile(r"Uninitialized", re.IGNORECASE), "uninitialized read"),
    (re.compile(r"Barrier error|Divergent thread", re.IGNORECASE), "barrier"),
    (re.compile(r"Program hit", re.IGNORECASE), "error of a CUDA call"),
    (re.compile(r"(Invalid|Misaligned|Out-of-range).{0,30}\b(read|write|atomic)", re.IGNORECASE), "invalid access"),
    (re.compile(r"Leaked", re.IGNORECASE), "leak"),
)


def arguments(tool: str) -> list[str]:
    """Those by which compute-sanitizer watches a program with one of `TOOLS`."""
    return [
        *("--tool", tool, "--error-exitcode", str(_STATUS), "--print-limit", str(_PRINTED)),
        *("--target-processes", "application-only", "--show-backtrace", "no"),
    ]


@dataclass(frozen=True)
class Report:
    """What one tool said: how many errors or hazards, and a row for each place. None: it gave no summary."""

    errors: int | None
    findings: list[dict[str, Any]]


def parse(tool: str, log: str) -> Report:
    """Read the text of one tool. Lines that it did not mark as its own are passed over.

    Each row has `tool`, `kind`, `kernel`, `where` (file and line, or empty), `text` and `times`.
    """
    errors: int | None = None
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    blocks: list[list[str]] = []
    for line in log.splitlines()[:_MOST_LINES]:
        if not line.startswith(_MARK):
            continue
        said = line[len(_MARK) :][:1000]
        if match := _SUMMARY.search(said):
            errors = max(errors or 0, int(match[1].replace(",", "") or 0))
            continue
        if said.strip() and (said.startswith("  ") or said.strip().startswith(_DETAILS)):
            if blocks:
                blocks[-1].append(said.strip())
        elif not _NO_FINDING.match(said.strip()):
            blocks.append([said.strip()])
        else:
            blocks.append([])  # what follows belongs to no finding
    for block in filter(None, blocks):
        row = _row(tool, block)
        known = rows.setdefault((row["kind"], row["kernel"], row["where"]), row)
        known["times"] += 1
    return Report(errors, list(rows.values())[:FINDINGS])


def _row(tool: str, block: list[str]) -> dict[str, Any]:
    head, *details = block
    kind = next((kind for pattern, kind in _KINDS if pattern.search(head)), "other")
    place = " ".join(block[:_PLACE_LINES])
    match = _AT.search(place) or next(filter(None, map(_AT_ADDRESS.search, block[:_PLACE_LINES])), None)
    told = [head, *(line for line in details if line.startswith(_DETAILS))]
    return {
        "tool": tool,
        "kind": kind,
        "kernel": text(match["kernel"], 120) if match else "",
        "where": text(match["where"] or "", 120) if match else "",
        "text": text("; ".join(told), 240),
        "times": 0,
    }


def reason(*, errors: str, status: object, timeout_s: float) -> str:
    """Why a tool gave no summary, as a line for people."""
    if status is None:
        return f"it did not end within {timeout_s:.0f} s"
    last = text((errors.strip().splitlines() or [""])[-1], 200)
    return f"it gave no summary (status {text(status, 20)})" + (f": {last}" if last else "")
