"""Inputs beside the task's own: whether a candidate takes the generator's shapes, strides or alignment for granted.

Nothing of this is part of the verdict: the candidate must be right for the inputs of the task's generator. The result
says for which other inputs it is right. Users of the kernel are told, and a guard in the exported file protects them.
Inputs that it was not tried on are guarded like those on which it failed.

Each neighbour is derived from one generated set of inputs by a rule: a first or last size that is one smaller or one
larger, another size that is one larger, other strides, other alignment, a few integers below zero: some losses leave
out such labels, and indexes may count from the end. The last one is these inputs themselves, for models in eval mode.
The reference decides what it takes; the candidate is compared with it and with the oracle.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch

from ..errors import Finding, RunnerFailed
from ..isolation.calls import InputSet, tensor, with_values
from ..isolation.handle import RunnerHandle
from ..platforms.base import InputBuffer
from ..pool.candidate_builder import Builder
from ..pool.input_supply import make_inputs
from ..pool.runner_pool import RunnerPool
from ..protocol import input_families
from ..protocol.tensors import TensorRow, Tree, bytes_needed
from . import call_outputs
from .check import judge
from .findings import Evidence
from .reference import ask_reference, says_nothing

BUDGET_S = 15.0  # for all of them
CALL_S = 10.0  # for a call of the candidate: with other sizes a loop may never end
_MOST_ALONE = 4  # tensors whose strides are changed alone as well
_MOST_SIZES = 8  # that are changed
_MOST_LABELS = 4  # tensors that are changed alone, where the reference does not take all changed at once
_FEW_OF = 8  # elements beyond which three are changed, and else one
_MOST_LEAVES = 256  # of a task's inputs, to be listed for a guard
_FAMILY = input_families.FAMILIES[0]

SHAPE, STRIDE, ALIGNMENT, NEGATIVE, MODE = RESPECTS = ("shape", "stride", "alignment", "negative", "mode")
_OTHERS = {
    SHAPE: "other shapes",
    STRIDE: "other strides",
    ALIGNMENT: "other alignment",
    NEGATIVE: "negative integers",
    MODE: "another mode",
}
_TELLS_NOTHING = ("timed_out", "no_room", "out_of_turn")  # how a call of the reference may fail on inputs that it takes
RIGHT, WRONG, FAILS, UNTRIED, SKIPPED = "right", "wrong", "fails", "untried", "skipped"


@dataclass(frozen=True)
class Neighbour:
    """Inputs, or models called on them, that differ from the task's own in one respect.

    Attributes:
        respect: `shape`, `stride`, `alignment`, `negative` or `mode`.
        name: what differs, for people.
        ways: makers of the inputs; the first that gives inputs which the reference takes counts.
        skew_bytes: how far behind an aligned address each tensor begins.
        eval_mode: whether models are put into eval mode. They stay in it.
        reads_beyond: whether a candidate may read and write memory outside of its inputs, which may make it fail later.
        unless_taken: names of neighbours; it is left out unless the reference takes none of them.
        choices: for each of the ways, the dimensions of each tensor that have another size.
        size: the size that the task has for them.
    """

    respect: str
    name: str
    ways: tuple[Callable[[], InputSet], ...]
    skew_bytes: int = 0
    eval_mode: bool = False
    reads_beyond: bool = False
    unless_taken: tuple[str, ...] = ()
    choices: tuple[Sequence[tuple[int, ...]], ...] = ()
    size: int = 0


@dataclass(frozen=True)
class Variable:
    """Dimensions that may have another size together: it was tried, and the candidate is right.

    Attributes:
        dims: the leaf among all inputs, and its dimension.
        multiple_of: of what number the size must be a multiple.
    """

    dims: list[list[int]]
    multiple_of: int


@dataclass(frozen=True)
class Neighbours:
    """What a candidate makes of its neighbours: for the report, and for the guard of an exported file."""

    judged: list[list[Any]]  # the leaves of each set of inputs that the verdict is about
    names: dict[str, str]  # the reference's parameters, by the candidate's other names
    checks: list[dict[str, str]]
    state: dict[str, list[Any]] = field(default_factory=dict)  # dtype, device and strides of the candidate's tensors
    changing: list[str] = field(default_factory=list)  # those of them that calls change
    variable: list[Variable] = field(default_factory=list)

    @property
    def guards(self) -> list[str]:
        """The respects in which the candidate is known to be right for the task's own inputs only."""
        unproven = {check["respect"] for check in self.checks if check["result"] in (WRONG, FAILS, UNTRIED)}
        return [respect for respect in RESPECTS if respect in unproven]

    def to_json(self) -> dict[str, Any]:
        """The `neighbours` object of an evaluation's `correctness`."""
        return {"guards": self.guards, **asdict(self)}


