"""Watches what interpreted kernels do with memory: uses out of bounds, and data races between programs of a launch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.uint64]
_NONE, _MANY = -1, -2
_REMEMBERED_STORES = 64  # of one program


class Fault(RuntimeError):
    """A kernel does what it must not. `code` says what: `out_of_bounds` or `race`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Region:
    """Memory that a kernel is given: its first address, its length in bytes, the parameter's name, bytes an element."""

    base: int
    size: int
    name: str
    element: int = 1


@dataclass
class Watch:
    """Finds uses of memory out of bounds in one launch.

    Attributes:
        regions: the memory of the launch; they do not overlap.
        program: which program of the launch runs now.
        where: tells kernel and line that run now.
    """

    regions: Sequence[Region]
    program: int = 0
    where: Callable[[], str] = str
    _bases: Addresses = field(init=False)
    _ends: Addresses = field(init=False)

    def __post_init__(self) -> None:
        self.regions = sorted(self.regions, key=lambda region: region.base)
        self._bases = np.array([region.base for region in self.regions], dtype=np.uint64)
        self._ends = np.array([region.base + region.size for region in self.regions], dtype=np.uint64)

    def load(self, addresses: Addresses, size: int) -> None:
        """Elements of `size` bytes are read.

        Raises:
            Fault: where no tensor lies.
        """
        self.inside(addresses, size, "reads")

    def store(self, addresses: Addresses, size: int, values: NDArray[np.generic]) -> None:
        """Elements of `size` bytes are written.

        Raises:
            Fault: where no tensor lies.
        """
        self.inside(addresses, size, "writes")

    def atomic(self, addresses: Addresses, size: int) -> None:
        """Elements of `size` bytes are read and written in one step.

        Raises:
            Fault: where no tensor lies.
        """
        self.inside(addresses, size, "changes")

    def begin(self, program: int) -> None:
        """Another program of the launch runs."""
        self.program = program

    def barrier(self) -> None:
        """The threads of the program have waited for each other."""

    def inside(self, addresses: Addresses, size: int, does: str) -> list[tuple[int, Addresses]]:
        """The regions that are used, by index, with the addresses in each.

        Raises:
            Fault: an address lies in none.
        """
        if not addresses.size:
            return []
        low, high = addresses.min(), addresses.max()
        at = int(np.searchsorted(self._bases, low, "right")) - 1
        # Sums of addresses wrap around where a kernel's do, so that ends are compared, not differences.
        if at >= 0 and int(high) + size <= int(self._ends[at]):
            return [(at, addresses)]
        found = np.searchsorted(self._bases, addresses, "right").astype(np.int64) - 1
        ends = self._ends[np.maximum(found, 0)] if self.regions else np.zeros_like(addresses)
        outside = (found < 0) | (addresses > ends - np.minimum(ends, np.uint64(size)))
        if outside.any():
            raise Fault("out_of_bounds", self._said(int(addresses[outside][0]), int(outside.sum()), size, does))
        return [(int(each), addresses[found == each]) for each in np.unique(found)]

    def _said(self, address: int, count: int, size: int, does: str) -> str:
        if not self.regions:
            return f"it {does} {size} bytes, and is given no tensor"
        near = min(
            self.regions,
            key=lambda each: max(each.base - address, address - each.base - each.size, 0),
        )
        if address < near.base:
            where = f"{near.base - address} bytes before the first of"
        else:
            where = f"{max(0, address - near.base - near.size)} bytes behind the end of"
        lanes = f" ({count} elements of this access lie outside)" if count > 1 else ""
        return f"it {does} {size} bytes, {where} {near.name}, which has {near.size} bytes{lanes}"


@dataclass
class _Users:
    """Who used the elements of a region, in the present launch: programs, or `_NONE`, `_MANY`."""

    writer: NDArray[np.int32]
    reader: NDArray[np.int32]
    atomic: NDArray[np.int32]
    store: NDArray[np.int32]  # the number of the last store there


