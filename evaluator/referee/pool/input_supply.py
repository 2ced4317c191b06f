"""Fresh inputs: the task's generator makes them in the reference's runner, and the referee copies them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, overload

from ..errors import Finding
from ..isolation.calls import InputSet, copy_value
from ..isolation.handle import RunnerHandle
from ..protocol import framing, input_families
from ..protocol.tensors import Tree, bytes_needed
from .runner_pool import RunnerPool, task_step
from .smaller_inputs import fit, says

AT_ONCE_BYTES = 64 << 20  # of inputs made in one turn of the reference
_WORTH_WHILE_BYTES = 256 << 10  # for fewer, making inputs beside other work costs more than it saves


def make_inputs(
    pool: RunnerPool,
    reference: RunnerHandle,
    family: str = input_families.FAMILIES[0],
    *,
    some: bool = False,
    alike: bool = False,
) -> InputSet:
    """Make a fresh set of inputs.

    Args:
        pool: the runner pool.
        reference: the reference's runner.
        family: the input family.
        some: whether the family changes only a random choice of the inputs.
        alike: whether the family makes the same change to integers in every set.

    Raises:
        Finding: the task's generator fails.
    """
    return _make(pool, reference, family, _how(pool, family, some=some, alike=alike))


def fit_inputs(pool: RunnerPool, reference: RunnerHandle) -> list[str]:
    """From here on make all inputs as small as the platform needs them, if it needs that.

    Returns:
        What becomes smaller, for people.

    Raises:
        Finding: the task's generator fails, or the reference's process is gone.
    """
    if pool.platform.most_work is None or pool.request.source_kernel:  # nobody knows its work, or which sizes it takes
        return []
    inputs = make_inputs(pool, reference)
    pool.smaller = fit(reference, inputs, pool.initial, pool.platform.most_work)
    return says(pool.smaller, inputs.tree) if pool.smaller is not None else []


def _make(pool: RunnerPool, reference: RunnerHandle, family: str, how: Mapping[str, Any]) -> InputSet:
    order = _order(pool, [family], how)
    with task_step(f"making inputs ({family})"):
        [inputs] = _copied(pool, reference, order, _ask(pool, reference, order, 60))
    return inputs


@dataclass(frozen=True)
class Begun:
    """A set of inputs that the reference makes beside the referee's work, until `finish`."""

    pool: RunnerPool
    reference: RunnerHandle
    family: str
    order: "_Order"

    def finish(self) -> InputSet:
        """The set. The reference is stopped afterwards.

        Raises:
            Finding: the task's generator fails.
        """
        with task_step(f"making inputs ({self.family})"):
            reply = self.reference.finish(timeout_s=60)
            [inputs] = _copied(self.pool, self.reference, self.order, reply)
        return inputs


def begin_inputs(pool: RunnerPool, reference: RunnerHandle, family: str, *, alike: bool = False) -> Begun | None:
    """Have the reference begin with a fresh set of inputs, while nothing is timed; None if it is too small for that.

    The arguments are those of `make_inputs`.

    Raises:
        Finding: the reference's process is gone.
    """
    if pool.input_bytes < _WORTH_WHILE_BYTES:
        return None
    order = _order(pool, [family], _how(pool, family, some=False, alike=alike))
    with task_step(f"making inputs ({family})"):
        reference.begin({**order.message, "beside": True})
        reference.resume()
    return Begun(pool, reference, family, order)


@dataclass(frozen=True)
class Change:
    """What is changed in some of the input sets of timed calls, so that no sample of the inputs tells the others.

    Attributes:
        family: the input family.
        share: of the sets, which are drawn one by one.
        some: whether the family changes only a random choice of the inputs.
        alike: whether it makes the same change to integers in every set.
        is_taken: whether the reference takes a changed set as it takes those as generated. Any other is not used.
    """

    family: str
    share: float
    some: bool
    alike: bool
    is_taken: Callable[[InputSet], bool]


@dataclass(frozen=True)
class _Order:
    """A request for input sets to the reference: their families, each set's own seed and the seed of its calls.

    `how` says how the families change them, but for inputs as generated.
    """

    families: Sequence[str]
    how: Mapping[str, Any]
    seeds: list[tuple[int, int]]
    message: framing.Message


def _how(pool: RunnerPool, family: str, *, some: bool, alike: bool) -> Mapping[str, Any]:
    return {"some": some, "change_seed": pool.seeds.named(f"change {family}") if alike else None}


def _order(pool: RunnerPool, families: Sequence[str], how: Mapping[str, Any] = MappingProxyType({})) -> _Order:
    seeds = [pool.seeds.next() for _ in families]
    message = {
        "op": "inputs",
        "families": list(families),
        "domains": pool.request.domain,
        "seeds": [seed for seed, _ in seeds],
        "how": dict(how),
        "give_back": pool.frugal,
        "smaller": None if pool.smaller is None else pool.smaller.to_json(),
    }
    return _Order(families, how, seeds, message)


def _ask(pool: RunnerPool, reference: RunnerHandle, order: _Order, timeout_s: float) -> framing.Message:
    """Have the reference make what is ordered. Where memory is short it holds no inputs of a call meanwhile."""
    if pool.frugal:
        reference.empty_buffer()
    return reference.ask(order.message, timeout_s=timeout_s)


