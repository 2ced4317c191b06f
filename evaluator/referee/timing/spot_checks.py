"""Checks of the timed stage: every timed call, spot checks among them, and the state that all calls leave behind.

A call that is timed is on inputs as generated, or on such with a few elements changed where the generator always makes
some alike. So some calls of each process set, at places that nobody can foresee, are on inputs of other families, and
are judged as in the correctness stage; their time does not count.
"""

import functools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..correctness import accuracy, call_outputs, state_check
from ..correctness.call_outputs import Answer, input_path, value_of
from ..correctness.check import judge, refuse
from ..correctness.findings import Evidence
from ..correctness.reference import Expected, ask_reference, says_nothing, takes_as_generated
from ..errors import Finding, RunnerFailed
from ..isolation.calls import Call, InputSet, tensor
from ..isolation.handle import RunnerHandle
from ..pool import input_supply
from ..pool.runner_pool import RunnerPool
from ..protocol import input_families
from ..protocol.baselines import OTHERS
from ..protocol.tensors import bytes_needed

CHANCE = 0.125
"""Probability that a spot check comes before a timed call. Each call is drawn for itself, so none tells of another."""

ANY_FAMILY = 0.25
"""Share of the spot checks that are of any family. The others are of those used least; but no family that has come may
be known not to come again."""

TIME_SHARE = 0.2
"""Share of the time that spot checks may take: of what a set is measured for, and of the sandbox's time for one of each
family that has not come yet."""

HELD_SHARE = 0.125
"""Share of the sandbox's memory that spot checks may take which wait for their round; one may take more."""

CHANGED_SHARE = 0.125
"""Share of the timed calls that are on inputs with a few elements changed, where the generator always makes some alike.
A larger share would make kernels uneven that look at the whole of such an input and then take a path of their own.
"""

_WHERE = ", among the timed calls"
# Families after which a running average still shows what other calls have added to it.
_GENTLE = (
    input_families.SHUFFLED, input_families.VARIED, input_families.SPARSE, input_families.FLIPPED,
    input_families.NEGATIVE, input_families.DOWN, input_families.TIES, input_families.LOW_BITS,
)  # fmt: skip


Values = dict[str, torch.Tensor]


class Output:
    """The outputs of a timed call and the inputs that it may change.

    Their form and place are seen, and that no other input has changed, when this is made; the values, when they are
    asked for. Until then the runner must not have another turn, unless they do not matter.
    """

    def __init__(
        self, evidence: Evidence, variant: str, handle: RunnerHandle, call: Call, inputs: InputSet, rng: random.Random
    ) -> None:
        """Look at all but the values.

        Raises:
            Finding: the outputs have another form, or lie where they may not, or an input was changed.
            RunnerFailed: its memory cannot be read.
        """
        assert evidence.form is not None and handle.input_buffer is not None
        self._evidence, self._variant, self._handle, self._call, self._rng = evidence, variant, handle, call, rng
        self._values: Values | None = None
        if variant in OTHERS:
            call_outputs.form_of(handle, call.outputs)
        elif wrong := evidence.form.wrong(handle, call.outputs):
            raise Finding("wrong_output", f"{wrong.message} (in a timed call)", wrong.code)
        self._inputs_after: Values = {}
        for index, (row, content) in enumerate(zip(call.placed.tensors, inputs.contents, strict=True)):
            if index in evidence.mutated:
                self._inputs_after[input_path(index)] = tensor(row, handle.input_buffer.copy(row))
            elif not handle.input_buffer.unchanged(row, content) and variant == "candidate":
                raise Finding("wrong_output", f"input tensor {index} was changed by a timed call", "input_mutated")

    @property
    def stays(self) -> bool:
        """Whether the outputs lie where nobody writes before the runner's next turn.

        Raises:
            RunnerFailed: the runner is gone.
        """
        return call_outputs.lie_alone(self._handle, self._call.outputs)

    def values(self) -> Values:
        """The values by path. Once they have been read, some are overwritten there (`call_outputs.overwrite`).

        Raises:
            Finding: an output lies where nobody may write.
            RunnerFailed: the runner's memory cannot be read, or it has run since the call.
        """
        if self._values is None:
            outputs = accuracy.flatten(self._call.outputs)
            self._values = {path: value_of(self._handle, leaf) for path, leaf in outputs.items()} | self._inputs_after
            self._handle.see_still()
            self._overwrite()
        return self._values

    def taken(self) -> Values:
        """The values by path, which are not kept here any longer. They can be taken once.

        Raises:
            Finding, RunnerFailed: as for `values`.
        """
        found, self._values, self._inputs_after = self.values(), {}, {}
        return found

    def _overwrite(self) -> None:
        evidence = self._evidence
        if not evidence.overwrites:
            return
        assert evidence.form is not None
        try:
            call_outputs.overwrite(self._handle, self._call.outputs, evidence.form.shared, self._rng)
        except RunnerFailed as failure:
            if self._variant != "candidate" or failure.kind != "unreadable":
                raise
            raise Finding("wrong_output", "an output lies in memory that nobody may write to", "layout") from None


