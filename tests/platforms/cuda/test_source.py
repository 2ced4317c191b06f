"""CUDA C++ as text: what is rewritten, what is left out for a GPU's compiler, and what is told of it."""

import pytest

from evaluator.referee.runner.platforms.cuda.source import SourceError, device_only, rewrite, tokens_of

KERNEL = "template <typename T, int N> __global__ void k(T* y) {}\n"


@pytest.mark.parametrize(
    "text",
    [
        'auto s = "<<<1, 2>>> // __shared__ \\" "; // k<<<1, 1>>>(y)\n',
        'auto s = R"x(<<<)")x"; char c = \'"\';\n',
        "/* k<<<1,\n1>>>(y); */ int a = 1 << 2 >> 1; double d = 1'000.5e+3;\n",
        "#define A(x) \\\n  (x)\nint b;\n",
    ],
)
def test_tokens_together_are_the_source_and_what_is_quoted_stays(text: str) -> None:
    assert "".join(token.text for token in tokens_of(text)) == text
    assert rewrite(text).text == text


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("k<float, 4><<<1, 2>>>(y);", "cuh::launch<(k<float, 4>)>(cuh::Config(1, 2))(y);"),
        ("ns::k<float, 4><<<1, 2>>>(y);", "cuh::launch<(ns::k<float, 4>)>(cuh::Config(1, 2))(y);"),
        (
            "k<std::array<A<B<int>>, 2>, 4><<<f(a < b, c), dim3(1, 2), n * sizeof(T), s>>>(y);",
            "cuh::launch<(k<std::array<A<B<int>>, 2>, 4>)>(cuh::Config(f(a < b, c), dim3(1, 2), n * sizeof(T), s))(y);",
        ),
        ("k<<<1, 2>>>(y);", "cuh::launch_deduced([=](auto... each) { k(each...); }, cuh::Config(1, 2))(y);"),
        ("pointer<<<1, 2>>>(y);", "cuh::launch_pointer((pointer), cuh::Config(1, 2))(y);"),
    ],
)
def test_a_launch_becomes_a_call(written: str, made: str) -> None:
    assert rewrite(KERNEL + f"void f() {{ {written} }}").text == KERNEL + f"void f() {{ {made} }}"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("k<float, 4><<<1, 2>>>(y);", []),
        ("\n\nk<<<1, 2>>>(y);", [(4, "k lacks template arguments: write k<...><<<...>>>")]),
        ("\npointer<<<1, 2>>>(y);", [(3, "pointer is no kernel's name; a pointer to a static one has none")]),
    ],
)
def test_launches_that_do_not_name_their_kernel_are_noted(written: str, told: list[tuple[int, str]]) -> None:
    found = rewrite(KERNEL + f"void f() {{ {written} }}").unnamed
    assert [(each.line, each.text) for each in found] == told


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("__shared__ float a[4][N + 1];", "cuh::Same<float[4][N+1]>& a = cuh::shared<float[4][N+1], 1>();"),
        ("__shared__ __align__(16) float* p;", "cuh::Same<float*>& p = cuh::shared<float*, 1>();"),
        ("extern __shared__ float a[];", "float* const a = static_cast<float*>(cuh::dynamic_shared());"),
        (
            "__shared__ Pair<int, 2> a, b[3];",
            "cuh::Same<Pair<int,2>>& a = cuh::shared<Pair<int,2>, 1>(); "
            "cuh::Same<Pair<int,2> [3]>& b = cuh::shared<Pair<int,2> [3], 2>();",
        ),
    ],
)
def test_shared_memory_becomes_a_reference_to_what_the_block_has(written: str, made: str) -> None:
    assert rewrite(f"void f() {{ {written} }}").text == f"void f() {{ {made} }}"


def test_lines_stay_where_they_are() -> None:
    text = "#include <cuda_runtime.h>\n#pragma unroll\n__global__ void k(float* y) {\n"
    text += "  __shared__\n  float a[4];\n}\n// end\n"
    for made in (rewrite(text).text, device_only(text)):
        assert made.count("\n") == text.count("\n")
        assert made.splitlines().index("// end") == text.splitlines().index("// end")


