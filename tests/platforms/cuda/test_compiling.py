# ruff: noqa: E501 - reports as programs write them
"""What is read out of compilers and sanitizers, and NVIDIA's compiler itself where it is installed."""

import struct
from pathlib import Path

import pytest

from evaluator.platforms import load_platform
from evaluator.referee.errors import Finding
from evaluator.referee.platforms.screened.screening import not_compiled
from evaluator.referee.protocol.gpu_checks import ARCHITECTURES
from evaluator.referee.runner.platforms.cuda import building, checking, nvrtc
from evaluator.referee.runner.platforms.gpu import machine_code

KERNEL = """#include <torch/extension.h>
#include <cuda_fp16.h>
template <typename T, int N> __global__ void __launch_bounds__(256) add(const T* x, T* y, int n) {
    __shared__ float part[N];
    part[threadIdx.x] = threadIdx.x < n ? (float)x[threadIdx.x] : -INFINITY;
    __syncthreads();
    y[threadIdx.x] = T(part[N - 1 - threadIdx.x]);
}
torch::Tensor run(torch::Tensor x) { add<float, 256><<<1, 256>>>(x.data_ptr<float>(), nullptr, 3); return x; }
"""
PTXAS = """ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2112 bytes smem
"""
LISTING = """        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0030*/                   STL [R1], R4 ;
        /*0040*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0050*/                   NOP ;
"""
NOWHERE = Path("no-such-program")
ADDRESS = """==34==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x7b4 at pc 0x55 bp 0x7ffc sp 0x7ffc
WRITE of size 4 at 0x7b4 thread T0
    #0 0x55 in k(float const*, float*, int) /tmp/cuda_sources:8
    #1 0x56 in void std::__invoke_impl<void>(std::__invoke_other) /usr/include/c++/12/bits/invoke.h:61
0x7b4 is located 0 bytes to the right of 9240-byte region [0x7b0,0x7b4)
"""


def test_resources_are_read_out_of_what_ptxas_says() -> None:
    assert machine_code.resources(PTXAS) == [
        {
            "kernel": "k", "registers": 32, "shared_bytes": 2112, "stack_bytes": 8, "spill_stores": 16, "spill_loads": 24,
        }
    ]  # fmt: skip


def test_machine_code_is_counted_by_kind_without_padding() -> None:
    kinds = {"all": 5, "vector loads": 1, "scalar loads": 1, "local memory": 1, "tensor cores": 1}
    assert machine_code.kinds_of(LISTING) == kinds


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "share"),
    [(32, 0, 256, 1.0), (64, 0, 256, 0.5), (255, 0, 256, 0.125), (16, 100_000, 256, 0.25), (16, 0, 32, 0.5)],
)
def test_occupancy_is_bounded_by_registers_shared_memory_and_blocks(
    registers: int, shared: int, threads: int, share: float
) -> None:
    assert machine_code.occupancy("sm_90a", registers, shared, threads) == share


def test_a_report_is_cut_to_the_candidates_own_lines() -> None:
    assert checking.readable(ADDRESS, NOWHERE).splitlines() == [
        "AddressSanitizer: heap-buffer-overflow",
        "  WRITE of size 4 thread T0",
        "    k, cuda_sources line 8",
        "  is located 0 bytes to the right of 9240-byte region",
    ]


def test_a_report_quotes_the_lines_that_it_names() -> None:
    source = "\n" * 7 + "    y[i] = x[i];\n"
    assert "    k, cuda_sources line 8: y[i] = x[i];" in checking.readable(ADDRESS, NOWHERE, [source]).splitlines()
    second = ADDRESS.replace("cuda_sources:8", "cuda_sources[1]:8")
    assert (
        "    k, cuda_sources[1] line 8: y[i] = x[i];" in checking.readable(second, NOWHERE, ["", source]).splitlines()
    )
    for short in ([], [""], ["one line"]):
        assert "    k, cuda_sources line 8" in checking.readable(ADDRESS, NOWHERE, short).splitlines()


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
def test_a_template_is_compiled_for_each_architecture() -> None:
    found = nvrtc.compile_all([nvrtc.Given(KERNEL)], ["add<float, 256>"], ARCHITECTURES)
    assert [each.architecture for each in found] == list(ARCHITECTURES)
    for each in found:
        assert not each.error, each.error
        [kernel] = each.kernels
        assert kernel["kernel"] == "add<float, 256>" and kernel["registers"] > 0 and kernel["shared_bytes"] >= 1024
        assert each.sass["all"] > 10 and each.sass["barriers"] > 0


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("part[N - 1", "pert[N - 1", '(7): error: identifier "pert" is undefined'),
        ("__syncthreads();", "log_it();", '(7): error: identifier "log_it" is undefined'),
    ],
)
def test_an_error_is_told_with_its_line_and_a_caret(old: str, new: str, says: str) -> None:
    text = "int log_it() { return 0; }\n" + KERNEL if "log_it" in new else KERNEL
    [found] = nvrtc.compile_all([nvrtc.Given(text.replace(old, new))], ["add<float, 256>"], ["sm_90a"])
    assert says in found.error and "^" in found.error


