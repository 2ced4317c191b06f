"""The memory of a stopped runner: read, written to, and told apart from the memory of its inputs."""

import ctypes
import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...errors import RunnerFailed
from ...isolation.handle import RunnerHandle
from ...protocol.tensors import DTYPES, TensorRow
from ..base import Places

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_INPUT_BUFFER = b"/memfd:inputs"  # as `input_buffer` names it
# In the highest byte of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst): in memory; swapped out; a page of a
# file or of shared memory; mapped here alone, which the kernel's page of zeros never is.
_PRESENT_BIT, _SWAPPED_BIT, _SHARED_BIT, _EXCLUSIVE_BIT = 0x80, 0x40, 0x20, 0x01
_libc = ctypes.CDLL(None, use_errno=True)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class ForeignMemoryError(Exception):
    """Another process's memory could not be read, or written to, where it said that its output lies."""


def read_memory(pid: int, address: int, into: torch.Tensor) -> None:
    """Fill `into`, contiguous bytes, from another process's memory (process_vm_readv).

    Raises:
        ForeignMemoryError: the range is not readable there.
    """
    size = into.numel()
    start = into.data_ptr()
    done = 0
    while done < size:
        local = _IoVec(start + done, size - done)
        remote = _IoVec(address + done, size - done)
        count = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if count <= 0:
            reason = os.strerror(ctypes.get_errno()) if count < 0 else "nothing there"
            raise ForeignMemoryError(f"{size} bytes at {address:#x}: {reason}")
        done += count


def flip_memory(pid: int, addresses: Sequence[int], bits: bytes) -> None:
    """Change these bits of as many bytes at each address, in another process (process_vm_writev).

    Raises:
        ForeignMemoryError: not all of these places may be written to there.
    """
    size, change = len(bits), bits * len(addresses)
    held = (ctypes.c_ubyte * len(change))()
    local = _IoVec(ctypes.addressof(held), len(held))
    remote = (_IoVec * len(addresses))(*(_IoVec(address, size) for address in addresses))
    for step in (_libc.process_vm_readv, _libc.process_vm_writev):
        if step is _libc.process_vm_writev:
            held[:] = [byte ^ changed for byte, changed in zip(held, change, strict=True)]
        count = step(pid, ctypes.byref(local), 1, remote, len(addresses), 0)
        if count != len(held):
            reason = os.strerror(ctypes.get_errno()) if count < 0 else "nothing there"
            raise ForeignMemoryError(f"{len(addresses)} places from {addresses[0]:#x}: {reason}")