def examine(
    pool: RunnerPool, reference: RunnerHandle, candidate: RunnerHandle, builder: Builder, evidence: Evidence
) -> Neighbours:
    """Try the neighbours of one generated set of inputs.

    Args:
        pool: the runner pool.
        reference: the reference's runner. Nothing may need it afterwards.
        candidate: a runner of the candidate that has been timed, or any other.
        builder: builds the candidate again when a neighbour has ended its process.
        evidence: of the correctness check. It stays as it is.

    Raises:
        Finding: the task's generator fails, or a process of the candidate's cannot be killed.
    """
    inputs = make_inputs(pool, reference)
    trial = _Trial(pool, reference, candidate, builder, evidence, until=time.perf_counter() + BUDGET_S)
    each = neighbours(inputs, pool.request.domain)
    checks = try_each(each, trial.result)
    if trial.candidate is not None:
        pool.stop(trial.candidate)
    return replace(_found(pool, inputs, evidence, checks), variable=variable(inputs.tree, each, checks, trial.taken))


def untried(pool: RunnerPool, inputs: InputSet, evidence: Evidence) -> Neighbours:
    """What is known of a candidate whose neighbours are not tried, as in a trial: it must be guarded in all respects.

    Args:
        pool: the runner pool.
        inputs: a generated set.
        evidence: of the correctness check.
    """
    return _found(
        pool,
        inputs,
        evidence,
        [
            {"respect": respect, "inputs": others, "result": UNTRIED, "note": "not tried in a trial"}
            for respect, others in _OTHERS.items()
        ],
    )


def _found(pool: RunnerPool, inputs: InputSet, evidence: Evidence, checks: list[dict[str, str]]) -> Neighbours:
    rows, names = pool.own_rows.get("candidate", {}), evidence.names.own
    own = {name: names.get(name, name) for name in pool.initial}
    return Neighbours(
        judged=[listed for listed in map(_leaves_of, (inputs.tree, *evidence.group_trees)) if listed],
        names={own: name for name, own in names.items() if own != name},
        checks=checks,
        state={
            name: [row.dtype, row.device.split(":")[0], list(row.stride)]
            for name in own.values()
            if (row := rows.get(name)) is not None
        },
        changing=sorted(own[name] for name in evidence.changing if name in own),
    )


def variable(
    tree: Tree, each: Sequence[Neighbour], checks: Sequence[Mapping[str, str]], taken: Mapping[str, int]
) -> list[Variable]:
    """Which sizes may differ from the task's: those of which each other that was tried is right.

    Args:
        tree: of the generated inputs.
        each: the neighbours.
        checks: what was found.
        taken: which way of a neighbour the reference took, by its name.
    """
    results = {check["inputs"]: check["result"] for check in checks}
    places = _places_of_leaves(tree)
    found: dict[tuple[tuple[int, int], ...], Variable] = {}
    wrong: set[tuple[tuple[int, int], ...]] = set()
    for neighbour in each:
        result = results.get(neighbour.name)
        if neighbour.respect != SHAPE or neighbour.name not in taken or result == SKIPPED:
            continue
        choice = neighbour.choices[taken[neighbour.name]]
        dims = tuple((leaf, dim) for leaf, place in places for dim in choice[place])
        if result == RIGHT:
            multiple_of = neighbour.size if neighbour.unless_taken else 1
            found.setdefault(dims, Variable([list(each) for each in dims], multiple_of))
        else:
            wrong.add(dims)
    return [each for dims, each in found.items() if dims not in wrong]


