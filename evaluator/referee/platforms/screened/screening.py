"""What is proven of a kernel for GPUs without one, beside its outputs: races, bounds, the order of threads.

The candidate's runner tells which kernels one call has launched, with which arguments and on what memory. That is a
claim. A process that holds nothing of the candidate but the kernels makes these launches again, on inputs that are the
referee's; what it leaves in memory is judged like the candidate's own outputs. So a record that leaves launches out, or
that is of other kernels, gives no right outputs and proves nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from ...correctness import call_outputs
from ...correctness.accuracy import flatten
from ...correctness.check import judge
from ...correctness.findings import Evidence
from ...correctness.reference import Expected, ask_reference
from ...errors import Finding, RunnerFailed, of_candidate
from ...isolation.calls import InputSet, copy_value, tensor
from ...isolation.handle import RunnerHandle
from ...pool import input_supply, smaller_inputs
from ...pool.runner_pool import RunnerPool, progress
from ...protocol import input_families, untrusted
from ...protocol.framing import Message
from ...protocol.gpu_checks import NO_KERNEL, ORDERS, architectures_for
from ...protocol.tensors import TensorRow, Tree, bytes_needed
from ..base import Screening

CONFIGURATION = "configuration "
"""How runs are called that take another configuration than the first."""

_NO_FAULT = re.compile(
    "cannot open source file|--gpu-architecture|'gpu-name'"
    "|invalid target ID|unsupported HIP gpu architecture|no (?:member|type) named '[^']*' in namespace 'std'"
    '|name followed by "::" must be a class or namespace name|namespace "(?:std|torch|at|c10)" has no member'
)
"""What an error says that is not the source's: a header is not there, which nvcc or hipcc has; an architecture is not
known."""
_MOST_WORK = 1 << 23  # operations of a call that is made again under sanitizers
_RUN_S = 30.0  # of processor time, of one program
_RUNS_S = 240.0  # of all, with their builds; runs are ended then
_CHECK_S = 270.0
_RECORD_BYTES = 512 << 20
RECORDED_CALLS = 2
"""On inputs of their own: see `recorded_calls`."""


class Language(Protocol):
    """What differs between languages of kernels."""

    @property
    def checks(self) -> Mapping[str, str]:
        """The tag that each check's silence earns, by what the run is called."""
        ...

    @property
    def most_work(self) -> int:
        """The most operations that a call may consist of."""
        ...

    @property
    def missing(self) -> str:
        """What is not installed without which no candidate can be judged; empty if nothing is."""
        ...

    @property
    def cannot(self) -> str:
        """What an error begins with that says that the host cannot run a kernel."""
        ...

    @property
    def undefined(self) -> str:
        """What holds NaN until it is written: the likely cause where NaN comes out and none went in."""
        ...

    def observe(
        self, pool: RunnerPool, candidate: RunnerHandle, inputs: Sequence[InputSet], *, run: bool = True
    ) -> "Observed":
        """Record the launches of one call and make them again in a process of their own. The last inputs are judged.

        Raises:
            RunnerFailed: the candidate failed in the call, or the process that makes them again did.
        """
        ...

    def compile_only(
        self, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
    ) -> tuple[Finding, dict[str, Any]]:
        """The facts of compiling for GPUs what cannot run here.

        Another finding than the given one is the answer instead.
        """
        ...


@dataclass
class Observed:
    """What came of making the launches of one call again.

    Attributes:
        outputs: the outputs of the recorded call.
        facts: for the profile: kernels, runs, what was not possible.
        held: for each order that ended well, the bytes of each output.
    """

    outputs: Tree
    facts: dict[str, Any] = field(default_factory=dict)
    held: dict[str, list[torch.Tensor]] = field(default_factory=dict)


def screen(
    language: Language,
    pool: RunnerPool,
    reference: RunnerHandle,
    candidate: RunnerHandle,
    evidence: Evidence,
    start_candidate: Callable[[], RunnerHandle],
) -> Screening:
    """Make the launches of one call again and judge what they leave behind.

    Under sanitizers a launch takes some hundred times as long, so the inputs are made smaller still where the candidate
    is right on smaller ones.

    Raises:
        Finding: a run shows a fault, or the outputs depend on the order of blocks and threads.
    """
    progress("checking for races and bounds")
    given = [input_supply.make_inputs(pool, reference) for _ in range(RECORDED_CALLS)]
    smaller = None
    if not pool.request.source_kernel:
        smaller = smaller_inputs.fit(reference, given[-1], pool.initial, _MOST_WORK)
    if smaller is not None:
        less = [smaller_inputs.made_smaller(smaller, inputs) for inputs in given]
        # The last set is kept back: `recorded_calls` needs inputs that the candidate has not seen.
        if _is_right(pool, reference, candidate, less[0], evidence):
            found = screened(language, pool, reference, candidate, less, evidence)
            return replace(
                found, facts={**found.facts, "smaller_in_checks": smaller_inputs.says(smaller, given[-1].tree)}
            )
        candidate = start_candidate()  # the other may have died
    return screened(language, pool, reference, candidate, given, evidence)


