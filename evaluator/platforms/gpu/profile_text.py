"""What a profile from a GPU says to a Judge."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluator.platforms.cpu.profile_text import fit, wrapped

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
# Of each question: the beginning of a metric's name, what it is, and how its value is written.
_SAID: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "occupancy": (
        ("sm__warps_active", "warps active", "{:.1f}% of the most"),
        ("launch__occupancy_limit_registers", "blocks on a multiprocessor that registers allow", "{:g}"),
        ("launch__occupancy_limit_shared_mem", "that shared memory allows", "{:g}"),
        ("launch__occupancy_limit_blocks", "that there can be at most", "{:g}"),
        ("launch__registers_per_thread", "registers a thread", "{:g}"),
    ),
    "memory": (
        ("dram__throughput", "DRAM", "{:.1f}% of its peak"),
        ("gpu__dram_throughput", "DRAM seen from the whole GPU", "{:.1f}%"),
        ("dram__bytes.sum.per_second", "DRAM", "{:,.0f} B/s"),
        ("dram__bytes_read", "read from DRAM", "{:,.0f} B"),
        ("dram__bytes_op_read", "read from DRAM", "{:,.0f} B"),
        ("dram__bytes_write", "written to DRAM", "{:,.0f} B"),
        ("dram__bytes_op_write", "written to DRAM", "{:,.0f} B"),
        ("lts__throughput", "L2", "{:.1f}% of its peak"),
        ("lts__t_sector_hit_rate", "L2 hits", "{:.1f}%"),
        ("l1tex__throughput", "L1", "{:.1f}% of its peak"),
        ("l1tex__t_sector_hit_rate", "L1 hits", "{:.1f}%"),
    ),
    "compute": (
        ("sm__inst_executed_pipe_tensor", "tensor pipe", "{:.1f}% of its peak"),
        ("sm__pipe_tensor_cycles_active", "tensor pipe", "{:.1f}% of its peak"),
        ("sm__inst_executed_pipe_fp32", "FP32 pipe", "{:.1f}% of its peak"),
        ("sm__inst_executed_pipe_fma", "FMA pipe", "{:.1f}% of its peak"),
        ("sm__inst_executed.sum", "instructions of warps", "{:,.0f}"),
        ("sm__cycles_active", "cycles that a multiprocessor was active", "{:,.0f}"),
        ("smsp__sass_average_branch_targets", "branches that all threads of a warp took alike", "{:.1f}%"),
    ),
}
_STALLS = {
    "long_scoreboard": "for global or local memory (long scoreboard)",
    "memory_dependency": "for memory (memory dependency)",
    "short_scoreboard": "for shared memory or special functions (short scoreboard)",
    "barrier": "at barriers",
    "branch_resolving": "for branches to be resolved",
}
_REASON = 400
_KERNELS, _COUNTED, _COMPILED, _FINDINGS = 5, 3, 4, 4  # lines of each


def profile_text(profile: dict[str, Any]) -> str:
    """At most 60 lines of 100 columns; `claimed` marks what the candidate's own process said.

    Args:
        profile: that of an evaluation on a GPU, which has a `gpu` in it.
    """
    lines = [f"{label}: {form.format(profile[key])}" for label, key, form in _ROWS if profile.get(key) is not None]
    lines += device_lines(profile.get("gpu") or {})
    if note := profile.get("roofline_note"):
        lines.append(f"roofline: {note}")
    detail = profile.get("detail") or {}
    if "sanitizer" in detail:
        lines += _sanitizer(detail["sanitizer"])
    if "kernels" in detail:
        lines += _launches(detail["kernels"]["kernels"])
    else:
        kernels = detail.get("kernels_claimed") or profile.get("kernels_claimed") or []
        lines += [f"kernel (claimed): {share:.0%} {name}" for name, share in kernels]
    if "counters" in detail:
        lines += _counters(detail["counters"])
    if "compiled" in detail:
        lines += _compiled(detail["compiled"])
    lines += _absent(detail.get("absent") or {})
    return fit(lines) or "nothing was recorded"


def _launches(kernels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Kernels with their shares, and on a second line what was launched."""
    for each in kernels[:_KERNELS]:
        yield f"kernel (claimed): {each['share']:.0%} {each['kernel']}"
        told = [f"{each['time_us']:g} us in {_counted(each['launches'], 'launch', 'launches')}"]
        if "grid" in each and "block" in each:
            told.append(f"grid {_extent(each['grid'])} of blocks {_extent(each['block'])}")
        if "registers_per_thread" in each:
            told.append(f"{each['registers_per_thread']:g} registers")
        if "shared_bytes" in each:
            told.append(f"{each['shared_bytes']:,.0f} B shared")
        if "estimated_occupancy_pct" in each:
            told.append(f"occupancy {each['estimated_occupancy_pct']:g}%")
        yield f"  {', '.join(told)}"


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _extent(extent: Sequence[int]) -> str:
    return "x".join(map(str, extent))


