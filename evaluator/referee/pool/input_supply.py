"""Fresh inputs: the task's generator makes them in the reference's runner, and the referee copies them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..errors import Finding
from ..isolation.calls import InputSet, copy_value
from ..isolation.handle import RunnerHandle
from ..protocol import framing, input_families
from ..protocol.tensors import Tree, bytes_needed
from .runner_pool import RunnerPool, task_step

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
        alike: whether the family makes the same change in every set.

    Raises:
        Finding: the task's generator fails.
    """
    how = {"some": some, "change_seed": pool.seeds.named(f"change {family}") if alike else None}
    order = _order(pool, family, 1, how)
    with task_step(f"making inputs ({family})"):
        [inputs] = _copied(pool, reference, order, reference.ask(order.message, timeout_s=60))
    return inputs


@dataclass(frozen=True)
class _Order:
    """A request for input sets to the reference. `seeds` holds each set's own seed and the seed of its calls."""

    family: str
    seeds: list[tuple[int, int]]
    message: framing.Message


def _order(pool: RunnerPool, family: str, count: int, how: Mapping[str, Any] = MappingProxyType({})) -> _Order:
    seeds = [pool.seeds.next() for _ in range(count)]
    message = {
        "op": "inputs",
        "family": family,
        "domains": pool.request.domain,
        "seeds": [seed for seed, _ in seeds],
        "how": dict(how),
    }
    return _Order(family, seeds, message)


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
        return [make_inputs(pool, reference, order.family) for _ in trees]
    generated = order.family.startswith(input_families.GENERATED)
    if generated and any(bytes_needed(tree) > pool.input_bytes for tree in trees):
        raise Finding("task_invalid", "get_inputs() returns larger tensors on a later call", "inputs_change")
    sets = [copy_value(reference, tree, pool.memory_bytes // 3) for tree in trees]
    reference.ask({"op": "release"}, timeout_s=60)
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
    _ready: list[InputSet] = field(default_factory=list)
    _ordered: _Order | None = None

    def at_once(self) -> int:
        """How many sets the reference makes in one turn."""
        return 1 if self.pool.one_by_one else max(1, AT_ONCE_BYTES // max(1, self.pool.input_bytes))

    def take(self, count: int) -> list[InputSet]:
        """Take `count` sets. Sets that are not ready yet are made now, so afterwards the reference is idle.

        Raises:
            Finding: the task's generator fails.
        """
        with task_step("making inputs"):
            self._collect()
            while len(self._ready) < count:
                order = _order(self.pool, input_families.FAMILIES[0], min(self.at_once(), count - len(self._ready)))
                reply = self.reference.ask(order.message, timeout_s=60 * count)
                self._ready += _copied(self.pool, self.reference, order, reply)
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def prepare(self, count: int) -> None:
        """Order `count` sets to be made between `resume` and `pause`, if they are large enough to be worth it.

        Raises:
            Finding: the reference's process is gone.
        """
        wanted = min(count - len(self._ready), self.at_once())
        if wanted <= 0 or count * self.pool.input_bytes < _WORTH_WHILE_BYTES:
            return
        self._ordered = _order(self.pool, input_families.FAMILIES[0], wanted)
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
            reply = self.reference.finish(timeout_s=60 * len(order.seeds))
            self._ready += _copied(self.pool, self.reference, order, reply)

    def resume(self) -> None:
        """Let the reference work on its order: nothing is timed for now."""
        if self._ordered is not None:
            self.reference.resume()

    def pause(self) -> None:
        """Stop the reference: something will be timed."""
        if self._ordered is not None:
            self.reference.pause()


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
