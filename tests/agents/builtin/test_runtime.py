"""The runtime of generated kernels: its functions against Python's, for each width of vectors."""

import ctypes
import itertools
import math
import mmap
import random
import struct
import subprocess
from pathlib import Path

import pytest

from agents.builtin.analysis.cost import SHORT_PRODUCT
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.candidate_file import DEFAULT_FLAGS, cpp_source

pytestmark = pytest.mark.xdist_group("builtin_runtime")  # they share three builds

FUNCTIONS = {
    "exp": (math.exp, -87.0, 88.0),
    "log": (math.log, 1e-37, 1e38),
    "log1p": (math.log1p, -0.99, 50.0),
    "erf": (math.erf, -5.0, 5.0),
    "tanh": (math.tanh, -12.0, 12.0),
    "sqrt": (math.sqrt, 0.0, 1e30),
}
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38]
COUNT = 4096


def kernel(name: str, body: str, types: tuple[str, ...] = ("const float*", "float*")) -> Kernel:
    return Kernel(name, types, tuple(f"p{i}" for i in range(len(types))), f"\n{body}\n")


def build(kernels: list[Kernel], vector_bytes: int, folder: Path) -> ctypes.CDLL:
    source, library = folder / "k.cpp", folder / "k.so"
    source.write_text(cpp_source(kernels, vector_bytes))
    fixed = ["-std=c++17", "-shared", "-fPIC", "-fopenmp", "-Wno-psabi", "-Wall", "-Wno-unknown-pragmas"]
    subprocess.run(["g++", *DEFAULT_FLAGS, *fixed, str(source), "-o", str(library)], check=True, timeout=120)
    return ctypes.CDLL(str(library))


def floats(values: list[float]) -> "ctypes.Array[ctypes.c_float]":
    return (ctypes.c_float * len(values))(*values)


