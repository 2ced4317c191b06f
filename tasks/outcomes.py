"""The outcomes of an evaluation or a task check: verdicts, codes and tags, and the hash that identifies a candidate.

Pages, reports and the command line show the sentences of this module. The referee imports nothing of the project,
because it runs alone inside a sandbox; a test compares the referee's words with these.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


def candidate_hash(source: str) -> str:
    """SHA-256 of a candidate's source in UTF-8, in hex. It identifies the candidate everywhere; any text has one."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


class Verdict(StrEnum):
    """The outcome of an evaluation. Missing evidence is never `passed`."""

    PASSED = "passed"
    SCREENED = "screened"
    BUILD_FAILED = "build_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_OUTPUT = "wrong_output"
    INTEGRITY = "integrity"
    TASK_INVALID = "task_invalid"
    SANDBOX_ERROR = "sandbox_error"


RIGHT = frozenset({Verdict.PASSED, Verdict.SCREENED})
"""Verdicts of candidates whose outputs are right."""

SHOWN_UNTIMED = frozenset({"compiled", "executed", "custom_kernel", "race_free", "in_bounds"})
"""Tags that say what was shown of a candidate on a machine without the device. With all of them no more can be."""

NOT_JUDGED = frozenset({Verdict.TASK_INVALID, Verdict.SANDBOX_ERROR})
"""Verdicts that say nothing about the candidate."""

DISQUALIFYING = frozenset({Verdict.WRONG_OUTPUT, Verdict.INTEGRITY})
"""Verdicts that prove a candidate wrong, whatever other evaluations of it found. The others may be the host's doing."""

GIVEN_WEIGHTS = "given_weights"
"""The code of outputs that are wrong with weights that one evaluation was given, which others know nothing of."""

NO_CANDIDATE = "no_candidate"
"""Takes the place of a verdict if a round brought no candidate."""

UNDER_WAY = "under way"
"""Takes the place of a verdict while a round goes on."""

NOT_EVALUATED = "not evaluated"
"""Takes the place of a verdict if a round or a variant has none, because the job stopped before."""

CANCELLED = "cancelled"
"""The code of an evaluation that was cancelled."""

VERDICT_TEXTS: Mapping[str, str] = {
    Verdict.PASSED: "Every check of every output passed, and it was timed.",
    Verdict.SCREENED: "Every check of every output passed, on a machine without the device. It was not timed: no rank.",
    Verdict.BUILD_FAILED: "It did not compile, or could not be loaded.",
    Verdict.CRASHED: "Its process died.",
    Verdict.TIMED_OUT: "It took longer than it may.",
    Verdict.OUT_OF_MEMORY: "It needed more memory than it may.",
    Verdict.WRONG_OUTPUT: "An output differs by more than is allowed from the float64 oracle, or from the source "
    "kernel that stands for it.",
    Verdict.INTEGRITY: "It tried to get around the referee, or its result cannot be trusted.",
    Verdict.TASK_INVALID: "The task itself cannot be judged; the candidate is not to blame.",
    Verdict.SANDBOX_ERROR: "The sandbox or the referee failed; the candidate is not to blame.",
    NO_CANDIDATE: "The model's reply held no usable candidate.",
    UNDER_WAY: "This round is still going on.",
    NOT_EVALUATED: "The job stopped before this was evaluated.",
}