def compare(
    pool: RunnerPool,
    supply: input_supply.InputSupply,
    evidence: Evidence,
    inputs: InputSet,
    want: dict[str, torch.Tensor],
    have: dict[str, torch.Tensor],
) -> None:
    """Hold what the candidate's timed call left behind against the eager baseline's.

    Where it differs by more than earlier inputs allowed, reference and oracle are asked about these: the errors of an
    output with poles are of another size on each. (Not where calls change state, which cannot be had again.)

    Raises:
        Finding: it differs.
    """
    allowed = evidence.allowances
    wrong = [path for path, value in want.items() if not accuracy.within(have[path], value, allowed[path])]
    if not wrong and not evidence.changing:
        wrong = [path for path, value in want.items() if accuracy.slices_doubtful(have[path], value, allowed[path])]
    if not wrong:
        return
    text = f"{accuracy.naming(wrong[0])} of a timed call is wrong"
    if not evidence.changing:
        supply.collect()
        expected = ask_reference(pool, supply.reference, inputs, evidence, first=False)
        found = [_full_comparison(path, have[path], expected, evidence) for path in wrong]
        if not any(found):
            return
        text = f"{next(filter(None, found))} (in a timed call)"
    if evidence.overwrites:
        text += "; once outputs have been read some elements are overwritten, as whoever asked for them might do"
    raise Finding("wrong_output", text, "values")


def _full_comparison(path: str, have: torch.Tensor, expected: Expected, evidence: Evidence) -> str:
    """What is wrong with an output; empty if nothing is."""
    value = expected.judged().get(path)
    if value is None:
        return f"{accuracy.naming(path)} is wrong"
    tolerances, own = evidence.tolerances_for(path), expected.own.get(path)
    found = accuracy.compare(path, have, value, expected.oracle.get(path), tolerances, own)
    return "" if found.wrong is None else found.wrong.message


@dataclass
class SpotCheck:
    """An untimed call among those of a round. `after`: which share of them come before it."""

    family: str
    inputs: InputSet
    want: Expected
    after: float
    answer: Answer | None = None
    again: Callable[[], Expected] | None = None  # where memory is short: computes what is right when it is judged

    @property
    def nbytes(self) -> int:
        """The bytes of its inputs, and of what is expected of the candidate."""
        expected = (*self.want.judged().values(), *self.want.oracle.values())
        return self.inputs.nbytes + sum(value.nbytes for value in expected)

    def take(self, evidence: Evidence, handle: RunnerHandle, call: Call) -> None:
        """Read what the candidate answered, to be judged when its round is over.

        Raises:
            Finding: the outputs have another form, or lie where they may not.
            RunnerFailed: its memory cannot be read.
        """
        wrong = self.want.form.wrong(handle, call.outputs)
        if wrong is not None:
            refuse(self.family + _WHERE, wrong, evidence)
        self.answer = call_outputs.read(handle, call, self.inputs)

    def judge(self, evidence: Evidence) -> None:
        """Judge it.

        Raises:
            Finding: it is wrong.
        """
        assert self.answer is not None
        want = self.want if self.again is None else self.again()
        judge(self.family, self.answer, want, self.inputs, evidence, where=_WHERE)
        self.answer = None
        evidence.spot_checks[self.family] = evidence.spot_checks.get(self.family, 0) + 1


def make(
    pool: RunnerPool,
    reference: RunnerHandle,
    evidence: Evidence,
    rng: random.Random,
    *,
    most: int,
    limit_s: float = 0.0,
    owed: list[str] | None = None,
    owed_s: float = 0.0,
) -> list[SpotCheck]:
    """Make spot checks for rounds to come, in a random order; none where there is no other family.

    Those that together would take more than `HELD_SHARE` of the memory are not made, but for one.

    Args:
        pool: the evaluation's runners.
        reference: computes what is right.
        evidence: the families to which the candidate has been held, and those that have come.
        rng: the families and where they come, which nobody can foresee.
        most: how many to make.
        limit_s: no other one is begun after this time; one is made in any case.
        owed: families of which one is made each, before all others and beside `most`. Those that are tried leave it.
        owed_s: for how long.
    """
    start = time.perf_counter()
    room = 0.0 if pool.frugal else pool.memory_bytes * HELD_SHARE
    missing: list[SpotCheck] = []
    rng.shuffle(owed := [] if owed is None else owed)
    while owed and time.perf_counter() < start + owed_s and _has_room(missing, room):
        family = owed.pop()
        # With only some inputs changed the reference may say nothing, though it did with all of them.
        if made := (
            _make(pool, reference, evidence, family, rng) or _make(pool, reference, evidence, family, rng, some=False)
        ):
            missing.append(made)
    others: list[SpotCheck] = []
    for family in _families(evidence, rng):
        made_any, late = bool(missing or others), time.perf_counter() > start + limit_s
        if len(others) >= most or (made_any and late) or not _has_room(missing + others, room):
            break
        if made := _make(pool, reference, evidence, family, rng):
            others.append(made)
    return missing + others