def _places_of_leaves(tree: Tree) -> list[tuple[int, int]]:
    """The number of each leaf that is a tensor, and of its tensor."""
    leaves = _listed(tree)
    return [(number, leaf["tensor"]) for number, leaf in enumerate(leaves) if "tensor" in leaf]


def _listed(tree: Tree) -> list[dict[str, Any]]:
    """The tensors, by their numbers, and the other values of nested inputs, in order."""

    def leaves(spec: Any) -> Iterator[Any]:
        ((kind, body),) = spec.items()
        if kind in ("list", "tuple"):
            yield from chain.from_iterable(map(leaves, body))
        elif kind == "dict":
            yield from chain.from_iterable(leaves(item) for _, item in body)
        else:
            yield {"tensor": body} if kind == "tensor" else {"value": body}

    return list(leaves(tree.spec))


def try_each(
    each: Sequence[Neighbour], result_of: Callable[[Neighbour], tuple[str, str]], budget_s: float = BUDGET_S
) -> list[dict[str, str]]:
    """Try one neighbour after the other while there is time.

    Args:
        each: the neighbours.
        result_of: the result of a neighbour and a note.
        budget_s: for all of them; none is begun after that.
    """
    began = time.perf_counter()
    checks: list[dict[str, str]] = []
    for neighbour in each:
        before = {check["inputs"]: check["result"] for check in checks}
        if neighbour.unless_taken and any(before.get(name) != SKIPPED for name in neighbour.unless_taken):
            continue
        result, note = UNTRIED, "no time was left"
        if time.perf_counter() - began < budget_s:
            result, note = result_of(neighbour)
        checks.append({"respect": neighbour.respect, "inputs": neighbour.name, "result": result, "note": note})
    return checks


def neighbours(inputs: InputSet, domains: Sequence[str] = ()) -> list[Neighbour]:
    """The neighbours of a set of inputs of a task with these domains, in the order in which they are tried."""
    values = [tensor(row, content) for row, content in zip(inputs.tree.tensors, inputs.contents, strict=True)]
    found = [
        Neighbour(STRIDE, f"{name}{of}", (_maker_at(inputs, places, change),))
        for name, meant, change in _STRIDES
        for of, places in _together_and_alone([place for place, value in enumerate(values) if meant(value)])
    ]
    if values:
        widest = max(value.element_size() for value in values)
        name = f"{widest} bytes behind an aligned address"
        found.append(Neighbour(ALIGNMENT, name, (lambda: inputs,), skew_bytes=widest))
    found += _of_other_sizes(inputs, [tuple(value.shape) for value in values])
    labels = [place for place, value in enumerate(values) if _may_be_labels(value)]
    if labels and set(domains) <= {"any", "finite"}:
        choices = [labels, *([place] for place in labels[:_MOST_LABELS] if len(labels) > 1)]
        for number in (-100, -1):  # the number that torch's losses leave out by default, and a usual one
            ways = tuple(_maker_at(inputs, choice, partial(_with_a_few, number=number)) for choice in choices)
            found.append(Neighbour(NEGATIVE, f"a few integers {number}", ways, reads_beyond=True))
    found.append(Neighbour(MODE, "as generated, in eval mode", (lambda: inputs,), eval_mode=True))
    return found


def _together_and_alone(places: Sequence[int]) -> list[tuple[str, Sequence[int]]]:
    """These tensors together and, if they are several, each of the first alone, behind what that adds to a name."""
    alone = [(f", input tensor {place} alone", [place]) for place in places[:_MOST_ALONE] if len(places) > 1]
    return [("", places), *alone] if places else []