CODE_TEXTS: Mapping[str, Mapping[str, str]] = {
    Verdict.BUILD_FAILED: {
        "for_gpus": "The compiler for GPUs refuses it for each architecture that was asked for.",
        "not_emulated": "It holds what cannot be run without the device, and nothing else could be shown of it.",
    },
    Verdict.CRASHED: {
        "race": "Two of its threads or programs use the same memory, in no order, and one of them writes.",
        "out_of_bounds": "It reads or writes memory behind the end of a tensor or of shared memory.",
        "divergence": "Threads of one block or warp wait at different barriers.",
        "deadlock": "Threads wait for others that never come.",
    },
    Verdict.OUT_OF_MEMORY: {
        "disk": "It filled the sandbox's space for files.",
        "files": "It made nearly as many files as the sandbox can hold.",
        "processes": "It started nearly as many processes as the sandbox allows.",
        "shared_memory": "It kept System V shared memory that others need.",
        "memory": "It took so much memory that another process was killed for want of it.",
    },
    Verdict.WRONG_OUTPUT: {
        "count": "It returns another number of outputs, or nests them in another way.",
        "type": "It returns something that is neither a tensor nor a plain value.",
        "shape": "An output has another shape.",
        "dtype": "An output has another dtype.",
        "device": "An output is on another device.",
        "layout": "An output lies in memory in a way that the reference's does not.",
        "values": "The values of an output are too far off.",
        "nan": "NaN or Inf stand where the reference has none, or the other way round.",
        "input_mutated": "It changed an input that the reference leaves alone, or left one that the reference changes.",
        "buffer_reused": "A later call changed the result of an earlier one.",
        "configuration": "Its result is right with its first configuration and wrong with another one.",
        "order": "Its result depends on the order in which blocks and threads run.",
        "state": "Its parameters or buffers are not what the reference's are after the same calls.",
        GIVEN_WEIGHTS: "It is right with parameters that the referee draws, and wrong with the given weights.",
    },
    Verdict.INTEGRITY: {
        "forged_result": "Its process sent what no honest runner sends.",
        "ran_out_of_turn": "Its processes ran while they were to stand still.",
        "unreadable_output": "The memory of an output could not be read or written.",
        "impossible_time": "It was faster than the device can be.",
        "work_left_running": "It left work running on the device after its answer.",
        "tells_emulation": "Its source tells the emulation from a device, or switches checks off.",
        "unkillable": "Processes of a runner could not be killed.",
    },
    Verdict.TASK_INVALID: {
        "timed_out": "The reference took longer than it may.",
        "out_of_memory": "The reference or its inputs need more memory than there is.",
        "nondeterministic": "The reference gives different results for the same inputs and seed.",
        "shape_groups": "get_input_groups() returns no list of input lists.",
        "inputs_change": "get_inputs() returns larger tensors on a later call.",
        "protocol": "The reference's process did not answer what it was asked.",
        "failed": "The op could not be run.",
        "no_outputs": "The op returns nothing.",
        "weights": "The weights that were given are not those of the op, or it overflows with them.",
        "shape_changes": "An output has another shape for other inputs.",
        "all_zero": "An output is all zeros, so returning zeros would pass.",
        "constant_output": "An output is the same for different inputs.",
        "no_baseline": "Its reference is a source kernel, so there is nothing to time candidates against.",
        "unwritten": "The source kernel gives NaN on the task's own inputs: it may read or leave memory unwritten.",
        "race": "Two threads of the source kernel use the same memory, in no order, and one of them writes.",
        "out_of_bounds": "The source kernel reads or writes memory behind the end of a tensor or of shared memory.",
        "divergence": "Threads of one block or warp of the source kernel wait at different barriers.",
        "deadlock": "Threads of the source kernel wait for others that never come.",
        "order": "The source kernel's outputs depend on the order of blocks and threads.",
        "for_gpus": "The compiler for GPUs refuses the source kernel.",
        "tells_emulation": "The source kernel holds words by which it would tell the emulation from a GPU.",
    },
    Verdict.SANDBOX_ERROR: {
        CANCELLED: "The evaluation was cancelled.",
        "baseline_lost": "torch.compile could run the task before and failed now.",
        "referee_failed": "The referee itself failed.",
        "no_room": "The sandbox could not make another process.",
        "error": "A process of the referee's own raised an error.",
        "output": "A process of the referee's own returned something that cannot be passed on.",
        "timed_out": "A process of the referee's own took too long.",
        "out_of_memory": "A process of the referee's own had too little memory.",
        "died": "A process of the referee's own died.",
        "protocol": "A process of the referee's own gave a broken answer.",
        "out_of_turn": "A process of the referee's own ran while it was to stand still.",
        "unreadable": "The memory of a process of the referee's own could not be read.",
        "clocks_disagree": "The device's clock and the host's told different times of the same calls.",
        "device_failed": "The device or its driver failed.",
        "program_missing": "A compiler or an emulator that the platform needs is not installed.",
        "guest_failed": "The process that compiles and emulates kernels raised an error.",
    },
}
"""What each code says beyond its verdict. A verdict may come without a code; so may the problem of a task check, which
has the codes of `task_invalid`."""


class NeighbourResult(StrEnum):
    """What a candidate that passed makes of calls beside the task's own."""

    RIGHT = "right"
    WRONG = "wrong"
    FAILS = "fails"
    UNTRIED = "untried"
    SKIPPED = "skipped"


class Respect(StrEnum):
    """What calls beside the task's own differ in."""

    SHAPE = "shape"
    STRIDE = "stride"
    ALIGNMENT = "alignment"
    NEGATIVE = "negative"
    MODE = "mode"


GUARDED = frozenset({NeighbourResult.WRONG, NeighbourResult.FAILS, NeighbourResult.UNTRIED})
"""Results of such calls for which an exported file leaves them to the task's own code."""