def _copied(pool: RunnerPool, reference: RunnerHandle, order: _Order, reply: framing.Message) -> list[InputSet]:
    """Copy the sets that an order asked for out of the reference's memory.

    Raises:
        Finding: the answer holds other inputs than the order asked for.
        RunnerFailed: the inputs cannot be read.
    """
    trees, changed = reference.trees(reply), reply.get("changed")
    if len(trees) != len(order.seeds) or not isinstance(changed, list) or len(changed) != len(trees):
        text = "the reference's process answered with other inputs than asked for"
        raise Finding("task_invalid", text, "protocol")
    if _share_memory(trees):
        # The generator fills one buffer again and again, so only the last of these sets still holds its values.
        pool.one_by_one = True
        return [_make(pool, reference, family, order.how) for family in order.families]
    generated = [family.startswith(input_families.GENERATED) for family in order.families]
    if any(bytes_needed(tree) > pool.input_bytes for tree, of in zip(trees, generated, strict=True) if of):
        raise Finding("task_invalid", "get_inputs() returns larger tensors on a later call", "inputs_change")
    sets = [copy_value(reference, tree, pool.memory_bytes // 3) for tree in trees]
    pool.release(reference)
    return [
        InputSet(tree, contents, call, has_changed is not False)
        for (tree, contents), (_, call), has_changed in zip(sets, order.seeds, changed, strict=True)
    ]


@dataclass
class InputSupply:
    """Fresh inputs for one round of timed calls after another.

    During a round, the reference makes the inputs of the next round, at most as many as it makes in one turn. It runs
    only between `resume` and `pause`, when nothing is timed.
    """

    pool: RunnerPool
    reference: RunnerHandle
    change: Change | None = None
    _ready: list[tuple[str, InputSet]] = field(default_factory=list)  # each with its family
    _ordered: _Order | None = None
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.pool.seeds.named("changed inputs"))  # noqa: S311 - which sets are changed

    def at_once(self) -> int:
        """How many sets the reference makes in one turn."""
        return 1 if self.pool.one_by_one else max(1, AT_ONCE_BYTES // max(1, self.pool.input_bytes))

    def take(self, count: int) -> list[InputSet]:
        """Take `count` sets. Sets that are not ready yet are made now, so afterwards the reference is idle.

        Raises:
            Finding: the task's generator fails.
        """
        taken: list[InputSet] = []
        with task_step("making inputs"):
            self._collect()
            while len(taken) < count:
                if not self._ready:
                    order = self._next_order(min(self.at_once(), count - len(taken)))
                    self._receive(order, _ask(self.pool, self.reference, order, 60 * count))
                family, inputs = self._ready.pop(0)
                if self.change is None or family != self.change.family or self.change.is_taken(inputs):
                    taken.append(inputs)
        return taken

    def _next_order(self, count: int) -> _Order:
        """An order for `count` sets, some of them changed."""
        change, generated = self.change, input_families.GENERATED
        if change is None:
            return _order(self.pool, [generated] * count)
        families = [change.family if self._rng.random() < change.share else generated for _ in range(count)]
        return _order(self.pool, families, _how(self.pool, change.family, some=change.some, alike=change.alike))

    def _receive(self, order: _Order, reply: framing.Message) -> None:
        self._ready += zip(order.families, _copied(self.pool, self.reference, order, reply), strict=True)

    def prepare(self, count: int) -> None:
        """Order `count` sets to be made between `resume` and `pause`, if they are large enough to be worth it.

        Raises:
            Finding: the reference's process is gone.
        """
        wanted = min(count - len(self._ready), self.at_once())
        if self.pool.frugal or wanted <= 0 or count * self.pool.input_bytes < _WORTH_WHILE_BYTES:
            return
        self._ordered = self._next_order(wanted)
        with task_step("making inputs"):
            self.reference.begin({**self._ordered.message, "beside": True})

    def collect(self) -> None:
        """Wait for the sets that have been ordered, so that the reference is stopped afterwards.

        Raises:
            Finding: the task's generator fails.
        """
        with task_step("making inputs"):
            self._collect()

    def _collect(self) -> None:
        order, self._ordered = self._ordered, None
        if order is not None:
            self._receive(order, self.reference.finish(timeout_s=60 * len(order.seeds)))

    def resume(self) -> None:
        """Let the reference work on its order: nothing is timed for now."""
        if self._ordered is not None:
            self.reference.resume()

    def pause(self) -> None:
        """Stop the reference: something will be timed."""
        if self._ordered is not None:
            self.reference.pause()


class OneByOne(Sequence[InputSet]):
    """The inputs of a round where memory is short: each is made when it is asked for, and lets go of the one before."""

    def __init__(self, supply: InputSupply, count: int) -> None:
        self._supply, self._count = supply, count

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> InputSet: ...
    @overload
    def __getitem__(self, index: slice) -> list[InputSet]: ...
    def __getitem__(self, index: int | slice) -> InputSet | list[InputSet]:
        """A fresh set, another one each time."""
        if isinstance(index, slice):
            return self._supply.take(len(range(*index.indices(self._count))))
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._supply.take(1)[0]


def _share_memory(trees: list[Tree]) -> bool:
    """Whether a tensor of one tree overlaps a tensor of another."""
    spans = sorted(
        (row.place, row.place + row.span_bytes, number)
        for number, tree in enumerate(trees)
        for row in tree.tensors
        if row.span_bytes
    )
    end, owner = 0, -1
    for start, stop, number in spans:
        if start < end and number != owner:
            return True
        if stop > end:
            end, owner = stop, number
    return False
