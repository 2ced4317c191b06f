"""What is told of a device before anything runs on it: measured in its sandbox, kept, and put into words."""

import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaluator.device_figures import DeviceFigures, FigureStore, measure_device
from evaluator.platforms import Device, load_platform
from evaluator.platforms.cpu.device_text import (
    cpu_list,
    device_text,
    execution_units,
    sharing_cores,
    streaming_pays_from,
    vector_extensions,
)
from evaluator.referee.runner.platforms.cpu.device_figures import SIZES, confirmed
from sandbox.base import Sandbox
from sandbox.docker.sandbox import DockerSandbox

MIB = 1 << 20
DEVICE = Device("cpu", "a processor, 2 cores", {"cores": "2", "vector extensions": "avx2", "caches": "L1 32K"}, 0)
SANDBOX = {"name": "docker", "image_id": "1"}


def row(mib: float, copy: float | None = None, copy_streamed: float | None = None, **more: float) -> dict[str, float]:
    rates = {"copy": copy, "copy_streamed": copy_streamed, **more}
    return {"bytes": mib * MIB, **{name: rate * 1e9 for name, rate in rates.items() if rate is not None}}


FIGURES: dict[str, Any] = {
    "threads": 2,
    "rates": [
        row(4, 61.4, 42.6, read=80.2, write=30.5, write_streamed=24.0),
        row(8, 33.3, 40.7, write=28.5, write_streamed=26.0),
        row(16, 28.7, 38.7, read=26.4, write=27.8, write_streamed=26.2),
    ],
    "flops_per_s": 173.2e9,
    "wake_s": {"at_once": 0.66e-6, "after_1_ms": 0.99e-6, "after_10_ms": 43e-6},
    "noisy": False,
}
SHARING = [[0, 2], [1, 3]]


# Where streaming stores begin to pay


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([row(1, 60, 40), row(2, 50, 49), row(4, 30, 40), row(8, 28, 39)], 4),
        ([row(8, 28, 39), row(1, 60, 40), row(4, 30, 40), row(2, 50, 49)], 4),
        ([row(1, 40, 60), row(2, 40, 60)], 1),
        ([row(1, 60, 40), row(2, 60, 40)], None),
        ([row(1, 60, 40), row(2, 30, 40), row(4, 60, 40)], None),  # not from there on
        ([row(1, 60, 40), row(2, 30, 40), row(4, 60, 40), row(8, 30, 40)], 8),
        ([row(1, 60, 60), row(2, 60, 61)], None),  # no gain worth having
        ([row(1, 60, 40), row(2, 30, 40), row(4), row(8, 30, 40)], 2),
        ([row(1, 60, 40), row(2, 30, None), row(4, None, 40), row(8, 30, 40)], 8),
        ([row(1, 60), row(2, 60)], None),
        ([], None),
    ],
)
def test_streaming_stores_pay_from_the_size_on_from_which_they_always_do(
    rates: list[dict[str, float]], expected: float | None
) -> None:
    assert streaming_pays_from(rates) == (None if expected is None else expected * MIB)


# The kernel's words


@pytest.mark.parametrize(
    ("text", "expected"), [("0\n", {0}), ("0-1\n", {0, 1}), ("0,64", {0, 64}), ("0-2,8-9,11", {0, 1, 2, 8, 9, 11})]
)
def test_lists_of_processors(text: str, expected: set[int]) -> None:
    assert cpu_list(text) == expected


@pytest.mark.parametrize("text", ["", "a", "0-", "1;2"])
def test_what_is_no_list_of_processors_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        cpu_list(text)