CHECK_RESULTS = ("passed", "failed", "skipped")

SKIPPED_NOTE = "skipped: "
"""How the note of a check begins that was not made. Its `passed` is true, for it found nothing."""


def check_result(check: Mapping[str, object]) -> str:
    """The result of one of an evaluation's checks: `passed`, `failed` or `skipped`."""
    if str(check.get("note") or "").startswith(SKIPPED_NOTE):
        return "skipped"
    return "passed" if check.get("passed") is True else "failed"


def shown_untimed(tags: Iterable[str]) -> str:
    """What was shown of a candidate that was screened, in words: its tags, and that it was not timed."""
    return ", ".join([*(tag for tag in tags if tag in SHOWN_UNTIMED), "not timed"])


def explain(verdict: str, code: str | None = None) -> str:
    """A verdict and its code in words; empty for those of another version."""
    return " ".join(filter(None, (VERDICT_TEXTS.get(verdict), CODE_TEXTS.get(verdict, {}).get(code or ""))))


@dataclass(frozen=True)
class Tag:
    """A remark on a candidate that passed, or was screened.

    Attributes:
        name: the tag.
        ranked: whether the candidate's figures still count for ranks.
        text: what the tag says to people.
        faster: whether the candidate may still be faster than eager.
    """

    name: str
    ranked: bool
    text: str
    faster: bool = True


NOISY = "noisy"
"""The tag of figures that were measured while other programs kept the device busy."""

TIE = "tie"
"""The tag of a candidate whose difference to eager lies inside the noise."""

SLOWER = "slower"
"""The tag of a candidate that is slower than eager."""

COLD = "cold"
"""The tag of another measurement: with cold caches."""

OTHER_INPUTS = "other_inputs"
"""The tag of another measurement: with inputs of the task's `get_input_groups()`."""

TRIAL = "trial"
"""The tag of what was timed only until it was decided whether it is better than the best candidate so far."""


NO_ORACLE = "no_oracle"
"""The tag of a candidate that was compared with a source kernel."""


class Decision(StrEnum):
    """What the sequential test of a trial says of the candidate."""

    BETTER = "better"
    WORSE = "worse"
    ALIKE = "alike"
    OPEN = "open"


DECISION_TEXTS: Mapping[Decision, str] = {
    Decision.BETTER: "better",
    Decision.WORSE: "worse",
    Decision.ALIKE: "no better: within 2 %",
    Decision.OPEN: "not decided",
}
"""What a decision says to people."""

TAGS: Mapping[str, Tag] = {
    tag.name: tag
    for tag in (
        Tag("custom_kernel", True, "A kernel of its own did the work."),
        Tag("torch_only", True, "Operators of torch did the work; there is no kernel of its own."),
        Tag("cycles", True, "Timed: cycles. Its figures are a count at a nominal rate, not times."),
        Tag(
            "instructions",
            True,
            "Counted: instructions. Its figures are executed instructions under an emulator, not times.",
        ),
        Tag("compiled", True, "Compilers for the device took it, for each architecture that was asked for."),
        Tag(
            "executed", True, "It ran on a machine without the device, and its outputs are right on all input families."
        ),
        Tag("race_free", True, "No data race was found: between threads of a block (cuda), between programs (triton)."),
        Tag("in_bounds", True, "No use of memory out of bounds was found."),
        Tag(TIE, True, "The difference to eager lies inside the noise: it is not known to be faster.", faster=False),
        Tag(SLOWER, True, "It is slower than eager.", faster=False),
        Tag(
            "specialised",
            True,
            "It is known to be right for the task's own inputs only: with other shapes, strides or alignment it is "
            "wrong or fails, or was not tried. An exported file leaves those to the task's own code.",
        ),
        Tag(
            NO_ORACLE,
            False,
            "Its outputs were compared with those of a source kernel that was run in an emulation, not with a float64 "
            "oracle: what that kernel does wrong is taken for right.",
        ),
        Tag(
            NOISY,
            False,
            "The machine was busy with something else at times. No rank until it is measured again when the machine is "
            "quiet: a worker does so by itself, `kernelwright evaluate` does so here.",
        ),
        Tag(
            "beyond_roofline",
            False,
            "It is faster than the device's measured limits seem to allow for this op: quarantined until someone has "
            "seen why. No rank.",
        ),
        Tag(
            "too_short",
            False,
            "A call takes hardly longer than the hand-over to its process, so its times say little of the kernel: "
            "give the op larger inputs. No rank.",
        ),
        Tag(
            "uneven",
            False,
            "Some of its calls take much longer than those that the speedup counts, or it prepares in time that is "
            "not counted: do not rely on the speedup. No rank.",
        ),
        Tag(
            COLD,
            False,
            "It was measured with cold caches, as asked for: not comparable with other results. No rank.",
        ),
        Tag(
            OTHER_INPUTS,
            False,
            "It was timed with inputs of get_input_groups() and not with those of get_inputs(), as asked for: not "
            "comparable with other results. No rank.",
        ),
        Tag(
            TRIAL,
            False,
            "Timed only until it was decided whether it is better than the best candidate so far. The job's best is "
            "measured once more at the end; that figure counts. No rank.",
        ),
    )
}


