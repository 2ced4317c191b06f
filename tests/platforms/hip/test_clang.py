# ruff: noqa: E501 - remarks as clang writes them
"""What is read out of clang's remarks, errors and listings, and which architectures are compiled for."""

import pytest

from evaluator.platforms import load_platform
from evaluator.referee.errors import Finding
from evaluator.referee.platforms.screened.screening import not_compiled
from evaluator.referee.protocol.gpu_checks import AMD_ARCHITECTURES, ARCHITECTURES, architectures_for
from evaluator.referee.runner.platforms.cuda.nvrtc import Given
from evaluator.referee.runner.platforms.hip import clang
from evaluator.referee.runner.platforms.hip.words import HIP

REMARKS = """cuda_sources:4:1: remark: Function Name: k [-Rpass-analysis=kernel-resource-usage]
    4 | __global__ void k(float* x) {
      | ^
cuda_sources:4:1: remark:     SGPRs: 10 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     VGPRs: 6 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     AGPRs: 0 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     ScratchSize [bytes/lane]: 16 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     Dynamic Stack: False [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     Occupancy [waves/SIMD]: 8 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     SGPRs Spill: 0 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     VGPRs Spill: 3 [-Rpass-analysis=kernel-resource-usage]
cuda_sources:4:1: remark:     LDS Size [bytes/block]: 256 [-Rpass-analysis=kernel-resource-usage]
"""
LISTING = """_Z1kPf:
	s_load_dwordx2 s[0:1], s[4:5], 0x0
	global_load_dwordx4 v[0:3], v4, s[0:1]
	global_load_dword v0, v4, s[0:1]
	v_mfma_f32_16x16x4f32 a[0:3], v0, v1, a[0:3]
	ds_bpermute_b32 v1, v2, v3
	s_barrier
	s_nop 0
	s_endpgm
	.section	.rodata
"""
ERROR = """cuda_sources:3:9: remark: a loop was unrolled [-Rpass]
cuda_sources:7:5: error: use of undeclared identifier 'pert'
    7 |     pert[0] = 1;
      |     ^
cuda_sources:1:2: note: could not determine the original source location for cuda_sources:1:0
1 error generated when compiling for gfx90a.
"""


def test_resources_are_read_out_of_clangs_remarks() -> None:
    assert clang.resources(REMARKS) == [
        {
            "kernel": "k", "sgprs": 10, "vgprs": 6, "agprs": 0, "stack_bytes": 16, "waves": 8, "sgpr_spills": 0,
            "vgpr_spills": 3, "shared_bytes": 256,
        }
    ]  # fmt: skip


def test_machine_code_is_counted_by_kind_without_padding() -> None:
    assert clang.kinds_of(LISTING) == {
        "all": 7, "uniform loads": 1, "vector loads": 1, "scalar loads": 1, "matrix cores": 1, "lane exchanges": 1,
        "barriers": 1,
    }  # fmt: skip


def test_an_error_is_told_with_its_line_and_a_caret() -> None:
    said = clang.errors_of(ERROR)
    assert said.startswith("cuda_sources:7:5: error: use of undeclared") and "^" in said
    assert "remark" not in said and "original source location" not in said


@pytest.mark.parametrize(
    ("architecture", "waves", "shared", "threads", "share"),
    [
        ("gfx90a", 8, 0, 256, 1.0),
        ("gfx90a", 4, 0, 256, 0.5),
        ("gfx90a", 8, 32768, 256, 0.25),
        ("gfx1100", 16, 32768, 256, 0.5),
        ("gfx906", 10, 0, 64, 1.0),
        ("gfx600", 10, 0, 64, None),
    ],
)
def test_occupancy_is_bounded_by_registers_and_local_data_share(
    architecture: str, waves: int, shared: int, threads: int, share: float | None
) -> None:
    assert clang.occupancy(architecture, waves, shared, threads) == share


@pytest.mark.parametrize(
    ("platform", "asked", "taken"),
    [
        ("hip", ("sm_90a",), AMD_ARCHITECTURES),
        ("hip", ("sm_90a", "gfx908"), ("gfx908",)),
        ("cuda", ("gfx908",), ARCHITECTURES),
        ("triton", ("gfx908", "sm_80"), ("sm_80",)),
    ],
)
def test_a_platform_takes_the_architectures_of_its_maker(
    platform: str, asked: tuple[str, ...], taken: tuple[str, ...]
) -> None:
    assert architectures_for(platform, asked) == list(taken)


def test_what_runs_on_the_host_is_left_out_and_instances_are_named() -> None:
    kernel = "template <int N> __global__ void k(float* y) { y[0] = N; }\nvoid run() { k<3><<<1, 1>>>(nullptr); }\n"
    made = clang.text_for([Given(kernel)], ["k<3>"])
    assert "(void)&k<3>;" in made and "<<<" not in made and "y[0] = N" in made


def test_an_unknown_architecture_and_what_std_lacks_are_no_fault_of_the_sources() -> None:
    for said in ("error: invalid target ID 'gfx999'", "k:1:1: error: no member named 'gcd' in namespace 'std'"):
        compiled = [{"architecture": "gfx999", "error": said}]
        assert said in not_compiled({"compiler": "", "compiled": compiled})
    with pytest.raises(Finding, match="undeclared identifier"):
        not_compiled({"compiler": "", "compiled": [{"architecture": "gfx90a", "error": ERROR}]})


def test_words_of_amds_instructions_and_libraries_are_told_with_their_line() -> None:
    text = "#include <rocwmma/rocwmma.hpp>\nint a = __builtin_amdgcn_readfirstlane(1);\n__device__ void f() { __syncwarp(); }"
    assert [(each.line, each.text.partition(":")[0]) for each in HIP.not_emulated(text)] == [
        (1, "rocwmma"), (1, "rocwmma"), (2, "__builtin_amdgcn_readfirstlane"), (3, "__syncwarp"),
    ]  # fmt: skip
    assert [each.text for each in HIP.forbidden("#if defined(__clang_major__)\n#endif")] == ["__clang_major__"]


def test_a_profile_says_registers_of_each_kind() -> None:
    kernel = {"kernel": "k", "vgprs": 200.0, "sgprs": 30.0, "agprs": 8.0, "vgpr_spills": 5.0, "occupancy": 0.25}
    compiled = {"architecture": "gfx942", "error": "", "kernels": [kernel], "sass": {"all": 9, "matrix cores": 2}}
    text = load_platform("hip").profile_text({"screening": {"compiled": [compiled], "kernels": ["k"]}})
    assert "gfx942: k: 200 VGPRs, 30 SGPRs, 8 AGPRs, 5 spilled, 0 B LDS, occupancy 25%" in text
    assert "matrix cores are used" in text