def siblings(folder: Path, lists: Mapping[int, str]) -> Path:
    for cpu, text in lists.items():
        (folder / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(text)
    return folder


def test_processors_share_a_core_if_two_of_them_may_be_used(tmp_path: Path) -> None:
    cpus = siblings(tmp_path, {0: "0,2\n", 1: "1,3\n", 2: "0,2\n", 3: "1,3\n"})
    assert sharing_cores(cpus, {0, 1, 2, 3}) == SHARING
    assert sharing_cores(cpus, {0, 2, 3}) == [[0, 2]]
    assert sharing_cores(cpus, {0, 1}) == []
    assert sharing_cores(cpus, {7}) == [], "the kernel says nothing of it"
    assert sharing_cores(siblings(tmp_path / "odd", {0: "nonsense"}), {0}) == []


def test_words_for_what_cores_share() -> None:
    assert execution_units([]).startswith("each core has its own")
    assert execution_units(SHARING) == "shared, for these are hardware threads of one core each: 0+2, 1+3"


def test_every_flag_for_vectors_is_named_and_no_other() -> None:
    flags = "fpu sse2 sse4_2 avx avx2 fma f16c bmi2 avx512f avx512_vnni avx_vnni amx_tile amx_int8 aes rdrand sha_ni"
    named = "amx_int8 amx_tile avx avx2 avx512_vnni avx512f avx_vnni bmi2 f16c fma sse4_2"
    assert vector_extensions(flags.split()) == named.split()


# The text


def test_the_text_with_figures() -> None:
    assert device_text(DEVICE, ["avx2", "fma"], SHARING, FIGURES).splitlines() == [
        "a processor, 2 cores",
        "cores: 2",
        "vector extensions: avx2 fma",
        "caches: L1 32K",
        "execution units: shared, for these are hardware threads of one core each: 0+2, 1+3",
        "measured here by C++ kernels with 2 OpenMP threads, on inputs written just before and outputs that take turns,"
        " as in an evaluation:",
        "size of each array | read GB/s | write GB/s | write streamed GB/s | copy GB/s | copy streamed GB/s",
        "4 MiB | 80.2 | 30.5 | 24 | 61.4 | 42.6",
        "8 MiB | unknown | 28.5 | 26 | 33.3 | 40.7",
        "16 MiB | 26.4 | 27.8 | 26.2 | 28.7 | 38.7",
        "(copy: bytes read plus bytes written; streamed: by non-temporal stores)",
        "non-temporal stores begin to pay at 8 MiB of output on this device",
        "matrix products of float32 by torch: 173 GFLOP/s",
        "an empty parallel region of all threads takes 0.66 µs right after another one, 0.99 µs after 1 ms of idleness,"
        " 43 µs after 10 ms",
    ]


def test_a_size_of_which_nothing_is_known_has_no_row() -> None:
    figures = {**FIGURES, "rates": [*FIGURES["rates"], {"bytes": 64 * 2**20}]}
    with_it, without = (device_text(DEVICE, ["avx2"], SHARING, each) for each in (figures, FIGURES))
    assert with_it == without


def test_the_text_leaves_out_figures_that_nobody_has_measured() -> None:
    text = device_text(DEVICE, ["avx2", "fma"], [], {})
    assert text.splitlines()[-1].startswith("execution units: ")
    assert "GB/s" not in text and "vector extensions: avx2 fma" in text


def test_the_text_says_that_streaming_never_pays_and_is_silent_where_it_is_not_possible() -> None:
    never = device_text(DEVICE, [], [], {**FIGURES, "rates": [row(1, 60, 40), row(64, 60, 40)]})
    assert "non-temporal stores do not pay up to 64 MiB of output on this device" in never
    without = device_text(DEVICE, [], [], {**FIGURES, "rates": [row(1, 60, read=50), row(64, 60)]})
    assert "non-temporal stores" not in without.replace("(copy: bytes read plus bytes written; streamed: by non", "")
    assert "streamed GB/s" not in without and "1 MiB | 50 | 60" in without


def test_the_text_says_that_other_programs_disturbed_the_measurement() -> None:
    assert "may be too low" in device_text(DEVICE, [], [], {**FIGURES, "noisy": True})


@pytest.mark.parametrize("name", ["cpu", "simulated"])
def test_figures_and_flags_never_enter_what_identifies_a_device(name: str) -> None:
    """The class of a device, its peaks and its boards hang on `describe`."""
    platform = load_platform(name)
    device = platform.device()
    text = platform.device_text(device, FIGURES if platform.measurable else {})
    assert text.startswith(device.name)
    assert "GB/s" not in device.describe() and "execution units" not in device.describe()
    assert platform.measurable == (name == "cpu")


# The store


def test_figures_are_kept_for_a_device_in_a_sandbox_with_their_date(tmp_path: Path) -> None:
    store = FigureStore(tmp_path / "devices")
    assert store.get(DEVICE, SANDBOX) is None and store.known(DEVICE) == []
    store.put(DEVICE, SANDBOX, FIGURES)
    found = store.get(DEVICE, SANDBOX)
    assert found is not None and found.values == FIGURES and found.sandbox == "docker"
    assert store.get(DEVICE, {**SANDBOX, "image_id": "2"}) is None
    other = Device("cpu", "another processor", {}, 0)
    assert store.get(other, SANDBOX) is None and store.known(other) == []
    store.put(DEVICE, {"name": "process"}, FIGURES)
    assert {each.sandbox for each in store.known(DEVICE)} == {"docker", "process"}
    assert all(isinstance(each, DeviceFigures) and len(each.measured_on) == 10 for each in store.known(DEVICE))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"figures": 3, "measured_on": "2026-01-01"}', '{"figures": {}}'])
def test_a_file_that_cannot_be_read_is_as_if_it_were_not_there(tmp_path: Path, content: str) -> None:
    store = FigureStore(tmp_path)
    store.put(DEVICE, SANDBOX, FIGURES)
    [file] = tmp_path.iterdir()
    assert json.loads(file.read_text())["device"] == DEVICE.describe()
    file.write_text(content)
    assert store.get(DEVICE, SANDBOX) is None and store.known(DEVICE) == []
    store.put(DEVICE, SANDBOX, FIGURES)
    assert store.get(DEVICE, SANDBOX) is not None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    FigureStore(tmp_path / "file").put(DEVICE, SANDBOX, FIGURES)
    assert FigureStore(tmp_path / "file").get(DEVICE, SANDBOX) is None


# Measuring


def test_a_time_counts_when_a_second_one_agrees_with_it() -> None:
    steady, erratic = iter([9.0, 5.0, 2.0, 2.1]), itertools.count()

    def run() -> float:
        time.sleep(0.02)
        return next(steady, 4.0)

    found = confirmed({"steady": run, "erratic": lambda: 2.0 ** -next(erratic)})
    assert found == {"steady": 2.0}


@pytest.mark.docker
@pytest.mark.usefixtures("every_core")
def test_a_processor_is_measured_in_its_sandbox(docker_sandbox: DockerSandbox) -> None:
    platform, told = load_platform("cpu"), list[str]()
    found = measure_device(platform, 0, docker_sandbox, on_progress=told.append)
    assert any("measuring the device" in text for text in told)
    assert [rates["bytes"] for rates in found["rates"]] == list(SIZES)
    known = [rate for rates in found["rates"] for name, rate in rates.items() if name != "bytes"]
    assert known and all(1e8 < rate < 1e13 for rate in known)
    assert 1e8 < found["flops_per_s"] < 1e15
    assert all(0 < seconds < 1 for seconds in found["wake_s"].values())
    text = platform.device_text(platform.device(), found)
    assert "non-temporal stores" in text and "GFLOP/s" in text


def test_a_platform_that_counts_is_not_measured() -> None:
    nothing: Sandbox = None  # type: ignore[assignment]  # it is not asked
    assert measure_device(load_platform("simulated"), 0, nothing) == {}