def _of_other_sizes(inputs: InputSet, shapes: Sequence[tuple[int, ...]]) -> list[Neighbour]:
    """Other sizes: of each dimension of the first tensor that has it, and of each other size of the other tensors."""
    found: list[Neighbour] = []
    most = max(map(len, shapes), default=0)
    sides: list[tuple[str, int, int, tuple[int, ...], str]] = []
    for which, position, steps in (
        ("first size", 0, (-1, 1)),
        ("last size", -1, (-1, 1)),
        *(("size", position, (1,)) for position in range(1, most - 1)),
    ):
        owner = next((index for index, shape in enumerate(shapes) if _has(shape, position)), None)
        if owner is not None:
            of = f" of dimension {position}" if which == "size" else ""
            sides.append((which, owner, position, steps, of))
    known = {shapes[owner][position] for _, owner, position, _, _ in sides}
    for index, shape in enumerate(shapes):
        for position, size in enumerate(shape):
            if size not in known:
                known.add(size)
                sides.append(("size", index, position, (1,), f" of dimension {position} of input tensor {index}"))
    for which, owner, position, steps, of in sides[:_MOST_SIZES]:
        size = shapes[owner][position]
        tried: list[str] = []
        for other in (*(size + step for step in steps), 2 * size, size // 2):
            name = f"{which} {other} instead of {size}{of}"
            if size < 1 or other < 1 or name in tried:
                continue
            choices = tuple(_choices(shapes, owner, position, size))
            ways = tuple(
                _maker(inputs, [partial(_resized, dims=dims, size=other) for dims in choice]) for choice in choices
            )
            # Twice or half of it where the reference takes none that differs by one, as blocks and heads have it.
            unless = tuple(tried) if len(tried) >= len(steps) else ()
            found.append(Neighbour(SHAPE, name, ways, unless_taken=unless, choices=choices, size=size))
            tried.append(name)
    return found


def _has(shape: tuple[int, ...], position: int) -> bool:
    """Whether a shape has this dimension: the first, the last of several (-1), or one between these."""
    return len(shape) > 1 if position < 0 else len(shape) > position + (position > 0)


def _choices(shapes: Sequence[tuple[int, ...]], owner: int, position: int, size: int) -> list[list[tuple[int, ...]]]:
    """Which dimensions of each tensor may be the size in question: those at its position, the owner's alone, or all
    that are as long. A reference that takes none of them has that size in its parameters.
    """
    at_position: list[tuple[int, ...]] = [
        (position % len(shape),) if _has(shape, position) and shape[position] == size else () for shape in shapes
    ]
    at_position[owner] = (position % len(shapes[owner]),)
    alone = [dims if index == owner else () for index, dims in enumerate(at_position)]
    everywhere = [tuple(dim for dim, found in enumerate(shape) if found == size) for shape in shapes]
    choices: list[list[tuple[int, ...]]] = []
    for choice in (at_position, alone, everywhere):
        if choice not in choices:
            choices.append(choice)
    return choices


def _maker(inputs: InputSet, changes: list[Callable[[torch.Tensor], torch.Tensor]]) -> Callable[[], InputSet]:
    """What makes a set with each of its tensors changed, once it is asked for."""

    def made() -> InputSet:
        values = (tensor(row, content) for row, content in zip(inputs.tree.tensors, inputs.contents, strict=True))
        return with_values(inputs, [change(value) for change, value in zip(changes, values, strict=True)])

    return made


def _maker_at(
    inputs: InputSet, places: Sequence[int], change: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[], InputSet]:
    """What makes a set with the tensors at these places changed."""
    tensors = range(len(inputs.tree.tensors))
    return _maker(inputs, [change if place in places else lambda value: value for place in tensors])


def _may_be_labels(value: torch.Tensor) -> bool:
    signed = not value.is_floating_point() and not value.is_complex() and value.dtype not in (torch.bool, torch.uint8)
    return signed and value.numel() > 1 and not input_families.is_mask(value) and bool((value >= 0).all())


def _with_a_few(value: torch.Tensor, number: int) -> torch.Tensor:
    flat = value.clone(memory_format=torch.contiguous_format).view(-1)
    flat[len(flat) // 2] = number
    if len(flat) > _FEW_OF:
        flat[0] = flat[-1] = number
    return torch.empty_like(value).copy_(flat.view(value.shape))


def _has_rows(value: torch.Tensor) -> bool:
    return value.dim() >= 2


def _resized(value: torch.Tensor, dims: Sequence[int], size: int) -> torch.Tensor:
    """The tensor with other sizes in these dimensions. Rows keep their order; the last are left out or repeated.

    At twice the size each row is repeated.
    """
    for dim in dims:
        have = value.shape[dim]
        each = torch.arange(size)
        value = value.index_select(dim, each * have // size if size >= 2 * have else each.clamp(max=have - 1))
    return value.contiguous()


def _may_be_strided(value: torch.Tensor) -> bool:
    return value.dim() >= 1 and value.shape[-1] > 1 and value.is_contiguous()


def _strided(value: torch.Tensor) -> torch.Tensor:
    wide = value.new_zeros((*value.shape[:-1], 2 * value.shape[-1]))
    wide[..., ::2] = value
    return wide[..., ::2]


def _may_lie_in_wider_rows(value: torch.Tensor) -> bool:
    return _has_rows(value) and value.numel() > 1 and value.is_contiguous()


def _in_wider_rows(value: torch.Tensor) -> torch.Tensor:
    wide = value.new_zeros((*value.shape[:-1], 2 * value.shape[-1]))
    wide[..., : value.shape[-1]] = value
    return wide[..., : value.shape[-1]]


def _may_be_swapped(value: torch.Tensor) -> bool:
    return _has_rows(value) and value.numel() > 1


def _swapped(value: torch.Tensor) -> torch.Tensor:
    return value.transpose(0, -1).contiguous().transpose(0, -1)


_STRIDES: tuple[tuple[str, Callable[[torch.Tensor], bool], Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("every other element of larger tensors", _may_be_strided, _strided),
    ("rows of wider tensors", _may_lie_in_wider_rows, _in_wider_rows),
    ("first and last dimension swapped in memory", _may_be_swapped, _swapped),
)


def _leaves_of(tree: Tree) -> list[Any]:
    """Dtype, device, shape and strides of each tensor and the value of each scalar, in order; none of too many."""

    def described(leaf: dict[str, Any]) -> dict[str, Any]:
        if "tensor" not in leaf:
            return leaf
        row = tree.tensors[leaf["tensor"]]
        contiguous = torch.empty_strided(row.shape, row.stride, device="meta").is_contiguous()
        layout = {"shape": list(row.shape), "stride": list(row.stride), "contiguous": contiguous}
        return {"dtype": row.dtype, "device": row.device, **layout}

    found = list(map(described, _listed(tree)))
    return found if len(found) <= _MOST_LEAVES else []


def _is_for_memory(failure: Finding | RunnerFailed) -> bool:
    """Whether the reference failed for want of memory, which says nothing of the inputs that it takes."""
    if isinstance(failure, RunnerFailed):
        return failure.for_memory or failure.kind == "out_of_memory"
    return failure.code == "out_of_memory"


@dataclass
class _Trial:
    """Calls of the reference and of the candidate on one neighbour after the other."""

    pool: RunnerPool
    reference: RunnerHandle
    candidate: RunnerHandle | None
    builder: Builder
    evidence: Evidence
    until: float  # no call begins after that time of `time.perf_counter`
    taken: dict[str, int] = field(default_factory=dict)  # which way the reference took, by the neighbour's name

    def result(self, neighbour: Neighbour) -> tuple[str, str]:
        """A result and a note: `right`, `wrong`, `fails`, `untried`, or `skipped` if the reference tells nothing.

        Raises:
            Finding: a process of the candidate's cannot be killed.
        """
        evidence = replace(self.evidence, checks=[], worst=None, worst_severity=-1.0)
        reason = "the reference does not take them"
        for number, way in enumerate(neighbour.ways):
            if self.pool.frugal:
                return UNTRIED, "too large for the sandbox's memory"
            if time.perf_counter() > self.until:
                return UNTRIED, "no time was left"
            try:
                inputs = way()
            except RuntimeError as error:
                return UNTRIED, f"they cannot be made: {str(error)[:120]}"
            if 3 * inputs.nbytes > self.pool.memory_bytes // 3:
                return UNTRIED, "too large for the sandbox's memory"
            try:
                reference = self._reference()
            except RunnerFailed as failure:
                return UNTRIED, f"no process of the reference could be made: {failure.message[:120]}"
            try:
                self._prepare(reference, inputs, eval_mode=neighbour.eval_mode)
                want = ask_reference(self.pool, reference, inputs, evidence, first=False)
            except (Finding, RunnerFailed) as failure:
                if _is_for_memory(failure):
                    return UNTRIED, "too large for the sandbox's memory"
                if (failure.kind if isinstance(failure, RunnerFailed) else failure.code) in _TELLS_NOTHING:
                    return UNTRIED, f"the reference was not seen to take them: {failure.message[:120]}"
                reason = f"the reference does not take them: {failure.message.rpartition(': ')[2][:120]}"
                continue
            self.taken[neighbour.name] = number
            if silent := says_nothing(neighbour.name, want, evidence):
                return SKIPPED, silent
            try:
                candidate = self._candidate()
            except (Finding, RunnerFailed) as failure:
                return UNTRIED, f"no process of the candidate could be made: {failure.message[:120]}"
            try:
                self._prepare(candidate, inputs, neighbour.skew_bytes, eval_mode=neighbour.eval_mode)
                timeout_s = min(CALL_S, self.pool.request.call_timeout_s)
                call = candidate.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
                for each in call.each:
                    wrong = want.form.wrong(candidate, each.outputs)
                    if wrong is not None:
                        return WRONG, wrong.message[:200]
                    answer = call_outputs.read(candidate, each, inputs)
                    judge(_FAMILY, answer, want, inputs, evidence, where=each.where)
            except Finding as finding:
                if finding.verdict == "wrong_output":
                    return WRONG, finding.message.removesuffix(f" (inputs: {_FAMILY})")[:200]
                self._give_up()
                return FAILS, finding.message[:200]
            except RunnerFailed as failure:
                if failure.kind != "error":
                    self._give_up()
                return FAILS, failure.message[:200]
            finally:
                if neighbour.reads_beyond:
                    self._give_up()
            return RIGHT, ""
        return SKIPPED, reason

    def _prepare(self, handle: RunnerHandle, inputs: InputSet, skew_bytes: int = 0, *, eval_mode: bool = False) -> None:
        """Give a runner an input buffer with room for the inputs, and the state that earlier calls have changed."""
        if eval_mode:
            handle.ask({"op": "eval_mode"}, timeout_s=60)
        if self.evidence.state and self.evidence.state["changed_by_calls"]:
            self.pool.load_state(handle)
        buffer = self.pool.platform.input_buffer(bytes_needed(inputs.tree) + skew_bytes, 1)
        handle.attach(Misaligned(buffer, skew_bytes) if skew_bytes else buffer)

    def _reference(self) -> RunnerHandle:
        """The reference's runner; a fresh one if a neighbour has ended it, so that the next ones are tried, too.

        Raises:
            RunnerFailed: none can be made.
        """
        if self.reference.has_ended:
            self.pool.stop(self.reference)
            self.reference = self.pool.start_model("reference", self.pool.request.task_source, "Model")
        return self.reference

    def _candidate(self) -> RunnerHandle:
        if self.candidate is None:
            self.candidate = self.builder.start()
        return self.candidate

    def _give_up(self) -> None:
        """End a process that died or hangs; the next neighbour gets a fresh one."""
        if self.candidate is not None:
            handle, self.candidate = self.candidate, None
            self.pool.stop(handle)


@dataclass(frozen=True)
class Misaligned:
    """An input buffer whose tensors begin some bytes behind where they lie in another one."""

    inner: InputBuffer
    by_bytes: int

    def place(self, tree: Tree) -> Tree:
        """See `InputBuffer`."""
        placed = self.inner.place(tree)
        return Tree(placed.spec, tuple(row.at(row.place + self.by_bytes) for row in placed.tensors))

    def put(self, tree: Tree, contents: list[torch.Tensor]) -> Tree:
        """See `InputBuffer`."""
        placed = self.place(tree)
        self.fill(placed, contents)
        return placed

    def fill(self, placed: Tree, contents: list[torch.Tensor]) -> None:
        """See `InputBuffer`."""
        self.inner.fill(placed, contents)

    def unchanged(self, row: TensorRow, content: torch.Tensor) -> bool:
        """See `InputBuffer`."""
        return self.inner.unchanged(row, content)

    def copy(self, row: TensorRow) -> torch.Tensor:
        """See `InputBuffer`."""
        return self.inner.copy(row)

    @property
    def told(self) -> list[tuple[int, int]]:
        """See `InputBuffer`."""
        return self.inner.told

    def empty(self) -> bool:
        """See `InputBuffer`."""
        return self.inner.empty()

    def close(self) -> None:
        """See `InputBuffer`."""
        self.inner.close()