@pytest.mark.parametrize("name", ["exit", "add<float, 256>; exit(0)", "+[](float* x) { exit(0); }", "other<float>"])
def test_a_record_can_name_kernels_of_the_sources_alone(name: str) -> None:
    given = building.sources_of("mine", "", KERNEL)
    assert "cuh::thunk<(add<float, 256>)>" in building.replay_text([given], ["add<float, 256>"])
    with pytest.raises(building.BuildError, match="no kernel of the sources"):
        building.replay_text([given], [name])


@pytest.mark.parametrize(
    ("says", "writes", "found"),
    [
        ('{"launches": 2, "fault": ""}', True, ""),
        ('{"launches": 1, "fault": ""}', True, "died"),
        ('{"launches": 2, "fault": ""}', False, "died"),
        ("", True, "died"),
    ],
)
def test_a_program_that_ends_before_its_last_launch_has_shown_nothing(
    tmp_path: Path, says: str, writes: bool, found: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{'touch $2' if writes else ''}\necho '{says}'\n")
    program.chmod(0o755)
    ran = checking._run(program, tmp_path / "record", tmp_path / "outputs", "forward", 10.0, 2)
    assert ran.found == found


def test_memory_of_a_size_that_no_file_has_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    path.write_bytes(struct.pack("=QQ", 64, 4) + b"abcd" + struct.pack("=QQ", 128, (1 << 64) - 1) + b"efgh")
    assert checking._memory(path, [(65, 2), (128, 4)]) == {(65, 2): b"bc"}


def compiled(*errors: str) -> dict[str, object]:
    """What is known of compiling, with an error for each architecture."""
    return {"compiler": "", "compiled": [{"architecture": f"sm_8{i}", "error": text} for i, text in enumerate(errors)]}


def test_what_no_architecture_takes_is_refused() -> None:
    with pytest.raises(Finding, match=r"sm_80\): k.cu\(1\): error: no"):
        not_compiled(compiled("k.cu(1): error: no", "k.cu(1): error: no"))
    assert not_compiled(compiled("k.cu(1): error: no", "")) == "sm_80: k.cu(1): error: no"


@pytest.mark.parametrize(
    "said",
    [
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        "ptxas fatal   : Value 'sm_77' is not defined for option 'gpu-name'",
        'k.cu(1): catastrophic error: cannot open source file "cutlass.h"',
        'k.cu(3): error: namespace "std" has no member "max"',
        'k.cu(3): error: name followed by "::" must be a class or namespace name',
    ],
)
def test_what_the_compiler_lacks_is_no_fault_of_the_sources(said: str) -> None:
    assert said in not_compiled(compiled(said))


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
def test_an_architecture_that_the_compiler_does_not_know_is_told_as_such() -> None:
    [found] = nvrtc.compile_all([nvrtc.Given(KERNEL)], ["add<float, 256>"], ["sm_77"])
    assert "--gpu-architecture" in found.error


def test_a_profile_says_what_the_figures_tell() -> None:
    compiled = {
        "architecture": "sm_90a", "error": "", "kernels": [{"kernel": "k", "registers": 255, "occupancy": 0.125}],
        "sass": {"all": 9, "local memory": 4, "scalar loads": 5},
    }  # fmt: skip
    runs = [
        {
            "what": "thread",
            "found": "race",
            "text": "ThreadSanitizer: data race\n  k, cuda_sources line 8",
            "seconds": 1,
        }
    ]
    text = load_platform("cuda").profile_text({"screening": {"compiled": [compiled], "runs": runs, "kernels": ["k"]}})
    for words in (
        "255 registers",
        "occupancy 12%",
        "registers are spilled",
        "one element at a time",
        "line 8",
        "a data race",
    ):
        assert words in text


def test_a_profile_names_a_reason_once_and_shows_long_lines_whole() -> None:
    why = "the record of launches is broken"
    kernel = {
        "kernel": f"a_kernel_with_a_long_name, {'COLUMNS 1024, ' * 6}num_warps 8",
        "registers": 181,
        "occupancy": 0.5,
    }
    compiled = {"architecture": "sm_90a", "error": "", "kernels": [kernel], "sass": {"all": 9}}
    missing = {"race_free": why, "in_bounds": why, "compiled": "another"}
    screening = {"compiled": [compiled], "runs": [], "kernels": [], "missing": missing, "error": why}
    lines = load_platform("cuda").profile_text({"screening": screening}).splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if why in line] == [f"not shown: race_free, in_bounds: {why}"]
    assert "occupancy 50%" in " ".join(line.strip() for line in lines)


@pytest.mark.parametrize("name", ["cuda", "triton", "riscv"])
def test_a_profile_of_nothing_is_empty(name: str) -> None:
    assert load_platform(name).profile_text({}) == ""