def remark(name: str) -> str:
    """A tag for those who read the figures that it qualifies: its name, and what it says of them."""
    tag = TAGS.get(name)
    if tag is None or (tag.ranked and tag.faster and name not in ("specialised", "torch_only")):
        return name
    return f"{name}: {tag.text.partition('. ')[0].rstrip('.')}"


UNRANKED = frozenset(tag.name for tag in TAGS.values() if not tag.ranked)
"""Tags of figures that the evaluator measured but does not vouch for."""

WARNING = (UNRANKED - {TRIAL}) | frozenset(tag.name for tag in TAGS.values() if not tag.faster)
"""Tags that pages show as a warning: no rank, or not known to be faster."""


@dataclass(frozen=True)
class Clock:
    """What the latencies of an evaluation are made of, and how they are shown. Its tags name it: see `clock_of`.

    The store and public JSON hold `latency_ms` whatever the clock is.

    Attributes:
        name: `wall`, or `cycles` or `instructions` for a count at a nominal rate, as a platform's `timed` says.
        note: stands beside latencies and speedups that are no times; empty for times.
        unit: what latencies are shown in.
        per_ms: how many of this unit a millisecond of the JSON is.
        bandwidth_unit: what figures in GB/s are shown in; the number is the same.
        compute_unit: what figures in GFLOP/s are shown in; the number is the same.
        limits: how a device's limits are known.
    """

    name: str
    note: str
    unit: str
    per_ms: float
    bandwidth_unit: str
    compute_unit: str
    limits: str

    def amount(self, latency_ms: float) -> float:
        """A latency of the JSON in this clock's unit; a count is whole."""
        return latency_ms if self.per_ms == 1 else float(round(latency_ms * self.per_ms))

    def figure(self, latency_ms: float, *, digits: int = 4) -> str:
        """A latency without its unit: `0.1234`, `7,400`."""
        return f"{self.amount(latency_ms):.{digits}f}" if self.per_ms == 1 else f"{self.amount(latency_ms):,.0f}"

    def latency(self, latency_ms: float, *, digits: int = 4) -> str:
        """A latency with its unit: `0.1234 ms`, `7,400 cycles`."""
        return f"{self.figure(latency_ms, digits=digits)} {self.unit}"

    def beside(self, text: str) -> str:
        """A figure in words, with the note behind it if there is one."""
        return f"{text}, {self.note}" if self.note else text


WALL = Clock("wall", "", "ms", 1, "GB/s", "GFLOP/s", "measured")
CYCLES = Clock("cycles", "timed: cycles", "cycles", 1e6, "bytes a cycle", "FLOP a cycle", "described")
INSTRUCTIONS = Clock(
    "instructions",
    "counted: instructions",
    "instructions",
    1e6,
    "bytes an instruction",
    "FLOP an instruction",
    "described",
)
"""The nominal rates are 1 GHz, so a cycle or an instruction is stored as a nanosecond."""


def clock_of(tags: Iterable[str]) -> Clock:
    """What the figures of a candidate that passed with these tags are made of."""
    named = set(tags)
    return next((clock for clock in (CYCLES, INSTRUCTIONS) if clock.name in named), WALL)


def is_disqualifying(verdict: str, code: str | None) -> bool:
    """Whether an evaluation proves a candidate wrong, whatever other evaluations of it found."""
    return verdict in DISQUALIFYING and code != GIVEN_WEIGHTS


def is_ranked(tags: Iterable[str]) -> bool:
    """Whether the figures of a candidate that passed with these tags count."""
    return UNRANKED.isdisjoint(tags)


def is_reliable(tags: Iterable[str]) -> bool:
    """Whether the figures of a candidate that passed with these tags say what its calls take; a trial's do, too."""
    return is_ranked(tag for tag in tags if tag != TRIAL)


def is_reliable_but_for_noise(tags: Iterable[str]) -> bool:
    """Whether the figures of a candidate that passed with these tags would be reliable, measured on a quiet machine."""
    return is_reliable(tag for tag in tags if tag != NOISY)
