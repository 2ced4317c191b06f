"""What a profile from a GPU says to a Judge."""

from typing import Any

_WIDTH, _LINES = 100, 60
_ROWS = (
    ("bytes that the reference touches", "bytes_moved_min", "{:,} B"),
    ("achieved bandwidth", "achieved_gb_per_s", "{} GB/s"),
    ("measured peak bandwidth, reading", "peak_read_gb_per_s", "{} GB/s"),
    ("measured peak bandwidth, writing", "peak_write_gb_per_s", "{} GB/s"),
    ("measured peak bandwidth, copying", "peak_copy_gb_per_s", "{} GB/s"),
    ("floating-point operations", "flops", "{:,} FLOP (at least; arithmetic of every kind)"),
    ("achieved compute", "achieved_gflop_per_s", "{} GFLOP/s"),
    ("measured peak compute", "peak_gflop_per_s", "{} GFLOP/s"),
    ("a call that does nothing takes", "handover_ms", "{} ms"),
    ("a timed call", "timed_call_ms", "{} ms"),
    ("a call among repeated ones", "repeated_call_ms", "{} ms"),
    ("output", "output_bytes", "{:,} B"),
)


def profile_text(profile: dict[str, Any]) -> str:
    """At most 60 lines of 100 columns; `(claimed)` marks what the candidate's own process said.

    Args:
        profile: that of an evaluation on a GPU, which has a `gpu` in it.
    """
    lines = [f"{label}: {form.format(profile[key])}" for label, key, form in _ROWS if profile.get(key) is not None]
    lines += device_lines(profile.get("gpu") or {})
    if note := profile.get("roofline_note"):
        lines.append(f"roofline: {note}")
    detail = profile.get("detail") or {}
    kernels = detail.get("kernels_claimed") or profile.get("kernels_claimed") or []
    lines += [f"kernel (claimed): {share:.0%} {name}" for name, share in kernels]
    return "\n".join(line[:_WIDTH] for line in lines[:_LINES]) or "nothing was recorded"


def device_lines(seen: dict[str, Any]) -> list[str]:
    """Clocks, heat, and who else computed, as the referee saw them while calls were timed."""
    lines = []
    for label, key, unit in (
        ("clock", "clock_mhz", "MHz"),
        ("temperature", "temperature_c", "C"),
        ("power", "power_w", "W"),
    ):
        if span := seen.get(key):
            low, high = span
            lines.append(f"{label}: {low:g} {unit}" if low == high else f"{label}: {low:g} to {high:g} {unit}")
    if reasons := seen.get("clocks_held_by"):
        lines.append(f"clocks were held by: {', '.join(reasons)}")
    if others := seen.get("others"):
        lines.append(f"other processes computed on it: {others}")
    return lines