def _has_room(made: Sequence[SpotCheck], room: float) -> bool:
    """Whether another that is as large as the largest of these would fit beside them; beside none, any does."""
    sizes = [each.nbytes for each in made]
    return not sizes or sum(sizes) + max(sizes) <= room


def change_of_timed(pool: RunnerPool, reference: RunnerHandle, evidence: Evidence) -> input_supply.Change | None:
    """What is changed in some of the inputs of timed calls: a few elements, which alters no honest kernel's work.

    A candidate may take an input for what the generator always makes of it, once a sample of its elements has confirmed
    that; it is then wrong where it would gain. Nothing is changed where all inputs are random, because a few elements
    that change places among random ones tell nothing; nor where calls change state, which cannot be had again where
    candidate and eager differ.
    """
    family = input_families.SPARSE
    if not evidence.always_same or evidence.changing or family not in evidence.judged:
        return None
    alike = input_families.may_end_a_process(family, [row.dtype for row in evidence.input_rows])
    is_taken = functools.partial(takes_as_generated, pool, reference, evidence=evidence)
    return input_supply.Change(family, CHANGED_SHARE, some=not alike, alike=alike, is_taken=is_taken)


def unused(evidence: Evidence) -> list[str]:
    """The families of which no timed call has been so far, though the candidate was held to them before."""
    return [family for family in _suitable(evidence) if family not in evidence.spot_checks]


def families_missing(ready: Sequence[SpotCheck], evidence: Evidence) -> int:
    """How many of the families that have not come yet are among these spot checks."""
    return len({spot_check.family for spot_check in ready} & set(unused(evidence)))


def draw(ready: list[SpotCheck], rng: random.Random, *, calls: int, at_least: int = 0) -> list[SpotCheck]:
    """Take out those that a round of so many timed calls has; `at_least` so many, as far as there are any."""
    count = max(at_least, sum(rng.random() < CHANCE for _ in range(calls)))
    due, ready[:] = ready[:count], ready[count:]
    return due


def _suitable(evidence: Evidence) -> list[str]:
    families = [
        family for family in evidence.judged if not family.startswith((input_families.GENERATED, input_families.GROUP))
    ]
    return [family for family in families if family in _GENTLE] if evidence.changing else families


def _families(evidence: Evidence, rng: random.Random) -> list[str]:
    families = _suitable(evidence)
    rng.shuffle(families)
    families.sort(key=lambda family: evidence.spot_checks.get(family, 0))
    return [rng.choice(families) if rng.random() < ANY_FAMILY else family for family in families]


def _make(
    pool: RunnerPool, reference: RunnerHandle, evidence: Evidence, family: str, rng: random.Random, *, some: bool = True
) -> SpotCheck | None:
    try:
        # Where some change has been tried on a process of its own, this one is no other.
        alike = input_families.may_end_a_process(family, [row.dtype for row in evidence.input_rows])
        inputs = input_supply.make_inputs(pool, reference, family, some=some and not alike, alike=alike)
        if bytes_needed(inputs.tree) <= pool.input_bytes:
            want = ask_reference(pool, reference, inputs, evidence, first=False)
            if not says_nothing(family, want, evidence):
                if not pool.frugal:
                    return SpotCheck(family, inputs, want, rng.random())
                again = functools.partial(ask_reference, pool, reference, inputs, evidence, first=False)
                form = replace(want, values={}, inputs_after={}, oracle={}, own={})
                return SpotCheck(family, inputs, form, rng.random(), again=again)
    except Finding:
        if reference.has_ended:
            raise
    return None


def reported_state(evidence: Evidence, names_of: Mapping[str, state_check.Names], variant: str) -> list[str]:
    """What of its state a variant's runner is asked to tell with each answer, by its own names."""
    own = names_of[variant].own if variant in names_of else {}
    return [own.get(name, name) for name in sorted(evidence.changing)]


def compare_state(want: state_check.State, have: state_check.State, evidence: Evidence) -> None:
    """See that all calls of a process set so far have left the same state behind in eager and the candidate.

    Raises:
        Finding: they have not.
    """
    if evidence.changing:
        state_check.compare_after_timing(want, have, evidence.names, evidence.changing, evidence.tolerances)


def state_after(call: Call, handle: RunnerHandle) -> dict[str, torch.Tensor]:
    """The state that was told with a call's answer, by name.

    Raises:
        RunnerFailed: it cannot be read.
    """
    if call.state is None:
        return {}
    return state_check.values_by_name(call.state, [handle.read(row) for row in call.state.tensors])