def as_float(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def exact(function, value: float) -> float:
    try:
        return as_float(function(value))
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf if value in (0.0, -1.0) else math.nan


@pytest.fixture(scope="module", params=[64, 32, 16])
def mapped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    lanes = request.param // 4
    kernels = [
        kernel(
            f"k_{name}",
            f"for (int64_t i = 0; i < {COUNT}; i += {lanes}) "
            f"Vectorized<float>::loadu(p0 + i, {lanes}L).{name}().store(p1 + i);",
        )
        for name in FUNCTIONS
    ]
    return build(kernels, request.param, tmp_path_factory.mktemp(f"runtime{request.param}"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate_and_exact_at_special_values(mapped: ctypes.CDLL, name: str) -> None:
    function, low, high = FUNCTIONS[name]
    spread = [low + (high - low) * i / (COUNT - 1) for i in range(COUNT // 2)]
    small = [math.copysign(10.0 ** (-30 * i / 2000), low if low < 0 and i % 2 else 1.0) for i in range(2000)]
    values = [as_float(value) for value in [*spread, *small, *SPECIAL]]
    values += [1.0] * (COUNT - len(values))
    results = floats([0.0] * COUNT)
    getattr(mapped, f"k_{name}")(floats(values), results)
    worst = 0.0
    for value, result in zip(values, results, strict=True):
        wanted = exact(function, value)
        if math.isnan(wanted) or math.isinf(wanted) or wanted == 0.0:
            same = math.isnan(result) if math.isnan(wanted) else result == wanted
            assert same, f"{name}({value}) is {result}, not {wanted}"
        else:
            spacing = max(abs(wanted) * 2.0**-23, 2.0**-149)
            worst = max(worst, abs(result - wanted) / spacing)
    assert worst < 4.0, f"{name} is off by {worst:.1f} units in the last place"


def test_extremes_propagate_nan_as_torch_does(tmp_path: Path) -> None:
    body = """
    Vectorized<float> a = Vectorized<float>::loadu(p0, 16L), b = Vectorized<float>::loadu(p0 + 16, 16L);
    maximum(a, b).store(p1);
    minimum(a, b).store(p1 + 16);
    p1[32] = vec_reduce_all<float, 1>([](Vectorized<float>& x, Vectorized<float>& y) { return maximum(x, y); }, a);
    """
    library = build([kernel("extremes", body)], 64, tmp_path)
    a = [1.0, math.nan, 3.0, -math.inf] + [0.0] * 12
    b = [math.nan, 1.0, 2.0, math.inf] + [-1.0] * 12
    out = floats([0.0] * 33)
    library.extremes(floats([*a, *b]), out)
    assert all(math.isnan(out[i]) for i in (0, 1, 16, 17, 32))
    assert (out[2], out[3], out[18], out[19]) == (3.0, math.inf, 2.0, -math.inf)


@pytest.mark.parametrize("vector_bytes", [64, 32, 16])
def test_a_masked_load_reads_nothing_where_the_mask_is_off(vector_bytes: int, tmp_path: Path) -> None:
    """As TorchInductor writes it for padded windows: the address may lie before or behind the tensor."""
    lanes = vector_bytes // 4
    body = f"""
    auto mask = VecMask<float, 1>(Vectorized<float>::loadu(p0, {lanes}L) > Vectorized<float>(0));
    mask.template cast<float, 1>().template loadu<float, 1>(p1).store(p2);
    VecMask<int64_t, 2> wide = mask.template cast<int64_t, 2>();
    wide.template loadu<float, 1>(p1).store(p2 + {lanes});
    """
    library = build([kernel("masked", body, ("const float*", "const float*", "float*"))], vector_bytes, tmp_path)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    readable = lanes // 2
    ctypes.memmove(start + mmap.PAGESIZE - 4 * readable, floats([5.0] * readable), 4 * readable)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    out = floats([9.0] * 2 * lanes)
    on = [1.0, *[0.0] * (readable - 2), 1.0] if readable > 1 else [1.0]
    values = floats([*on, *[0.0] * (lanes - len(on))])
    library.masked(values, ctypes.c_void_p(start + mmap.PAGESIZE - 4 * readable), out)
    wanted = [5.0 * each for each in on] + [0.0] * (lanes - len(on))
    assert list(out) == wanted * 2


def test_partial_vectors_touch_nothing_beyond_their_count(tmp_path: Path) -> None:
    library = build([kernel("part", "Vectorized<float>::loadu(p0, 5L).store(p1, 3L);")], 64, tmp_path)
    out = floats([9.0] * 16)
    library.part(floats([1.0, 2.0, 3.0, 4.0, 5.0]), out)
    assert list(out)[:5] == [1.0, 2.0, 3.0, 9.0, 9.0]


def test_streamed_stores_work_at_any_address(tmp_path: Path) -> None:
    body = "for (int64_t i = 0; i < 64; i += 16) kw::stream_store(p1 + 1 + i, Vectorized<float>::loadu(p0 + i, 16L));"
    library = build([kernel("streamed", body + " kw::stream_fence();")], 64, tmp_path)
    out = floats([0.0] * 66)
    library.streamed(floats([float(i) for i in range(64)]), out)
    assert list(out) == [0.0, *map(float, range(64)), 0.0]


def test_transposition_of_full_and_partial_tiles(tmp_path: Path) -> None:
    body = "transpose_mxn<float, 16, 16>(p0, 16, p1, 16); transpose_mxn<float, 3, 5>(p0, 16, p1 + 256, 3);"
    library = build([kernel("flip", body)], 64, tmp_path)
    out = floats([0.0] * (256 + 15))
    library.flip(floats([float(i) for i in range(256)]), out)
    assert all(out[16 * j + i] == 16 * i + j for i in range(16) for j in range(16))
    assert all(out[256 + 3 * j + i] == 16 * i + j for i in range(3) for j in range(5))


@pytest.mark.parametrize("vector_bytes", [64, 32, 16])
@pytest.mark.parametrize(("outputs", "pads"), [(32, (1, 1)), (48, (0, 2))])
def test_winograds_convolution_is_the_plain_sum(
    vector_bytes: int, outputs: int, pads: tuple[int, int], tmp_path: Path
) -> None:
    """Sides that are no multiple of a tile's, the last block of tiles not full, and edges of every width."""
    batch, height, width, inputs, (down, across) = 2, 5, 4, 16, pads
    sizes = f"{batch}, {height}, {width}, {inputs}, {outputs}, {down}, {across}"
    body = f"""
    float* weights = new float[16 * {inputs * outputs}];
    kw::winograd_weights<{inputs}, {outputs}>(p1, weights);
    kw::winograd<{sizes}>(p0, weights, p1, p2, p3);
    delete[] weights;
    """
    types = ("const float*", "const float*", "const float*", "float*")
    library = build([kernel("convolved", body, types)], vector_bytes, tmp_path)
    draw = random.Random(0)
    x = [draw.uniform(-1, 1) for _ in range(batch * height * width * inputs)]
    weights = [draw.uniform(-1, 1) for _ in range(outputs * inputs * 9)]
    bias = [draw.uniform(-1, 1) for _ in range(outputs)]
    rows, columns = height + 2 * down - 2, width + 2 * across - 2
    result = floats([math.nan] * (batch * rows * columns * outputs))
    library.convolved(floats(x), floats(weights), floats(bias), result)

    def pixel(image: int, row: int, column: int) -> list[float]:
        if not (0 <= row < height and 0 <= column < width):
            return [0.0] * inputs
        start = ((image * height + row) * width + column) * inputs
        return x[start : start + inputs]

    found = iter(result)
    for image, row, column in itertools.product(range(batch), range(rows), range(columns)):
        places = [pixel(image, row + i - down, column + j - across) for i, j in itertools.product(range(3), range(3))]
        for channel in range(outputs):
            kernels = (weights[(channel * inputs + k) * 9 : (channel * inputs + k + 1) * 9] for k in range(inputs))
            wanted = bias[channel] + sum(
                each[place] * places[place][k] for k, each in enumerate(kernels) for place in range(9)
            )
            assert next(found) == pytest.approx(wanted, abs=2e-5)
    assert next(found, None) is None


@pytest.mark.parametrize("vector_bytes", [64, 32, 16])
@pytest.mark.parametrize("columns", [32, 48])
def test_a_product_with_a_packed_matrix_is_the_plain_sum(vector_bytes: int, columns: int, tmp_path: Path) -> None:
    """Rows that are no multiple of those computed at once, a sum that is added up from parts, and gaps between rows."""
    rows, terms, step_a, step_out = 19, 1030, 1033, columns + 3
    body = f"""
    float* packed = new float[{terms * columns}];
    kw::pack_matrix<{terms}, {columns}, 1, {terms}>(p1, packed);
    kw::packed_product<{rows}, {terms}, {columns}, {step_a}, 0, {step_out}>(p0, packed, p2, p3);
    delete[] packed;
    """
    types = ("const float*", "const float*", "const float*", "float*")
    library = build([kernel("multiplied", body, types)], vector_bytes, tmp_path)
    draw = random.Random(0)
    a = [draw.uniform(-1, 1) for _ in range(rows * step_a)]
    b = [draw.uniform(-1, 1) for _ in range(terms * columns)]
    base = [draw.uniform(-1, 1) for _ in range(columns)]
    out = floats([9.0] * (rows * step_out))
    library.multiplied(floats(a), floats(b), floats(base), out)
    for row in range(rows):
        for column in range(columns):
            wanted = base[column] + sum(
                left * right
                for left, right in zip(
                    a[row * step_a : row * step_a + terms], b[column * terms : (column + 1) * terms], strict=True
                )
            )
            assert out[row * step_out + column] == pytest.approx(wanted, abs=1e-4)
        assert out[row * step_out + columns : (row + 1) * step_out] == [9.0] * 3


def test_the_estimate_knows_which_products_the_runtime_computes_in_one_thread(tmp_path: Path) -> None:
    product = "kw::packed_product<16, 16, 16, 16, 0, 16>(p0, p0, nullptr, p1);"
    told = kernel("told", f"p1[0] = kw::SHORT == {SHORT_PRODUCT}; if (p0 == nullptr) {product}")
    library = build([told], 16, tmp_path)
    result = floats([0.0])
    library.told(floats([0.0]), result)
    assert result[0] == 1.0