def _is_right(
    pool: RunnerPool, reference: RunnerHandle, candidate: RunnerHandle, inputs: InputSet, evidence: Evidence
) -> bool:
    """Whether a call on other inputs than the task's is right. A kernel for the task's sizes alone is not."""
    try:
        want = ask_reference(pool, reference, inputs, evidence, first=False)
        timeout_s = pool.request.call_timeout_s
        call = candidate.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
        if want.form.wrong(candidate, call.outputs) is not None:
            return False
        answer = call_outputs.read(candidate, call, inputs)
        judge(input_families.GENERATED, answer, want, inputs, replace(evidence, checks=[]))
    except (Finding, RunnerFailed):
        return False
    return True


def screened(
    language: Language,
    pool: RunnerPool,
    reference: RunnerHandle,
    candidate: RunnerHandle,
    given: Sequence[InputSet],
    evidence: Evidence,
) -> Screening:
    """As `screen`, on given inputs: `RECORDED_CALLS` sets.

    Raises:
        Finding: as `screen`.
    """
    inputs = given[-1]
    want = ask_reference(pool, reference, inputs, evidence, first=False)
    try:
        seen = language.observe(pool, candidate, given)
    except RunnerFailed as failure:
        raise of_candidate(failure, building=False, doing="recording its launches") from None
    refuse(seen)
    tags = ["executed"]
    missing: dict[str, str] = {}
    done = {run["what"]: run["found"] for run in seen.facts["runs"]}
    proven = _proven(seen, candidate, inputs, want, evidence)
    if not proven:
        tags.append("custom_kernel")
    elif seen.facts["error"] == NO_KERNEL:
        tags.append("torch_only")
    if proven:
        missing = dict.fromkeys(language.checks.values(), proven)
    for what, tag in language.checks.items():
        if tag in missing:
            continue
        if done.get(what) == "":
            tags.append(tag)
        else:
            missing[tag] = next((run["text"] for run in seen.facts["runs"] if run["what"] == what), "it did not run")
    if why := not_compiled(seen.facts):
        missing["compiled"] = why
    else:
        tags.insert(0, "compiled")
    return Screening(tuple(tags), {**seen.facts, "missing": missing})


def not_compiled(facts: dict[str, Any]) -> str:
    """Why it is not shown that the sources compile for GPUs; empty if they do.

    Raises:
        Finding: no architecture takes them.
    """
    if facts["compiler"] or not facts["compiled"]:
        return str(facts["compiler"] or facts["error"] or "the compiler for GPUs said nothing")
    errors = {each["architecture"]: each["error"] for each in facts["compiled"] if each["error"]}
    faults = [text for text in errors.values() if not _NO_FAULT.search(text)]
    if len(faults) == len(facts["compiled"]):
        architecture, text = next(iter(errors.items()))
        first = next((line for line in text.splitlines() if "error" in line), text)
        raise Finding("build_failed", f"it does not compile for GPUs ({architecture}): {first}"[:500], "for_gpus", text)
    return "; ".join(f"{name}: {text.splitlines()[0] if text else ''}" for name, text in errors.items())


