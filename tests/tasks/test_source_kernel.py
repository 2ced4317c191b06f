"""A task may bring a kernel in another language, or be given one; it is read by `ast` and never run."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.build import task_from_source
from tasks.source_kernel import (
    KEYS,
    MAX_KERNEL_BYTES,
    SourceKernel,
    constant_text,
    reference_kernel_of,
    source_kernel_of,
    without_source_kernel,
)
from tasks.suites import load_suite
from tasks.task import Task, TaskError
from tasks.text import MAX_SOURCE_BYTES
from tasks.translate import read_kernel_file, with_source_kernel

OP = """
import torch


def op(x):
    return torch.relu(x)


def get_inputs():
    return [torch.randn(8, 8)]
"""
KERNEL = """\
#include <torch/extension.h>
__global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // "one" thread an element \\
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
"""


def made(constant: str = "", name: str = "relu") -> Task:
    return task_from_source(OP + constant, name=name)


def test_a_task_brings_its_kernel_with_what_is_known_of_it() -> None:
    kernel = SourceKernel("cuda", KERNEL, entry="relu", notes="one thread an element")
    assert source_kernel_of(made(constant_text(kernel)).source) == kernel
    assert source_kernel_of(made('SOURCE_KERNEL: dict = {"platform": "cpu", "source": "x"}').source) == SourceKernel(
        "cpu", "x"
    )
    assert source_kernel_of(made().source) is None


@pytest.mark.parametrize(
    "value,complaint",
    [
        ("open('x').read()", "SOURCE_KERNEL is not a literal value; write SOURCE_KERNEL = {"),
        ("KERNEL", "SOURCE_KERNEL is not a literal value; write"),
        ("'__global__'", "SOURCE_KERNEL is not a dict; write"),
        ("{'platform': 'cuda'}", "SOURCE_KERNEL has no 'source'; write"),
        ("{'source': 'x'}", "SOURCE_KERNEL has no 'platform'; write"),
        (
            "{'platform': 'cuda', 'source': 'x', 'code': ''}",
            "SOURCE_KERNEL has the key 'code'; use platform, source, entry, notes",
        ),
        ("{'platform': 'cuda', 'source': 5}", 'SOURCE_KERNEL["source"] is of type int; give a string'),
        ("{'platform': 'CU DA', 'source': 'x'}", "SOURCE_KERNEL[\"platform\"] is 'CU DA'; name a platform of"),
        ("{'platform': 'cuda', 'source': ' \\n'}", 'SOURCE_KERNEL["source"] is empty; give the whole kernel as text'),
        ("{'platform': 'cuda', 'source': 'a\\0b'}", 'SOURCE_KERNEL["source"] holds a null byte'),
        ("{'platform': 'cuda', 'source': '\\ud800'}", 'SOURCE_KERNEL["source"] holds a null byte or a lone surrogate'),
        ("{'platform': 'cuda', 'source': 'x' * 9}", "SOURCE_KERNEL is not a literal value; write"),
        (
            f"{{'platform': 'cuda', 'source': '{'x' * (MAX_KERNEL_BYTES + 1)}'}}",
            'SOURCE_KERNEL["source"] has 65,537 bytes, over 64 KiB; cut it down',
        ),
        (
            "{'platform': 'cuda', 'source': 'x', 'entry': 'forward'}",
            "SOURCE_KERNEL[\"entry\"] is 'forward'; name a function that the source defines",
        ),
        (
            f"{{'platform': 'cuda', 'source': 'x', 'notes': '{'n' * 2001}'}}",
            'SOURCE_KERNEL["notes"] has 2,001 characters, over 2000; shorten it',
        ),
    ],
    ids=lambda value: re.sub(r"\W+", "-", value)[:40],
)
def test_what_is_no_kernel_is_refused_with_key_value_line_and_remedy(value: str, complaint: str) -> None:
    with pytest.raises(TaskError, match=r"^<relu>:11: " + re.escape(complaint)):
        made(f"SOURCE_KERNEL = {value}\n")


def test_only_one_kernel_is_brought() -> None:
    once = constant_text(SourceKernel("cuda", KERNEL))
    with pytest.raises(TaskError, match="gives its SOURCE_KERNEL twice; keep one of them"):
        made(once + once)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=80).filter(
    lambda text: text.strip() != ""
)


@given(TEXTS, TEXTS)
def test_every_text_is_read_back_as_it_was_written(source: str, notes: str) -> None:
    kernel = SourceKernel("cuda", source, notes=notes)
    task = made(constant_text(kernel))
    assert source_kernel_of(task.source) == kernel
    shown = without_source_kernel(task.source)
    assert "SOURCE_KERNEL = ...\n" in shown
    assert shown.replace("...", "", 1).replace("SOURCE_KERNEL = \n", "") == made().source


@given(st.dictionaries(st.sampled_from([*KEYS, "other"]), st.text(max_size=5) | st.integers() | st.none()))
def test_whatever_a_task_declares_is_read_or_refused_in_one_line(value: dict[str, object]) -> None:
    try:
        task = made(f"SOURCE_KERNEL = {value!r}\n")
    except TaskError as error:
        assert str(error).isprintable() and "; " in str(error)
    else:
        kernel = source_kernel_of(task.source)
        assert kernel is not None and kernel.source == value["source"]


@pytest.mark.parametrize("written", ["x = 1; {}", "{}; x = 1", "é = 1; {}; y = 'é'", "{}\n# after\n"])
def test_a_reader_who_is_shown_the_kernel_elsewhere_sees_the_rest_of_the_task_alone(written: str) -> None:
    constant = "SOURCE_KERNEL = {'platform': 'cuda',\r\n 'source': '''é\f\r\n__global__'''}"
    shown = without_source_kernel(made(written.format(constant)).source)
    assert shown.startswith(OP + written.format("SOURCE_KERNEL = ..."))
    assert without_source_kernel(made().source) == made().source


def test_an_op_is_given_a_kernel_and_is_then_an_op_of_the_users_own() -> None:
    for task in (made(), load_suite("starter").tasks[0]):
        found = with_source_kernel(task, platform="cuda", kernel=KERNEL.replace("\n", "\r\n"))
        assert found.id == f"local/{task.name}.from-cuda"
        assert source_kernel_of(found.source) == SourceKernel("cuda", KERNEL)
        assert (found.category, found.dtype) == (task.category, task.dtype)
        assert found.source_hash != task.source_hash
        assert with_source_kernel(found, platform="cuda", kernel=None) == found
    assert with_source_kernel(made(), platform=None, kernel=None) == made()


@pytest.mark.parametrize(
    "own,platform,kernel,complaint",
    [
        ("", "cuda", None, "brings no SOURCE_KERNEL to translate from cuda; give the file of the kernel with --source"),
        ("", None, KERNEL, "is given a source kernel of no platform; say which with --from PLATFORM"),
        ("", "cuda", " ", 'source kernel: SOURCE_KERNEL["source"] is empty'),
        ("cuda", "cuda", KERNEL, r"brings its own SOURCE_KERNEL (platform cuda); leave out --source"),
        ("cuda", "opencl", None, "brings a SOURCE_KERNEL of platform cuda, not opencl; use --from cuda"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_what_to_do(
    own: str, platform: str | None, kernel: str | None, complaint: str
) -> None:
    task = made(constant_text(SourceKernel(own, KERNEL)) if own else "")
    with pytest.raises(TaskError, match=re.escape(complaint)):
        with_source_kernel(task, platform=platform, kernel=kernel)


def test_a_kernels_file_is_text_of_bounded_length(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_bytes(b"\xef\xbb\xbf" + KERNEL.encode())
    assert read_kernel_file(path) == KERNEL
    path.write_bytes(b"float \xe9;")
    with pytest.raises(TaskError, match=r"kernel\.cu: is not UTF-8 \(byte 0xe9\); save it as UTF-8"):
        read_kernel_file(path)
    path.write_bytes(b"x" * (MAX_SOURCE_BYTES + 1))
    with pytest.raises(TaskError, match="is over 256 KiB"):
        read_kernel_file(path)
    with pytest.raises(TaskError, match="is a directory; name one file with the kernel in it"):
        read_kernel_file(tmp_path)


INPUTS = """
import torch


