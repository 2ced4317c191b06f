"""What platforms have in common on the host whose candidates are screened without their device."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluator.platforms.base import Device
from evaluator.platforms.cpu.image import RECIPE
from evaluator.platforms.gpu.profile_text import profile_text as text_of_device
from sandbox.image.recipe import ImageRecipe

_WIDTH, _LINES = 100, 60


@dataclass(frozen=True)
class Screened:
    """The members of `base.Platform` that are the same on all of these platforms."""

    timed: str = "nothing"
    baselines: tuple[str, ...] = ()
    measurable: bool = False

    def device_text(self, device: Device, figures: Mapping[str, Any]) -> str:
        """Its description says all."""
        return device.describe()

    def image(self) -> ImageRecipe:
        """That of platform `cpu`: the reference needs torch, and what compiles for GPUs comes from the host."""
        return RECIPE

    def exclusive_resources(self, index: int) -> tuple[str, ...]:
        """None: nothing is timed."""
        return ()

    def load(self, wait: Callable[[], object]) -> float | None:
        """None at all: nothing is timed."""
        return 0.0

    def provenance(self, index: int) -> Mapping[str, str | None]:
        """Nothing beside what the referee tells."""
        return {}

    def profile_text(self, profile: dict[str, Any]) -> str:
        """The kernels that ran, what each check showed, and what is not shown; empty if nothing was screened.

        Of a candidate that was timed it is what the host of the GPU tells.
        """
        if "gpu" in profile:
            return text_of_device(profile)
        found = (profile.get("detail") or {}).get("screening") or profile.get("screening") or {}
        if not found:
            return ""
        compiled = [line for each in found.get("compiled", ()) for line in _compiled_lines(each)]
        lines = ["not timed: screened without a GPU"]
        lines += [f"kernel: {name}" for name in found.get("kernels", ())]
        lines += [f"inputs: {each}" for each in found.get("smaller_inputs", ())]
        lines += [f"inputs of what follows: {each}" for each in found.get("smaller_in_checks", ())]
        for run in found.get("runs", ()):
            lines.append(f"{_WHAT.get(run['what'], run['what'])}: {_FOUND.get(run['found'], run['found'])}")
            if run["found"]:
                lines += [f"  {line}" for line in str(run["text"]).splitlines()[:12]]
        lines += [
            f"not shown: {tag}: {why.splitlines()[0] if why else ''}"
            for why, tag in _by_reason(found.get("missing") or {}).items()
        ]
        lines += compiled
        if found.get("error") and found["error"] not in (found.get("missing") or {}).values():
            lines.append(f"launches: {found['error'].splitlines()[0]}")
        wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH, subsequent_indent="    ")]
        return "\n".join(wrapped[:_LINES])


def _by_reason(missing: Mapping[str, str]) -> dict[str, str]:
    """The tags that are not shown, by the reason that they have in common."""
    found: dict[str, list[str]] = {}
    for tag, why in missing.items():
        found.setdefault(why, []).append(tag)
    return {why: ", ".join(tags) for why, tags in found.items()}


def _compiled_lines(told: dict[str, Any]) -> list[str]:
    """What the compiler for GPUs says of one architecture."""
    name = told["architecture"]
    if told["error"]:
        return [f"{name}: does not compile", *(f"  {line}" for line in str(told["error"]).splitlines()[:8])]
    lines = []
    for kernel in told["kernels"]:
        if "vgprs" in kernel:
            lines.append(f"{name}: {_of_amd(kernel)}")
            continue
        spilled = kernel.get("spill_stores", 0) + kernel.get("spill_loads", 0)
        occupancy = kernel.get("occupancy")
        lines.append(
            f"{name}: {kernel['kernel'][:_WIDTH]}: {kernel.get('registers', 0):g} registers, {spilled:g} B spilled, "
            f"{kernel.get('shared_bytes', 0):g} B shared" + (f", occupancy {occupancy:.0%}" if occupancy else "")
        )
    mix = sorted(((kind, n) for kind, n in told["sass"].items() if kind != "all"), key=lambda item: -item[1])
    if mix:
        whole = told["sass"].get("all", 0)
        lines.append(f"{name}: {whole} instructions as written: " + ", ".join(f"{n} {kind}" for kind, n in mix[:6]))
        lines += _meaning(told["sass"])
    return lines


def _of_amd(kernel: Mapping[str, Any]) -> str:
    """The resources of one kernel for AMD's GPUs."""
    of_both = "".join(f", {kernel[each]:g} {each[:4].upper()}s" for each in ("sgprs", "agprs") if kernel.get(each))
    spilled = kernel.get("vgpr_spills", 0) + kernel.get("sgpr_spills", 0)
    occupancy = kernel.get("occupancy")
    return (
        f"{kernel['kernel'][:32]}: {kernel['vgprs']:g} VGPRs{of_both}, {spilled:g} spilled, "
        f"{kernel.get('shared_bytes', 0):g} B LDS" + (f", occupancy {occupancy:.0%}" if occupancy else "")
    )


def _meaning(sass: Mapping[str, int]) -> list[str]:
    """What the mix of instructions tells, where it tells something."""
    said = []
    if sass.get("local memory"):
        said.append("  local memory is used: registers are spilled, or an array is indexed by what is not constant")
    if sass.get("scalar loads", 0) > sass.get("vector loads", 0):
        said.append("  global memory is read one element at a time: 16 bytes a thread need fewer instructions")
    said += [f"  {units} are used" for units in ("tensor cores", "matrix cores") if sass.get(units)]
    return said


_WHAT = {
    "forward": "blocks and threads in order",
    "backward": "blocks and threads in backward order",
    "random:7": "blocks and threads in a random order",
    "races": "data races between programs",
    "bounds": "bounds of memory",
    "thread": "thread sanitizer",
    "address": "address sanitizer",
}
_FOUND = {
    "": "nothing found",
    "fault": "a fault",
    "race": "a data race",
    "unclear": "not clear",
    "out_of_bounds": "memory out of bounds",
    "died": "the program died",
    "timed_out": "took too long",
    "not_run": "could not run",
}