def read(handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
    """The bytes of a tensor (its whole span) out of the stopped runner's memory.

    Raises:
        RunnerFailed: nothing readable lies there.
    """
    data = torch.empty(row.span_bytes, dtype=torch.uint8)
    try:
        read_memory(handle.pid, row.place, data)
    except ForeignMemoryError as error:
        raise RunnerFailed("unreadable", f"output memory cannot be read: {error}") from None
    return data


def flip(handle: RunnerHandle, row: TensorRow, elements: Sequence[int]) -> None:
    """Give elements of a tensor's span in the stopped runner other values; done twice, they are as before.

    Integers and booleans change by one, so that one of them that is an index stays near where it was.

    Raises:
        RunnerFailed: what lies there cannot be written to.
    """
    size = DTYPES[row.dtype].itemsize
    rounded = DTYPES[row.dtype].is_floating_point or DTYPES[row.dtype].is_complex
    bits = b"\x55" * size if rounded else (1).to_bytes(size, sys.byteorder)
    try:
        flip_memory(handle.pid, [row.place + index * size for index in elements], bits)
    except ForeignMemoryError as error:
        raise RunnerFailed("unreadable", f"output memory cannot be written to: {error}") from None


def page_faults(pid: int) -> int:
    """Minor and major page faults of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


def held_bytes(pids: Sequence[int]) -> int:
    """The most that the processes of a runner can hold of memory that was not there when they were forked, in bytes.

    A page that is shared with the fork server is as it was then. For one process there are two bounds, of which the
    lower counts: its share of all pages that it has (PSS), and those that nobody else has, with its share of files and
    shared memory, which one process may have mapped twice. For several it is their shares together, because what they
    hold may be shared among them alone. Where the kernel tells no shares (/proc/PID/smaps_rollup, Linux 4.14), it is
    all resident memory. A process that is gone holds nothing.
    """
    rollups = list(map(_rollup, pids))
    if None in rollups:
        return sum(map(_resident_bytes, pids))
    there = [rollup for rollup in rollups if rollup]
    shares = sum(rollup["Pss"] for rollup in there)
    if len(there) != 1:
        return shares
    (only,) = there
    return min(shares, only["Private_Clean"] + only["Private_Dirty"] + only["Pss_Shmem"] + only["Pss_File"])


def _rollup(pid: int) -> dict[str, int] | None:
    """The kinds of memory of a process, in bytes (Documentation/filesystems/proc.rst): none of them if it is gone.

    Returns:
        None where the kernel does not tell.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except ProcessLookupError:
        return {}
    except OSError:
        return None if Path(f"/proc/{pid}").exists() else {}
    found = {kind.rstrip(":"): int(kilobytes) * 1024 for kind, kilobytes, *_ in map(str.split, lines)}
    kinds = {"Pss", "Private_Clean", "Private_Dirty", "Pss_Shmem", "Pss_File"}
    return found if not found or kinds <= set(found) else None


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def places(pid: int, rows: Sequence[TensorRow]) -> Places:
    """Where tensors of a stopped runner lie, through any mapping that there is.

    Raises:
        OSError: the runner is gone.
    """
    kinds = [_page_kinds(pid, row) for row in rows]
    private = all(not kind & _SHARED_BIT and kind & _PRESENT_BIT for each in kinds for kind in set(each))
    suspects = [not all(map(_is_own, set(each))) for each in kinds]
    if not any(suspects):
        return Places([False] * len(rows), private=private)
    mapped = _mappings(pid)
    inside = [suspect and _lies_in_input_buffer(row, mapped) for suspect, row in zip(suspects, rows, strict=True)]
    unwritten = frozenset(
        number
        for number, row in enumerate(rows)
        if suspects[number] and not inside[number] and _is_unwritten(pid, row, kinds[number], mapped)
    )
    suspected = [row for suspect, row in zip(suspects, rows, strict=True) if suspect]
    return Places(inside, _is_folded(suspected, mapped), private, unwritten)


def _page_kinds(pid: int, row: TensorRow) -> bytes:
    """Of each page of a tensor, the highest byte of its pagemap entry; 0 where there is none."""
    if not row.span_bytes:
        return b""
    first, last = row.place // _PAGE_BYTES, (row.place + row.span_bytes - 1) // _PAGE_BYTES
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:  # noqa: PTH123 - hot path
        file.seek(first * 8)
        entries = file.read((last - first + 1) * 8)
    return entries[7::8].ljust(last - first + 1, b"\0")


def _is_own(kind: int) -> bool:
    """Whether a page of this kind is the process's own: it has been written, and no other has it."""
    return bool(kind & _PRESENT_BIT and kind & _EXCLUSIVE_BIT and not kind & _SHARED_BIT)


def _is_unwritten(pid: int, row: TensorRow, kinds: bytes, mapped: Sequence["_Mapping"]) -> bool:
    """Whether a page of a tensor can be read although the process has not written it.

    Such a page is not there until it is read, or is the kernel's page of zeros, or is a file's in a mapping that copies
    what is written.
    """
    if row.span_bytes > math.prod(row.shape) * DTYPES[row.dtype].itemsize:
        return False  # no element lies in the gaps
    page = torch.empty(_PAGE_BYTES, dtype=torch.uint8)
    for number, kind in enumerate(kinds):
        if _is_own(kind) or kind & _SWAPPED_BIT:
            continue
        address = (row.place // _PAGE_BYTES + number) * _PAGE_BYTES
        if kind & _PRESENT_BIT and kind & _SHARED_BIT:
            if any(each.copies_when_written and each.start <= address < each.end for each in mapped):
                return True
            continue
        try:
            read_memory(pid, address, page)
        except ForeignMemoryError:
            continue  # which is told when the output is read
        if not kind & _PRESENT_BIT or not bool(page.any()):
            return True
    return False


@dataclass(frozen=True)
class _Mapping:
    """Addresses, and what of which file lies there. What is written to a copy stays in the process."""

    start: int
    end: int
    file: tuple[bytes, bytes]
    offset: int
    is_input_buffer: bool
    copies_when_written: bool


def _lies_in_input_buffer(row: TensorRow, mapped: Sequence[_Mapping]) -> bool:
    return any(
        mapping.is_input_buffer and row.place < mapping.end and mapping.start < row.place + row.span_bytes
        for mapping in mapped
    )


def _is_folded(rows: Sequence[TensorRow], mapped: Sequence[_Mapping]) -> bool:
    """Whether some byte of a file lies at two addresses within these tensors."""
    parts: dict[tuple[bytes, bytes], list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        for mapping in mapped:
            start, end = max(row.place, mapping.start), min(row.place + row.span_bytes, mapping.end)
            if start < end:
                shift = mapping.offset - mapping.start
                parts[mapping.file].append((start + shift, end + shift, shift))
    for of_file in parts.values():
        reached, by = -1, 0
        for start, end, shift in sorted(of_file):
            if start < reached and shift != by:
                return True
            if end > reached:
                reached, by = end, shift
    return False


def _mappings(pid: int) -> list[_Mapping]:
    """What is mapped of files, and of shared memory, which the kernel keeps as one."""
    found = []
    with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 - hot path
        for line in file:
            span, access, offset, device, inode, *_ = line.split(None, 5)
            if inode != b"0":
                start, _, end = span.partition(b"-")
                key = (device, inode)
                copies = access.endswith(b"p")
                found.append(
                    _Mapping(int(start, 16), int(end, 16), key, int(offset, 16), _INPUT_BUFFER in line, copies)
                )
    return found