def get_inputs():
    return [torch.randn(8, 8)]
"""
CANDIDATE = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""
SIZED = CANDIDATE.replace("    def forward", "    def __init__(self, n):\n        pass\n\n    def forward")


def alone(source: str = CANDIDATE, *, platform: str = "cuda", more: str = "") -> Task:
    return task_from_source(INPUTS + more + "\n" + constant_text(SourceKernel(platform, source)), name="relu")


def test_a_kernel_without_a_model_is_the_reference() -> None:
    task = alone()
    assert reference_kernel_of(task.source) == SourceKernel("cuda", CANDIDATE)
    assert task.source.endswith("def get_init_inputs():\n    return []\n")
    assert task_from_source(task.source, name="relu").source == task.source
    with_its_own = "\n\ndef get_init_inputs():\n    return [3]\n"
    assert alone(SIZED, more=with_its_own).source.count("get_init_inputs") == 1


def test_beside_a_model_or_a_function_a_kernel_is_no_reference() -> None:
    assert reference_kernel_of(made(constant_text(SourceKernel("cuda", CANDIDATE))).source) is None
    assert reference_kernel_of(made().source) is None


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        ({"source": KERNEL}, "<relu>:8: has no Model, so SOURCE_KERNEL is the reference, but its source is not Python"),
        ({"source": "x = 1"}, "its source defines no class ModelNew; give it the form of a candidate, with ModelNew,"),
        ({"source": CANDIDATE.replace("forward", "run")}, "its ModelNew has no method forward; define forward(self"),
        ({"platform": "triton"}, "kernels of platform triton cannot be one; bring a kernel of cuda, or write class"),
        (
            {"source": CANDIDATE.replace("self, x", "self, x, w")},
            'SOURCE_KERNEL["source"]:6: ModelNew.forward takes 2 inputs (x, w), but get_inputs() returns 1',
        ),
        ({"source": CANDIDATE + CANDIDATE}, 'SOURCE_KERNEL["source"]:12: ModelNew is defined twice'),
        ({"source": SIZED}, "ModelNew.__init__ takes 1 input (n), but get_init_inputs() returns 0"),
        ({"more": "\n\nclass Modle(torch.nn.Module):\n    pass\n"}, "has no class Model"),
        ({"more": "\n\nModel = None\n"}, "Model is not a class"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_kernel_that_cannot_be_the_reference_is_refused_in_one_line(
    arguments: dict[str, str], complaint: str
) -> None:
    with pytest.raises(TaskError, match=re.escape(complaint)) as refused:
        alone(**arguments)
    assert "\n" not in str(refused.value)