def _proven(seen: Observed, candidate: RunnerHandle, inputs: InputSet, want: Expected, evidence: Evidence) -> str:
    """Why the launches prove nothing of the outputs; empty if they make right ones in every order.

    Raises:
        Finding: in one order they are right, in another wrong.
    """
    if seen.facts["error"]:
        return str(seen.facts["error"])
    if (wrong := want.form.wrong(candidate, seen.outputs)) is not None:
        return f"the outputs of the recorded call have another form: {wrong.message}"
    for order in ORDERS:
        if order not in seen.held:
            run = next((run for run in seen.facts["runs"] if run["what"] == order), None)
            if run is not None and not run["found"]:
                return "its launches do not write the outputs: something else than its kernels computes them"
            return "the launches could not be made again" + (f": {run['text']}" if run and run["text"] else "")
    rows = dict(enumerate(seen.outputs.tensors))
    for order, contents in seen.held.items():
        leaves = flatten(seen.outputs)
        own = {path: contents[_number(leaf, rows)] for path, leaf in leaves.items() if isinstance(leaf, TensorRow)}
        values = {
            path: tensor(leaf, own[path]) if isinstance(leaf, TensorRow) else call_outputs.value_of(candidate, leaf)
            for path, leaf in leaves.items()
        }
        answer = call_outputs.Answer(seen.outputs, values, {}, own)
        plain = replace(evidence, checks=[])
        try:
            judge(input_families.GENERATED, answer, replace(want, inputs_after={}), inputs, plain)
        except Finding as finding:
            if order == "forward":
                return (
                    "its launches alone do not make the outputs: something else than its kernels computes a part "
                    f"({finding.message})"
                )
            if order.startswith(CONFIGURATION):
                text = f"wrong with another configuration than the first ({order.removeprefix(CONFIGURATION)})"
                raise Finding("wrong_output", f"{text}: {finding.message}"[:600], "configuration") from None
            raise Finding(
                "wrong_output",
                f"the result depends on the order of blocks and threads: right in order, wrong {_said(order)}: "
                f"{finding.message}",
                "order",
            ) from None
    return ""


def _said(order: str) -> str:
    return "backward" if order == "backward" else "in a random order"


def _number(leaf: TensorRow, rows: dict[int, TensorRow]) -> int:
    return next(number for number, row in rows.items() if row is leaf or row == leaf)


def refuse(seen: Observed) -> None:
    """Refuse what a run has shown.

    Raises:
        Finding: a run shows a fault.
    """
    for line, word in seen.facts["forbidden"]:
        text = (
            f"line {line}: {word!r} is nothing that a kernel needs: it tells the emulation or switches its checks off"
        )
        raise Finding("integrity", text, "tells_emulation")
    for run in seen.facts["runs"]:
        found, text = run["found"], run["text"]
        if found in ("race", "out_of_bounds"):
            said = "a data race" if found == "race" else "memory out of bounds"
            if "ThreadSanitizer" in text:
                said += " between threads of a block (a barrier or an atomic operation is missing)"
            if run["what"].startswith(CONFIGURATION):
                said += f" ({run['what']})"
            places = _places(text)
            told = places if said in places else f"{said}: {places}"
            raise Finding("crashed", told[:500], found, text)
        if found == "fault" and run["what"] in ORDERS:
            said = text if run["what"] == "forward" else f"{text} ({_said(run['what'])})"
            raise Finding("crashed", said, _code_in(text), text)


def _places(text: str) -> str:
    """Of a report: each access with its line, or the first lines that name one."""
    lines = [line.strip() for line in text.splitlines()]
    accesses = [
        f"{line.rstrip(':')} in {place}" if " line " in place else line.rstrip(":")
        for line, place in zip(lines, [*lines[1:], ""], strict=True)
        if "of size" in line
    ]
    return "; ".join(accesses[:2] or [line for line in lines if "line" in line][:3])


