"""Reading generated kernels: trees of loops, index expressions, accesses, fusion of loops over the same rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.builtin.analysis.accesses import find_accesses
from agents.builtin.analysis.affine import read_affine
from agents.builtin.analysis.buffers import UNKNOWN, PointerTarget
from agents.builtin.analysis.loops import Block, Line, parse_body, render_body, walk
from agents.builtin.errors import NotTranslatable
from agents.builtin.transforms.fuse_rows import _fused, read_loop_nest

TWO_STAGES = """
    #pragma omp parallel
    {
        {
            #pragma omp for
            for(int64_t x0=0L; x0<4L; x0+=1L)
            {
                #pragma GCC ivdep
                for(int64_t x1=0L; x1<32L; x1+=1L)
                {
                    out_ptr0[(x1 + 32L*x0)] = in_ptr0[(x1 + 32L*x0)];
                }
            }
        }
        {
            #pragma omp for
            for(int64_t x0=0L; x0<128L; x0+=1L)
            {
                out_ptr1[(x0)] = out_ptr0[(INDEX)];
            }
        }
    }
"""
NAMES = {name: PointerTarget(name) for name in ("in_ptr0", "out_ptr0", "out_ptr1")}


def fuse(text: str) -> Block | None:
    region = parse_body(text)[0]
    assert isinstance(region, Block)
    stages = [read_loop_nest(node) for node in region.body]
    assert all(stages)
    return _fused([stage for stage in stages if stage], NAMES, lanes=16, threads=2)


def test_a_body_survives_parsing_and_rendering() -> None:
    nodes = parse_body(TWO_STAGES)
    assert parse_body(render_body(nodes)) == nodes
    loops = [node for node in walk(nodes) if isinstance(node, Block) and node.var is not None]
    assert [(loop.var, loop.trips) for loop in loops] == [("x0", 4), ("x1", 32), ("x0", 128)]


@pytest.mark.parametrize("text", ["{", "}", "{ }\n}\n", "}\n{"])
def test_braces_that_do_not_match_are_refused(text: str) -> None:
    with pytest.raises(NotTranslatable):
        parse_body(text)


def test_loops_whose_rows_agree_become_one() -> None:
    fused = fuse(TWO_STAGES.replace("INDEX", "x0"))
    assert fused is not None
    loops = [node for node in walk((fused,)) if isinstance(node, Block) and node.var is not None]
    assert (loops[0].var, loops[0].trips) == ("chunk", 128)
    lines = [node.text for node in walk((fused,)) if isinstance(node, Line)]
    assert "const int64_t x0 = chunk / 32L % 4L;" in lines
    assert "const int64_t x1 = chunk % 32L;" in lines
    assert "const int64_t x0 = chunk;" in lines


@pytest.mark.parametrize("index", ["127L + (-1L)*x0", "x0 + 1L", "0L", "tmp3", "x0 / 2L", "x0 % 7L"])
def test_loops_that_read_other_rows_stay_apart(index: str) -> None:
    assert fuse(TWO_STAGES.replace("INDEX", index)) is None


def test_a_pointer_that_may_overlap_another_keeps_loops_apart() -> None:
    region = parse_body(TWO_STAGES.replace("INDEX", "x0"))[0]
    assert isinstance(region, Block)
    stages = [stage for node in region.body if (stage := read_loop_nest(node))]
    assert _fused(stages, {**NAMES, "out_ptr0": UNKNOWN}, lanes=16, threads=2) is None


def test_guards_bound_what_a_vector_touches() -> None:
    nodes = parse_body(
        """
        for(int64_t x1=0L; x1<20L; x1+=16L)
        {
            if(C10_LIKELY(x1 >= 0L && x1 < 16L))
            {
                tmp0.store(out_ptr0 + (x1));
            }
            if(C10_UNLIKELY(x1 >= 16L && x1 < 20L))
            {
                tmp0.store(out_ptr0 + (x1), 4L);
            }
        }
        """
    )
    spans = [(access.index.span(access.ranges), access.lanes) for access in find_accesses(nodes, 16) if access.index]
    assert spans == [((0, 0), 16), ((16, 16), 4)]


def test_what_is_not_understood_counts_as_a_write_anywhere() -> None:
    nodes = parse_body("atomic_add(&out_ptr0[tmp0], tmp1);\ntranspose_mxn<float>(tmp0, 16L, out_ptr1 + (x0), 8L);")
    accesses = {access.pointer: access for access in find_accesses(nodes, 16)}
    assert accesses["out_ptr1"].write and accesses["out_ptr1"].index is None


@given(st.dictionaries(st.sampled_from(["x0", "x1", "x2"]), st.integers(-50, 50)), st.integers(-1000, 1000))
def test_affine_expressions_are_read_back(terms: dict[str, int], constant: int) -> None:
    text = " + ".join([f"({constant}L)", *(f"({factor}L)*{name}" for name, factor in terms.items())])
    found = read_affine(text)
    assert found is not None
    assert found.constant == constant
    assert dict(found.terms) == {name: factor for name, factor in terms.items() if factor}
    values = dict.fromkeys(terms, 3)
    expected = constant + sum(3 * factor for factor in terms.values())
    assert found.span({name: (value, value) for name, value in values.items()}) == (expected, expected)


@given(st.text(max_size=60))
def test_any_text_is_affine_or_not_but_never_an_error(text: str) -> None:
    found = read_affine(text)
    assert found is None or isinstance(found.constant, int)