def test_what_runs_on_the_host_is_left_out_for_a_gpu() -> None:
    text = """#include <torch/extension.h>
constexpr int N = 4;
struct __align__(8) Pair { float a, b; };
namespace cg = cooperative_groups;
template <typename T> __device__ T twice(T x) { return x + x; }
constexpr int up(int a, int b) { return (a + b - 1) / b; }
static inline int only_here(int a) { return a; }
namespace inner { __global__ void k(Pair* p) { p->a = twice(p->b); } }
torch::Tensor run(torch::Tensor x) { inner::k<<<up(1, 2), 1>>>(nullptr); return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
    made = device_only(text)
    for kept in (
        "constexpr int N = 4;",
        "struct __align__(8) Pair",
        "namespace cg",
        "T twice(T x)",
        "int up(",
        "void k(",
    ):
        assert kept in made
    for left_out in ("torch", "<<<", "PYBIND", "#include", "only_here"):
        assert left_out not in made


@pytest.mark.parametrize("name", ["operator*=", "operator==", "operator=", "operator[]", "operator()", "operator +"])
def test_an_operator_is_a_function_and_what_follows_is_kept(name: str) -> None:
    text = (
        f"__device__ float4& {name}(float4& a, float b) {{ a.x = b; return a; }}\n__global__ void k() {{ f(1); g(2); }}"
    )
    assert device_only(text) == text
    assert device_only(text.replace("__device__ ", "")) == text[text.index("\n") :]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('\n__global__ void k() { asm volatile("nop;"); }', 2, "inline PTX"),
        ("#include <cub/cub.cuh>\n", 1, "cub"),
        ("#define X asm\n", 1, "inline PTX"),
        ("void f() { auto g = cg::this_grid(); }", 1, "a barrier of the whole grid"),
    ],
)
def test_what_cannot_be_emulated_is_told_with_its_line(text: str, line: int, what: str) -> None:
    [remark, *_] = rewrite(text).not_emulated
    assert remark.line == line and what in remark.text


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef __SANITIZE_ADDRESS__\n#endif\n",
        '__attribute__((no_sanitize("thread"))) void f();',
        "void f() { cuh::set_order(); }",
        "void f() { system(0); }",
        "#pragma GCC optimize(0)\n",
    ],
)
def test_words_that_tell_the_emulation_are_noted(text: str) -> None:
    assert rewrite(text).forbidden


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("void f() { 3<<<1, 1>>>(y); }", "no kernel's name"),
        ("void f() { k<<<1, 1; }", "no >>>"),
        ("#define L(k) k<<<1, 1>>>\n", "a macro that holds"),
        ("void f() { __shared__ float a[2] = {}; }", "cannot be initialized"),
        ("int größe;", "is no C\\+\\+"),
        ("x" * 2_000_001, "2,000,000 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        rewrite(text)


@pytest.mark.parametrize(
    "text",
    [
        "__attribute__((no_sani\\\ntize_thread)) void f();",
        "#define NAME no_sani\\\ntize\n",
        "%: pragma GCC optimize 0\n",
        "void f() { fopen(0, 0); }",
        "#ifdef __linux__\n#endif\n",
        "void f() { execlp(0, 0); }",
    ],
)
def test_words_in_disguise_are_told(text: str) -> None:
    assert rewrite(text).forbidden


@pytest.mark.parametrize(
    "text", ["int a = \\\n b;", "int a = b \\\n + c;", "#define A(x) \\\n  x\n", "int a = b % c ? d : e;"]
)
def test_lines_that_go_on_are_no_disguise(text: str) -> None:
    assert not rewrite(text).forbidden


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("__constant__ float a[4], b[2][3];", ["a", "b"]),
        ("__device__ int a = 3, b{4}, c = f(1, 2);", ["a", "b", "c"]),
        ("namespace n { namespace { __constant__ float t[4]; } }", ["n::t"]),
        ("namespace n { void f() { if (1) {} } } __device__ Pair<int, 2> t;", ["t"]),
        ("static __device__ unsigned long long t;", ["t"]),
        ("__device__ float4& operator+=(float4& a, float4 b) { return a; }", []),
        ("__device__ bool operator==(P a, P b) { return true; } __device__ float operator[](int i);", []),
        ("__device__ struct P { int a; };", []),
        ("template <typename T> __device__ constexpr T pi = T(3);", []),
        ("template <typename T> __device__ T twice(T x) { return x; }", []),
    ],
)
def test_variables_of_the_device_are_known_with_their_namespaces(text: str, variables: list[str]) -> None:
    assert rewrite(text).variables == variables


def test_a_member_may_be_named_as_a_namespace_of_the_host() -> None:
    text = "struct Place { int at, std; };\nusing namespace torch;\nusing T = at::Tensor;\nconstexpr int N = 2;\n"
    assert device_only(text) == "struct Place { int at, std; };\n\n\nconstexpr int N = 2;\n"
