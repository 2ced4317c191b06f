"""Whether a GPU is there, and what its driver tells: against a library that answers as NVML's manual says."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from evaluator.platforms.gpu.driver import facts_of, gpu_at, library_folders, nodes_of, provenance_of
from evaluator.referee.protocol import nvml
from evaluator.referee.protocol.nvml import Gpu, NvmlError, State, User, opened

UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", path, source], check=True)
    return str(path)


def test_a_gpu_is_there_where_the_driver_answers_for_its_index(library: str) -> None:
    assert gpu_at(0, library=library) == Gpu(
        index=0,
        uuid=UUID,
        name="NVIDIA H200",
        compute_capability="9.0",
        memory_bytes=150754820096,
        driver="580.65.06",
        minor=3,
        max_clock_mhz=1980,
        max_memory_clock_mhz=3201,
        power_limit_w=700.0,
        persistent=True,
        ecc=True,
        partitioned=None,
    )


def test_the_drivers_folder_is_named_where_the_linker_does_not_know_it(library: str, tmp_path: Path) -> None:
    known = tmp_path / "ld.so.cache"
    assert library_folders(library=library, known=known) == (str(Path(library).parent),)
    known.write_bytes(b"libnvidia-ml.so.1\0/no/such/libnvidia-ml.so.1\0")
    assert library_folders(library=library, known=known) == (str(Path(library).parent),)
    known.write_bytes(b"libnvidia-ml.so.1\0" + library.encode() + b"\0")
    assert library_folders(library=library, known=known) == ()
    assert library_folders(library=str(tmp_path / "libnvidia-ml.so.1"), known=known) == ()


@pytest.mark.parametrize("index", [1, -1])
def test_no_gpu_is_there_for_an_index_beyond_those_that_there_are(library: str, index: int) -> None:
    assert gpu_at(index, library=library) is None


def test_no_gpu_is_there_without_the_drivers_library(tmp_path: Path) -> None:
    assert gpu_at(0, library=str(tmp_path / "libnvidia-ml.so.1")) is None
    with pytest.raises(NvmlError):
        opened(str(tmp_path / "libnvidia-ml.so.1")).__enter__()


def test_no_gpu_is_there_where_the_library_has_no_driver(tmp_path: Path) -> None:
    source = tmp_path / "none.c"
    source.write_text("int nvmlInit_v2(void) { return 9; }\n")  # NVML_ERROR_DRIVER_NOT_LOADED
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "none.so", source], check=True)
    assert gpu_at(0, library=str(tmp_path / "none.so")) is None


def test_each_session_is_closed(library: str) -> None:
    gpu_at(0, library=library)
    with pytest.raises(NvmlError), opened(library) as session:
        session.at(7)
    assert ctypes.CDLL(library).fake_open_sessions() == 0


def test_the_state_of_a_gpu_is_told(library: str) -> None:
    with opened(library) as session:
        assert session.state(UUID) == State(1755, 3201, 41, 123.456, 0x24, 0.37)
        with pytest.raises(NvmlError, match="nvmlDeviceGetHandleByUUID"):
            session.state("GPU-of-another-host")


def test_all_who_compute_are_told_however_many_they_are(library: str) -> None:
    with opened(library) as session:
        users = session.users(UUID)
    assert len(users) == 20
    assert users[:2] == (User(1000, None), User(1001, 1 << 20))


def test_what_a_version_of_the_library_lacks_is_not_told(tmp_path: Path) -> None:
    source = Path(__file__).with_name("fake_nvml.c").read_text()
    shorter = tmp_path / "shorter.c"
    shorter.write_text(source.replace("nvmlDeviceGetPowerUsage", "nvmlOtherName").replace("GetMinorNumber", "Other"))
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "shorter.so", shorter], check=True)
    with opened(str(tmp_path / "shorter.so")) as session:
        assert session.state(UUID).power_w is None
        assert session.at(0).minor is None
    assert nodes_of(Gpu(0, UUID, "g", "9.0", 1, "5")) == ("/dev/nvidiactl", "/dev/nvidia-uvm")


def test_reasons_for_low_clocks_have_words_and_only_some_make_times_differ() -> None:
    assert nvml.reasons_text(0) == []
    assert nvml.reasons_text(0x24) == ["power cap", "thermal slowdown (software)"]
    assert nvml.reasons_text(0x1 | 0x8000) == ["idle", "reason 0x8000"]
    assert not nvml.disturbs(0x1 | 0x2 | 0x4 | 0x100)
    assert all(map(nvml.disturbs, (0x8, 0x20, 0x40, 0x80, 0x84)))


def test_strangers_are_all_but_ones_own_where_own_pids_are_told_and_else_who_was_there_before() -> None:
    assert nvml.strangers(before=[5], now=[5, 6, 7], ours=[6]) == [5, 7]
    assert nvml.strangers(before=[5], now=[5, 900, 901], ours=[6]) == [5]
    assert nvml.strangers(before=[5], now=[900], ours=[6]) == []
    assert nvml.strangers(before=[], now=[], ours=[6]) == []


def test_the_facts_of_a_gpu_name_what_times_depend_on(library: str) -> None:
    gpu = gpu_at(0, library=library)
    assert gpu is not None
    assert facts_of(gpu) == {
        "timed": "on the device",
        "compute capability": "9.0",
        "memory": "140 GiB",
        "highest clocks": "1980 MHz, memory 3201 MHz",
        "power limit": "700 W",
    }
    assert provenance_of(gpu) == {
        "gpu_uuid": UUID,
        "gpu_driver": "580.65.06",
        "gpu_persistence_mode": "on",
        "gpu_ecc": "on",
    }
    assert nodes_of(gpu) == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3")
