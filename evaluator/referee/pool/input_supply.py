"""Fresh inputs: made by the task's own generator in the reference's process, copied into the referee's memory."""

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

AT_ONCE_BYTES = 64 << 20  # in one turn of the reference
_WORTH_WHILE_BYTES = 256 << 10  # for fewer, having them made beside other work costs more than it saves


def make_inputs(
    pool: RunnerPool,
    reference: RunnerHandle,
    family: str = input_families.FAMILIES[0],
    *,
    some: bool = False,
    alike: bool = False,
) -> InputSet:
    """A fresh set of inputs. With `some`, the family changes only some of them; with `alike`, all sets alike.

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
    """What the reference is asked for: a set for each of the seeds, which go with those of the calls on it."""

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
    """What has been made, out of the reference's memory.

    Raises:
        Finding: it is not what was ordered.
        RunnerFailed: it cannot be read.
    """
    trees, changed = reference.trees(reply), reply.get("changed")
    if len(trees) != len(order.seeds) or not isinstance(changed, list) or len(changed) != len(trees):
        text = "the reference's process answered with other inputs than asked for"
        raise Finding("task_invalid", text, "protocol")
    if _share_memory(trees):
        # A generator that fills one buffer anew: only the last of these inputs is still what it was.
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

    While a round goes on, the reference makes the next one's, as many as it makes in one turn, but only between
    `resume` and `pause`: when nothing is timed.
    """

    pool: RunnerPool
    reference: RunnerHandle
    _ready: list[InputSet] = field(default_factory=list)
    _ordered: _Order | None = None

    def at_once(self) -> int:
        """How many sets the reference makes in one turn."""
        return 1 if self.pool.one_by_one else max(1, AT_ONCE_BYTES // max(1, self.pool.input_bytes))

    def take(self, count: int) -> list[InputSet]:
        """So many sets; those that are not ready yet are made now. The reference is free for other questions then.

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
        """Have so many made meanwhile, if they are large enough for that to be worth while."""
        wanted = min(count - len(self._ready), self.at_once())
        if wanted <= 0 or count * self.pool.input_bytes < _WORTH_WHILE_BYTES:
            return
        self._ordered = _order(self.pool, input_families.FAMILIES[0], wanted)
        with task_step("making inputs"):
            self.reference.begin({**self._ordered.message, "beside": True})

    def collect(self) -> None:
        """Wait for what is being made, so that the reference stands still.

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
        """Nothing is timed for now: the reference may work."""
        if self._ordered is not None:
            self.reference.resume()

    def pause(self) -> None:
        """Something will be timed: the reference stops."""
        if self._ordered is not None:
            self.reference.pause()


def _share_memory(trees: list[Tree]) -> bool:
    """Whether tensors of one tree lie where those of another do."""
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