def _counters(counters: Mapping[str, Any]) -> Iterator[str]:
    """Hardware counters by question, of the whole call; then the stalls, the largest first, and of each kernel some."""
    took = f"{counters['time_us']:g} us in " if counters.get("time_us") else ""
    yield from wrapped(
        f"counters of one call ({counters['source']}): {took}{_counted(counters['launches'], 'kernel', 'kernels')}"
    )
    for question, said in _SAID.items():
        values = counters.get(question) or {}
        told = [
            f"{label} {form.format(value)}"
            for beginning, label, form in said
            for name, value in values.items()
            if name.startswith(beginning)
        ]
        if told:
            yield from wrapped(f"  {question}: {'; '.join(told)}")
    stalls = sorted((counters.get("stalls") or {}).items(), key=lambda item: -item[1])
    if stalls:
        told = [f"{value:.1f}% {_stall(name)}" for name, value in stalls]
        yield from wrapped(f"  stalls, in shares of the active warps: {'; '.join(told)}")
    by_kernel = counters.get("by_kernel") or []
    if len(by_kernel) > 1:
        yield from (f"  {_of_kernel(each)}" for each in by_kernel[:_COUNTED])


def _stall(name: str) -> str:
    return next((words for part, words in _STALLS.items() if f"stalled_{part}" in name), name)


def _of_kernel(each: Mapping[str, Any]) -> str:
    share = f"{each['share']:.0%} " if each.get("share") is not None else ""
    told = [
        f"{label} {value:.0f}%"
        for beginning, label in (("sm__warps_active", "warps"), ("dram__throughput", "DRAM"), ("lts__throughput", "L2"))
        for name, value in each["metrics"].items()
        if name.startswith(beginning)
    ]
    return f"{share}{each['kernel'][:50]}: {', '.join(told)}"


def _compiled(compiled: Mapping[str, Any]) -> Iterator[str]:
    """What compilers made of the kernels."""
    yield f"kernels as compiled ({compiled['source']}):"
    for each in compiled["kernels"][:_COMPILED]:
        told = [
            f"{each[key]:,} {unit}"
            for key, unit in (
                ("registers", "registers"),
                ("spilled_bytes", "B spilled"),
                ("stack_bytes", "B of stack"),
                ("local_bytes", "B of local memory"),
                ("shared_bytes", "B shared"),
                ("warps", "warps"),
                ("stages", "stages"),
            )
            if key in each
        ]
        yield f"  {each['kernel'][:40]}: {', '.join(told)}"
    if compiled["kernels_seen"] > _COMPILED:
        yield f"  and {compiled['kernels_seen'] - _COMPILED} more"


def _sanitizer(sanitizer: Mapping[str, Any]) -> Iterator[str]:
    """What compute-sanitizer found."""
    told = ", ".join(f"{tool} {errors}" for tool, errors in sanitizer["errors"])
    yield from wrapped(f"errors of one call ({sanitizer['source']}): {told or 'no tool gave a number'}")
    for each in sanitizer["findings"][:_FINDINGS]:
        place = " ".join(filter(None, (each["kernel"], each["where"])))
        times = f" ({each['times']} times)" if each["times"] > 1 else ""
        yield f"  {each['tool']}: {each['kind']}{times}: {place or each['text']}"


def _absent(absent: Mapping[str, str]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in list(absent.items())[:12]:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield from wrapped(f"not measured: {', '.join(names)}: {reason}"[:_REASON])


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