NO_FACTS: Mapping[str, Any] = {
    "kernels": [], "forbidden": [], "runs": [], "error": "", "compiler": "no kernel was given to it", "compiled": [],
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """Two recorded calls.

    Attributes:
        outputs: of each.
        told: what the candidate's process said of each, beside outputs and records.
        tree: what the process is given that makes the later launches again: the inputs of each call as a list of
            tensors, then each record.
        contents: its tensors.
    """

    outputs: tuple[Tree, Tree]
    told: tuple[Message, Message]
    tree: Tree
    contents: list[torch.Tensor]


def recorded_calls(
    pool: RunnerPool, candidate: RunnerHandle, inputs: Sequence[InputSet], *, run: bool = True
) -> Recorded:
    """Record the launches of a call on each of two sets of inputs, of which the candidate has not seen the later one.

    A call before them is not kept: what a candidate prepares when it is called first is no part of the others.

    Raises:
        RunnerFailed: the candidate failed in a call.
    """
    earlier, later = inputs
    outputs: list[Tree] = []
    told: list[Message] = []
    rows: list[TensorRow] = []
    contents: list[torch.Tensor] = []
    spec = []

    def add(more: Sequence[TensorRow], of_them: Sequence[torch.Tensor]) -> dict[str, Any]:
        """The tensors as a list of what that process is given."""
        numbers = range(len(rows), len(rows) + len(more))
        rows.extend(more)
        contents.extend(of_them)
        return {"list": [{"tensor": number} for number in numbers]}

    for given in (earlier, later):
        spec.append(add(given.tree.tensors, given.contents))
    for given in (earlier, earlier, later):
        # The seed of a call is another one than that which made its inputs, so it may be the same for all.
        message = {"op": "recorded_call", "seed": later.seed, "run": run}
        reply = candidate.give(message, given.tree, given.contents, timeout_s=pool.request.call_timeout_s)
        outputs.append(candidate.tree_of(reply.get("tree")))
        record = copy_value(candidate, candidate.tree_of(reply.get("record")), _RECORD_BYTES)[1]
        told.append(reply)
        if len(told) > 1:
            spec.append(add([_bytes_row(each) for each in record], record))
    tree = Tree({"list": spec}, tuple(rows))
    return Recorded((outputs[1], outputs[2]), (told[1], told[2]), tree, contents)


def made_again(pool: RunnerPool, asked: dict[str, Any], recorded: Recorded, *, speaks: str = "") -> Observed:
    """What came of making the launches of the later call again.

    Args:
        pool: the pool.
        asked: what else the process is told that makes them.
        recorded: the calls.
        speaks: the platform whose kernels these are, if it is not the one that is judged for.
    """
    outputs = recorded.outputs[-1]
    places = [[[row.place, row.span_bytes] for row in each.tensors] for each in recorded.outputs]
    limits = {"run_s": _RUN_S, "all_s": _RUNS_S}
    asked = {**asked, **limits, "op": "check_launches", "places_before": places[0], "places": places[1]}
    try:
        told, held = asked_checker(pool, asked, recorded.tree, recorded.contents, speaks=speaks)
    except RunnerFailed as failure:  # of a process of the referee's: nothing is shown, and nobody is blamed
        text = f"the launches could not be made again: {failure.message}"[:600]
        return Observed(outputs, {**NO_FACTS, "error": text})
    return Observed(outputs, {**NO_FACTS, **facts_of(told)}, held_of(told, held, outputs))


def asked_checker(
    pool: RunnerPool, asked: dict[str, Any], tree: Tree, contents: list[torch.Tensor], *, speaks: str = ""
) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The answer of a process that holds nothing of the candidate but its kernels, and the tensors with it.

    `speaks` is as for `made_again`.

    Raises:
        RunnerFailed: it failed.
    """
    checker = pool.start("checker")
    try:
        if speaks:
            checker.ask({"op": "speak", "language": speaks}, timeout_s=60)
        checker.attach(pool.platform.input_buffer(max(1, bytes_needed(tree)), 1))
        asked = {**asked, "architectures": architectures_for(pool.platform.name, pool.request.architectures)}
        told = checker.give(asked, tree, contents, timeout_s=_CHECK_S)
        if "tree" not in told:
            return told, []
        return told, copy_value(checker, checker.tree_of(told.get("tree")), pool.memory_bytes // 2)[1]
    finally:
        pool.stop(checker)


def _bytes_row(content: torch.Tensor) -> TensorRow:
    """The row of a tensor of bytes that has no place yet."""
    return TensorRow(0, "uint8", (content.numel(),), (1,))


_NOTES = ("tf32", "nan")


def facts_of(told: dict[str, Any]) -> dict[str, Any]:
    """What that process says, each in its form, for the profile."""
    runs = [
        {
            "what": untrusted.text(run.get("what"), 200),
            "found": untrusted.text(run.get("found"), 20),
            "text": _text(run.get("text")),
            "seconds": _seconds(run.get("seconds")),
        }
        for run in _list(told.get("runs"))
        if isinstance(run, dict)
    ][:64]
    build_s = told.get("build_s")
    return {
        "kernels": [untrusted.text(name, 200) for name in _list(told.get("kernels"))][:64],
        "forbidden": [
            [untrusted.text(each[0], 8), untrusted.text(each[1], 60)]
            for each in _list(told.get("forbidden"))
            if isinstance(each, list) and len(each) == 2
        ][:8],
        "runs": runs,
        "error": _text(told.get("error")),
        "compiler": _text(told.get("compiler")),
        "compiled": [_architecture(each) for each in _list(told.get("compiled")) if isinstance(each, dict)][:8],
        "notes": {kind: untrusted.text(notes[kind], 200) for kind in _NOTES if kind in notes}
        if isinstance(notes := told.get("notes"), dict)
        else {},
        "seconds": _seconds(told.get("seconds")),
        "build_s": {untrusted.text(name, 20): _seconds(value) for name, value in build_s.items()}
        if isinstance(build_s, dict)
        else {},
    }


def _architecture(told: dict[str, Any]) -> dict[str, Any]:
    counts = {"registers", "stack_bytes", "spill_stores", "spill_loads", "shared_bytes", "occupancy"} | {
        "vgprs", "sgprs", "agprs", "vgpr_spills", "sgpr_spills", "waves",
    }  # fmt: skip
    sass = told.get("sass")
    return {
        "architecture": untrusted.text(told.get("architecture"), 12),
        "error": _text(told.get("error")),
        "seconds": _seconds(told.get("seconds")),
        "kernels": [
            {"kernel": untrusted.text(each.get("kernel"), 160)}
            | {name: _seconds(value) for name, value in each.items() if name in counts and value is not None}
            for each in _list(told.get("kernels"))
            if isinstance(each, dict)
        ][:64],
        "sass": {untrusted.text(kind, 24): int(_seconds(count)) for kind, count in list(sass.items())[:32]}
        if isinstance(sass, dict)
        else {},
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:4000] if isinstance(value, str) else ""


def _seconds(value: Any) -> float:
    try:
        return untrusted.number(value, at_most=1e6)
    except ValueError:
        return 0.0


def held_of(told: dict[str, Any], contents: list[torch.Tensor], outputs: Tree) -> dict[str, list[torch.Tensor]]:
    """The bytes of each output for each order, where as many came as there are outputs, each as long as it is."""
    orders = [untrusted.text(order, 200) for order in _list(told.get("orders"))]
    if not all(order in ORDERS or order.startswith(CONFIGURATION) for order in orders):
        return {}
    width = len(outputs.tensors)
    if not width or len(contents) != width * len(orders):
        return {}
    held = {order: contents[number * width : (number + 1) * width] for number, order in enumerate(orders)}
    lengths = [row.span_bytes for row in outputs.tensors]
    return {order: each for order, each in held.items() if [content.numel() for content in each] == lengths}


def explain(
    language: Language, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
) -> tuple[Finding, Screening]:
    """A finding that more can be said to: a process that died, wrong outputs, and sources that cannot be emulated."""
    if finding.verdict in ("build_failed", "crashed") and language.cannot in finding.message:
        return _compile_only(language, pool, finding, start_candidate)
    if finding.verdict == "crashed" and finding.code is None:
        finding = replace(finding, code=_code_in(finding.message))
    return _cause(language, pool, finding, start_candidate), Screening((), {})


def _code_in(text: str) -> str | None:
    """The code of a fault that the emulation tells in words."""
    if "memory out of bounds" in text:
        return "out_of_bounds"
    return next((code for code in ("divergence", "deadlock") if code in text), None)


def _compile_only(
    language: Language, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
) -> tuple[Finding, Screening]:
    """Compile for GPUs what cannot run here. That is all that is shown of it then."""
    progress("compiling for GPUs")
    cannot = finding.message.partition(language.cannot)[2]
    other, told = language.compile_only(pool, finding, start_candidate)
    if other is not finding:
        return other, Screening((), {})
    facts = {**told, "error": cannot}
    try:
        why = not_compiled(facts)
    except Finding as refused:
        return refused, Screening((), {})
    if why:
        text = f"{cannot}, and that it compiles is not shown: {why}"
        return Finding("build_failed", text[:600], "not_emulated", finding.detail), Screening((), {})
    missing = dict.fromkeys(("executed", *language.checks.values()), cannot)
    text = f"compiled only: {cannot}; its outputs were not looked at; not timed; not shown: {', '.join(missing)}"
    return Finding("screened", text[:600]), Screening(("compiled",), {**facts, "missing": missing})


def _cause(
    language: Language, pool: RunnerPool, finding: Finding, start_candidate: Callable[[], RunnerHandle]
) -> Finding:
    """Why a candidate's process died or its outputs are wrong, where its launches show it; else the finding as it is.

    Where its process has died, launches are recorded and not carried out, so that they are told all the same.
    """
    died = finding.verdict == "crashed" and "ended by" in finding.message
    if not died and (finding.verdict, finding.code) not in (("wrong_output", "values"), ("wrong_output", "nan")):
        return finding
    progress("looking for the cause")
    reference = pool.start_reference()
    given = [input_supply.make_inputs(pool, reference) for _ in range(RECORDED_CALLS)]
    seen = language.observe(pool, start_candidate(), given, run=not died)
    try:
        refuse(seen)
    except Finding as cause:
        if cause.verdict == "crashed":
            told = replace(finding, message=f"{finding.message}; {cause.message}", detail=cause.detail)
            return cause if died else told
    non_finite = input_families.NON_FINITE in finding.message
    if finding.code == "nan" and not non_finite:
        return replace(finding, message=f"{finding.message}; {language.undefined}")
    if note := seen.facts.get("notes", {}).get("nan" if non_finite else "tf32"):
        return replace(finding, message=f"{finding.message}; {note}")
    return finding
