"""The calls of CUDA's driver interface, against a library that answers as its manual says, on the host's memory."""

import contextlib
import ctypes
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.referee.errors import RunnerFailed
from evaluator.referee.platforms.gpu import driver as driver_module
from evaluator.referee.platforms.gpu.driver import GRANULE, CudaDriver, DriverError, _Properties, open_driver
from evaluator.referee.protocol.device_memory import Access
from evaluator.referee.runner.platforms.on_gpu import memory as runner_memory
from evaluator.referee.runner.platforms.on_gpu.memory import CudaMemory


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", path, source], check=True)
    return str(path)


@pytest.fixture
def driver(library: str) -> CudaDriver:
    return open_driver(library)


def content(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def read(driver: CudaDriver, address: int, nbytes: int) -> list[int]:
    found = torch.empty(nbytes, dtype=torch.uint8)
    driver.read(address, found)
    return found.tolist()


def test_bytes_are_written_filled_copied_and_read(driver: CudaDriver, library: str) -> None:
    first, second = driver.allocate(10), driver.allocate(GRANULE + 1)
    assert (first.nbytes, second.nbytes) == (GRANULE, 2 * GRANULE)
    driver.write(first.address, content(1, 2, 3, 4))
    driver.fill(second.address, 0xFF, 6)
    driver.copy(second.address + 1, first.address, 4)
    driver.wait()
    assert read(driver, second.address, 7) == [255, 1, 2, 3, 4, 255, 0]
    for nothing in (lambda: driver.fill(0, 0, 0), lambda: driver.copy(0, 0, 0), lambda: driver.write(0, content())):
        nothing()
    before = ctypes.CDLL(library).fake_live()
    driver.free(first)
    driver.free(second)
    assert ctypes.CDLL(library).fake_live() == before - 2


def test_any_thread_of_the_referee_may_use_the_device(driver: CudaDriver) -> None:
    found: list[Any] = []

    def work() -> None:
        memory = driver.allocate(4)
        driver.write(memory.address, content(7))
        found.append(read(driver, memory.address, 1))
        driver.free(memory)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[7]]


def test_memory_is_exported_opened_elsewhere_and_outlives_what_the_referee_has_of_it(
    driver: CudaDriver, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, allocation = ctypes.CDLL(library).fake_live(), driver.allocate(4)
    fd = driver.export(allocation)
    memory = CudaMemory()
    monkeypatch.setattr(memory, "device", "cpu")  # torch has no CUDA here
    monkeypatch.setattr(runner_memory, "_LIBRARY", library)
    address = memory.open(fd, allocation.nbytes)
    os.close(fd)
    assert address != allocation.address
    driver.write(allocation.address, content(1, 2, 3))
    assert ctypes.string_at(address, 3) == bytes((1, 2, 3))
    driver.free(allocation)
    assert ctypes.string_at(address, 3) == bytes((1, 2, 3))
    assert ctypes.CDLL(library).fake_live() == before
    with pytest.raises(RuntimeError, match="cannot be opened or closed: cuMemImportFromShareableHandle: status 1"):
        memory.open(fd, allocation.nbytes)


def test_what_a_runner_has_opened_is_given_back_when_it_is_closed_and_no_tensor_lies_there(
    driver: CudaDriver, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    memory = CudaMemory()
    monkeypatch.setattr(memory, "device", "cpu")  # torch has no CUDA here
    monkeypatch.setattr(runner_memory, "_LIBRARY", library)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch, "as_tensor", lambda source, device: held.append(source))
    before = ctypes.CDLL(library).fake_live()
    allocation = driver.allocate(4096)
    fd = driver.export(allocation)
    address = memory.open(fd, allocation.nbytes)
    os.close(fd)
    driver.free(allocation)
    memory.at(address + 256, 64)
    memory.close(address)
    assert ctypes.CDLL(library).fake_live() == before
    assert _is_mapped(address)  # a tensor lies there
    held.clear()
    assert not _is_mapped(address)
    memory.close(address)  # once more is no fault


def _is_mapped(address: int) -> bool:
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(low, 16) <= address < int(high, 16) for low, high in spans)


def test_structures_are_as_large_as_those_of_the_header_and_lie_as_there() -> None:
    assert ctypes.sizeof(_Properties) == 32 and _Properties.location.offset == 8  # type: ignore[attr-defined]
    assert _Properties.of_windows.offset == 16 and _Properties.flags.offset == 24
    assert ctypes.sizeof(Access) == 12 and Access.flags.offset == 8


def test_the_time_between_two_marks_is_the_devices_and_marks_are_given_back(driver: CudaDriver, library: str) -> None:
    first = driver.mark()
    time.sleep(0.02)
    second = driver.mark()
    assert 0.02 <= driver.between_s(first, second) < 5
    assert ctypes.CDLL(library).fake_events() == 0
    with pytest.raises(KeyError):
        driver.between_s(first, second)


def test_what_the_device_is_like(driver: CudaDriver) -> None:
    assert driver.l2_bytes == 60 << 20
    assert driver.version() == "13.0"
    driver.forget_persistence()


@pytest.mark.parametrize(("status", "refused"), [(801, False), (1, True)])
def test_a_device_on_which_nothing_persists_is_no_failure(
    driver: CudaDriver, monkeypatch: pytest.MonkeyPatch, status: int, refused: bool
) -> None:
    def call(name: str, *_: Any) -> None:
        raise DriverError(name, status)

    monkeypatch.setattr(driver, "_call", call)
    with pytest.raises(DriverError) if refused else contextlib.nullcontext():
        driver.forget_persistence()


def test_too_much_memory_is_a_failure_of_whoever_asked(driver: CudaDriver) -> None:
    with pytest.raises(RunnerFailed, match="cuMemCreate: out of memory") as failed:
        driver.allocate(1 << 40)
    assert failed.value.kind == "out_of_memory"


def test_a_refused_call_is_named(driver: CudaDriver, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="cuNoSuchThing: not in this driver") as refused:
        driver._call("cuNoSuchThing")
    assert refused.value.status is None
    with pytest.raises(DriverError):
        open_driver(str(tmp_path / "libcuda.so.1"))


def test_device_files_that_are_missing_are_named_where_the_driver_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, library = tmp_path / "broken.c", str(tmp_path / "libcuda.so.1")
    source.write_text("int cuInit(unsigned flags) { return 304; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setattr(driver_module, "_NODES", ("/dev/null", "/dev/no-such"))
    with pytest.raises(DriverError, match="cuInit: status 304; not there: /dev/no-such"):
        open_driver(library)
    monkeypatch.setattr(driver_module, "_NODES", ("/dev/null",))
    with pytest.raises(DriverError, match=r"cuInit: status 304$"):
        open_driver(library)
