"""Where an evaluation's result comes from: enough to judge it later, and to repeat it."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator.platforms import Device
from evaluator.referee_process import harness_hash
from tasks.outcomes import candidate_hash
from tasks.task import Task

if TYPE_CHECKING:
    from evaluator.evaluate import Effort

_CPUINFO = Path("/proc/cpuinfo")


def provenance(
    task: Task,
    candidate_source: str,
    *,
    described: Mapping[str, str],
    device: Device,
    effort: "Effort",
    result: Mapping[str, Any],
) -> dict[str, Any]:
    """The `provenance` object of an evaluation.

    `described` is what the sandbox says of itself; `result` the referee's answer, empty if there was none. What nobody
    could find out is None, never left out.
    """
    versions = dict(result.get("versions", {}))
    return {
        "device": {"platform": device.platform, "name": device.name, **device.facts, **processor()},
        "versions": versions,
        "cores_used": versions.get("cores"),
        "others_cores_busy": result.get("profile", {}).get("others_cores_busy"),
        "image": described.get("image"),
        "image_digest": described.get("image_id"),
        "sandbox": dict(described),
        "security_boundary": described.get("security_boundary") != "none",
        "harness": harness_hash(),
        "task": {"id": task.id, "hash": task.source_hash},
        "candidate": candidate_hash(candidate_source),
        "settings": asdict(effort),
        "seed": result.get("seed"),  # told only now that the verdict is out
    }


def processor(cpuinfo: Path = _CPUINFO) -> dict[str, str | None]:
    """Microcode and flags of the first processor, as the kernel lists them; None where it does not."""
    found: dict[str, str | None] = {"microcode": None, "flags": None}
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        key, _, value = line.partition(":")
        name = {"microcode": "microcode", "flags": "flags", "Features": "flags"}.get(key.strip())
        if name is not None and found[name] is None:
            found[name] = " ".join(sorted(value.split()))
    return found