@dataclass
class RaceWatch(Watch):
    """Finds data races, too: programs of a launch are in no order, so no two may use an element that one writes.

    What atomic operations order is not followed: such a conflict is told in `unclear`, as is a load of what the same
    program has stored with other threads and no barrier between.
    """

    unclear: list[str] = field(default_factory=list)
    _users: dict[int, _Users] = field(default_factory=dict)
    _synchronised: set[int] = field(default_factory=set)  # programs that have done something atomic
    _stores: dict[int, tuple[int, Addresses]] = field(default_factory=dict)
    _count: int = 0
    _since: int = 0  # the first store behind the last barrier of the program

    def begin(self, program: int) -> None:
        """Another program of the launch runs."""
        super().begin(program)
        self._stores.clear()
        self._since = self._count

    def barrier(self) -> None:
        """The threads of the program have waited for each other."""
        self._since = self._count

    def load(self, addresses: Addresses, size: int) -> None:
        """See `Watch.load`."""
        for users, at in self._used(addresses, size, "reads"):
            self._conflict(users.writer[at], "another program writes what it reads")
            self._conflict(users.atomic[at], "another program changes by an atomic operation what it reads")
            own = (users.writer[at] == self.program) & (users.store[at] >= self._since)
            if own.any():
                self._same_threads(addresses, int(users.store[at][own].max()))
            _mark(users.reader, at, self.program)

    def store(self, addresses: Addresses, size: int, values: NDArray[np.generic]) -> None:
        """See `Watch.store`."""
        if addresses.size > 1 and not (addresses[1:] > addresses[:-1]).all():
            _, first, inverse = np.unique(addresses, return_index=True, return_inverse=True)
            given = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
            if len(first) < addresses.size and (given != given[first[inverse.ravel()]]).any():
                raise Fault("race", "threads of one program write different values to the same place")
        self._stores[self._count] = (size, addresses)
        if len(self._stores) > _REMEMBERED_STORES:
            del self._stores[next(iter(self._stores))]
        for users, at in self._used(addresses, size, "writes"):
            self._conflict(users.writer[at], "another program writes there, too")
            self._conflict(users.reader[at], "another program reads what it writes")
            self._conflict(users.atomic[at], "another program changes by an atomic operation what it writes")
            users.writer[at] = self.program
            users.store[at] = self._count
        self._count += 1

    def atomic(self, addresses: Addresses, size: int) -> None:
        """See `Watch.atomic`."""
        for users, at in self._used(addresses, size, "changes"):
            self._conflict(users.writer[at], "another program writes what it changes by an atomic operation")
            self._conflict(users.reader[at], "another program reads what it changes by an atomic operation")
            _mark(users.atomic, at, self.program)
        self._synchronised.add(self.program)

    def _used(self, addresses: Addresses, size: int, does: str) -> list[tuple[_Users, NDArray[np.int64]]]:
        """Who used each region before, and which of its elements are used now."""
        found = []
        for index, inside in self.inside(addresses, size, does):
            region = self.regions[index]
            if index not in self._users:
                count = -(-region.size // region.element)
                self._users[index] = _Users(*(np.full(count, _NONE, dtype=np.int32) for _ in range(4)))
            at = ((inside - np.uint64(region.base)) // np.uint64(region.element)).astype(np.int64)
            if size > region.element:
                at = (at[:, None] + np.arange(size // region.element)).ravel()
            found.append((self._users[index], at))
        return found

    def _conflict(self, others: NDArray[np.int32], text: str) -> None:
        others = others[(others != _NONE) & (others != self.program)]
        if not others.size:
            return
        if self.program in self._synchronised and (_MANY in others or set(others.tolist()) <= self._synchronised):
            self._unclear(f"{text}; atomic operations may keep them apart, which is not followed")
            return
        raise Fault("race", f"a data race between programs {int(others[0])} and {self.program}: {text}")

    def _same_threads(self, addresses: Addresses, number: int) -> None:
        stored = self._stores.get(number)
        if stored is None or not np.array_equal(stored[1], addresses):
            self._unclear("it reads what other threads of its program have written, with no tl.debug_barrier between")

    def _unclear(self, text: str) -> None:
        told = f"{self.where()}: {text}"
        if told not in self.unclear:
            self.unclear.append(told)


def _mark(users: NDArray[np.int32], at: NDArray[np.int64], program: int) -> None:
    before = users[at]
    users[at] = np.where((before == _NONE) | (before == program), program, _MANY)
