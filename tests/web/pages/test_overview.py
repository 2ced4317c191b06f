"""The front page, a task's candidates, and why a kernel is fast: figures, filters, pictures, malformed results."""

import json
import math
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from db.evaluations import results
from db.tables import CandidateRow
from service.settings import load_settings
from service.views.evaluation import evaluation_view
from service.views.overview import BIN_EDGES, ModelLine, OverviewQuery, Progress, Spread, bins_of, overview, target_key
from service.views.task_candidates import judged_inputs, task_candidates_view
from service.views.why import why
from tests.support import seeded_store
from tests.support.boards import Board
from tests.support.new_stores import open_new_store
from tests.support.web_application import LOCAL
from web.app import create_app
from web.dependencies import Dependencies
from web.pages.render import overview_charts, render, speedup_bars


@pytest.fixture
def board(tmp_path):
    store = open_new_store(tmp_path / "overview.db")
    yield Board(store)
    store.close()


@pytest.fixture
def client(board):
    app = create_app(Dependencies(load_settings(), board.store))
    return TestClient(app, base_url=LOCAL, follow_redirects=False)


def seen(board, **query):
    return overview(board.store, OverviewQuery(**query))


def written(board, job_id, day):
    with board.store.write() as session:
        session.query(CandidateRow).filter(CandidateRow.job_id == job_id).update(
            {"created_at": datetime.fromisoformat(day).replace(tzinfo=UTC)}
        )


# What is fast


def test_an_empty_store_has_an_empty_overview_and_says_how_to_begin(board, client):
    found = seen(board)
    assert (found.targets, found.models, found.rows, found.bins, found.best_mean) == ((), (), (), (), None)
    text = client.get("/").text
    assert "Nothing was evaluated yet" in text
    assert 'href="/submit"' in text


def test_only_ranked_figures_count(board):
    board.add("good", 2.0)
    board.add("busy", 50.0, tags=["noisy"])
    board.add("beyond", 60.0, tags=["beyond_roofline"])
    board.add("tried", 70.0, tags=["trial"])
    board.add("wrong", verdict="wrong_output")
    found = seen(board)
    assert (found.tasks, found.solved, found.faster, found.best_mean) == (1, 1, 1, pytest.approx(2.0))
    cells = dict(zip(found.columns, found.rows[0].cells, strict=True))
    assert {name: cell.words or cell.ratio.value for name, cell in cells.items()} == {
        "good": 2.0, "busy": "no rank", "beyond": "no rank", "tried": "only tried", "wrong": "none passed"
    }  # fmt: skip
    assert [line.mean for line in found.models] == pytest.approx([2.0, 1.0, 1.0, 1.0, 1.0])


def test_a_kernel_has_one_figure_however_often_it_is_measured(board):
    for speedup in (2.0, 2.2, 2.4):
        board.add("m", speedup, candidate="same")
    (row,) = seen(board).rows
    (entry,) = board.entries()
    assert row.cells[0].ratio.value == entry.speedup
    assert row.cells[0].entry.pooled == 3


def test_a_model_is_judged_over_all_tasks_that_it_tried(board):
    for number, speedup in enumerate((4.0, 1.0, 2.0)):
        board.add("a", speedup, task=f"s/t{number}")
    board.add("a", verdict="crashed", task="s/t3")
    board.add("b", 0.5, task="s/t0")
    first, second = seen(board).models
    assert (first.number, first.model, first.tried, first.ranked, first.faster, first.first) == (1, "a", 4, 3, 2, 3)
    assert first.mean == pytest.approx(8 ** (1 / 4))
    assert first.mean_ranked == pytest.approx(2.0)
    assert first.spread == Spread(1.0, 1.5, 2.0, 3.0, 4.0)
    assert (second.model, second.mean, second.spread.middle) == ("b", 0.5, 0.5)


def test_a_cost_that_is_not_known_is_not_taken_for_nothing(board):
    board.add("free", 2.0)
    board.add(None, 2.0)  # written by a user: nobody knows what it took
    lines = {line.model: line for line in seen(board).models}
    assert (lines["free"].cost_usd, lines["free"].unknown_costs, lines["free"].usd_per_task) == (0.0, 0, 0.0)
    assert (lines["submitted"].cost_usd, lines["submitted"].unknown_costs) == (None, 1)
    assert lines["submitted"].usd_per_task is None
    assert [dot.number for dot in overview_charts.costs(seen(board).models).dots] == [lines["free"].number]


@pytest.mark.parametrize(
    ("speedup", "spread", "level"),
    [(0.8, 0.01, -1), (1.005, 0.01, 0), (1.2, 0.01, 1), (1.5, 0.01, 2), (2.5, 0.01, 3), (9.0, 0.1, 4), (9.0, 8.5, 0)],
)
def test_a_cell_says_by_its_interval_whether_it_is_faster(board, speedup, spread, level):
    board.add("m", speedup, spread)
    assert seen(board).rows[0].cells[0].level == level


def test_ranks_that_are_shared_are_all_first(board):
    board.add("a", 2.0, 0.2)
    board.add("b", 1.9, 0.2)
    board.add("c", 1.1)
    found = seen(board)
    assert dict(zip(found.columns, [cell.best for cell in found.rows[0].cells], strict=True)) == {
        "a": True, "b": True, "c": False
    }  # fmt: skip


def test_targets_are_never_mixed_and_the_one_with_most_ranked_entries_comes_first(board):
    board.add("m", 9.0, device="CPU B")
    board.add("m", 2.0)
    board.add("m", 3.0, task="s/other")
    found = seen(board)
    assert [each.target.device for each in found.targets] == ["CPU A", "CPU B"]
    assert {cell.ratio.value for row in found.rows for cell in row.cells} == {2.0, 3.0}
    other = seen(board, target=target_key(found.targets[1].target))
    assert [cell.ratio.value for row in other.rows for cell in row.cells] == [9.0]
    assert seen(board, target="unknown").target == found.target


def test_speedups_over_torch_compile_are_shown_where_they_are_asked_for(board):
    board.add("m", 9.0, figures={"speedup_compile": 1.3, "speedup_compile_low": 1.2, "speedup_compile_high": 1.4})
    (row,) = seen(board, over="compile").rows
    assert (row.cells[0].ratio.value, row.cells[0].ratio.low) == (1.3, 1.2)


def test_a_kernel_that_is_not_measured_over_torch_compile_is_no_failure(board, client):
    written(board, board.add("a", 9.0, task="s/t0", figures={"speedup_compile": 4.0}), "2026-01-01")
    board.add("a", 3.0, task="s/t1", figures={"speedup_compile": None})
    board.add("b", 8.0, task="s/t0", figures={"speedup_compile": None})
    board.add("b", verdict="crashed", task="s/t2")
    board.add("c", 8.0, task="s/t1", figures={"speedup_compile": None})
    found = seen(board, over="compile")
    assert [(line.model, line.tried, line.ranked, line.mean) for line in found.models] == [
        ("a", 1, 1, 4.0), ("b", 1, 0, 1.0), ("c", 0, 0, None)
    ]  # fmt: skip
    assert (found.tasks, found.solved, found.unmeasured, found.best_mean) == (3, 1, 1, 4.0)
    assert [each.mean for each in found.progress] == [pytest.approx(2.0)]
    assert [cell and cell.words for cell in found.rows[1].cells] == [
        "not over torch.compile", None, "not over torch.compile"
    ]  # fmt: skip
    text = client.get("/?over=compile").text
    assert "Not measured over torch.compile" in text and "on the 2 tasks that are measured" in text
    assert seen(board).unmeasured == 0 and "on all 3 tasks" in client.get("/").text


def test_ranks_are_over_eager_and_shown_beside_such_speedups_alone(board, client):
    board.add("a", 9.0, figures={"speedup_compile": 1.1})
    board.add("b", 3.0, figures={"speedup_compile": 2.0})
    found = seen(board, over="compile")
    assert [line.first for line in found.models] == [None, None]
    assert not any(cell.best for row in found.rows for cell in row.cells)
    eager, over_compile = client.get("/").text, client.get("/?over=compile").text
    for words in ("★", ">First<", "; rank 1", 'data-label="First"'):
        assert words in eager and words not in over_compile


def test_progress_counts_the_kernels_that_stand_from_the_day_that_they_were_written(board):
    written(board, board.add("a", 2.0, task="s/t0"), "2026-01-01")
    written(board, board.add("b", 4.0, task="s/t0"), "2026-01-03")
    written(board, board.add("b", 0.5, task="s/t1"), "2026-01-02")
    assert [(each.day.isoformat(), each.faster, each.mean) for each in seen(board).progress] == [
        ("2026-01-01", 1, pytest.approx(math.sqrt(2.0))),
        ("2026-01-02", 1, pytest.approx(math.sqrt(2.0))),
        ("2026-01-03", 1, pytest.approx(2.0)),
    ]


def test_the_distribution_has_each_task_once_by_its_best(board):
    board.add("a", 1.2, task="s/t0")
    board.add("b", 2.9, task="s/t0")
    board.add("a", 0.9, task="s/t1")
    board.add("a", verdict="crashed", task="s/t2")
    bins = seen(board).bins
    assert sum(each.tasks for each in bins) == 2
    assert [each.tasks for each in bins if each.low is not None and each.low <= 2.9 < (each.high or 1e9)] == [1]


def test_the_heat_map_has_pages_of_tasks(board):
    for number in range(45):
        board.add("m", 2.0, task=f"s/t{number:02}")
    first, last = seen(board), seen(board, page=900)
    assert (len(first.rows), first.pages, last.page, [row.name for row in last.rows]) == (
        40, 2, 2, ["t40", "t41", "t42", "t43", "t44"]
    )  # fmt: skip
    assert first.tasks == 45


def test_of_many_models_those_that_tried_most_have_a_column(board):
    for number in range(14):
        board.add(f"m{number:02}", 2.0, task="s/t0")
    board.add("m13", 2.0, task="s/t1")
    found = seen(board)
    assert (len(found.columns), len(found.models), "m13" in found.columns) == (12, 14, True)


# The page


def test_the_heat_map_can_be_read_without_colours(board, client):
    board.add("vendor/m", 2.0, 0.1)
    board.add("vendor/none", verdict="wrong_output")
    text = client.get("/").text
    assert 'title="2.00×, 95 % interval 1.90× to 2.10×; 1 evaluation; rank 1"' in text
    assert '<span class="interval">1.90×–2.10×</span>' in text
    assert "none passed" in text
    assert 'aria-label="Tasks by the speedup of their best kernel: 1 2× to 2.83×."' in text


def test_filters_need_no_button_but_without_a_script_have_one(board, client):
    board.add("m", 2.0)
    for path in ("/", "/leaderboard"):
        text = client.get(path).text
        assert "<noscript><button>Filter</button></noscript>" in text
        assert text.count("<button>Filter</button>") == 1
        assert "filters.js" in text


def test_filters_and_the_search_are_part_of_the_address(board, client):
    board.add("vendor/a", 2.0, task="s/softmax")
    board.add("vendor/b", 3.0, task="s/gelu")
    text = client.get("/?q=SOFT").text
    assert 'value="SOFT"' in text
    assert "/tasks/s/softmax" in text
    assert "/tasks/s/gelu" not in text
    assert "Nothing matches these filters" in client.get("/?q=nothing&model=vendor/a").text
    assert "/tasks/s/softmax" not in client.get("/?model=vendor/b").text


@pytest.mark.parametrize("query", ["on=x&over=sideways", "q=%25%5C_'", "q=" + "x" * 300, "suite=", "page=1000000"])
def test_whatever_is_asked_for_there_is_a_page(board, client, query):
    board.add("m", 2.0)
    assert client.get(f"/?{query}").status_code == 200


# Pictures

SPEEDUPS = st.floats(1e-6, 1e9)


@given(st.lists(SPEEDUPS, min_size=1, max_size=30), st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_pictures_stay_within_their_frame(speedups, dollars):
    bins = bins_of(speedups)
    assert sum(each.tasks for each in bins) == len(speedups)
    drawn = overview_charts.distribution(bins)
    assert all(each.x >= 0 and each.x + each.width <= overview_charts.WIDTH for each in drawn.columns)
    assert all(each.y >= 0 and each.height >= 0 for each in drawn.columns)
    lines = [
        ModelLine(number, "m", 1, 1, 1, 1, speedup, speedup, None, paid, 0)
        for number, (speedup, paid) in enumerate(zip(speedups, dollars, strict=False), 1)
    ]
    dots = overview_charts.costs(lines).dots
    assert len(dots) == len(lines)
    assert all(0 <= at <= overview_charts.WIDTH for dot in dots for at in (dot.x, dot.number_x))
    assert all(0 <= at <= overview_charts.HEIGHT for dot in dots for at in (dot.y, dot.number_y))
    days = [Progress(date(2026, 1, 1) + timedelta(days=3 * n), 1, each) for n, each in enumerate(speedups)]
    points = [tuple(map(float, each.split(","))) for each in overview_charts.curve(days).points.split()]
    assert all(0 <= x <= overview_charts.WIDTH and 0 <= y <= overview_charts.HEIGHT for x, y in points)
    assert [x for x, _ in points] == sorted(x for x, _ in points)


@given(st.lists(SPEEDUPS, min_size=5, max_size=5).map(sorted))
def test_a_strip_keeps_the_order_of_its_marks(values):
    spread = Spread(*values)
    axis = speedup_bars.axis([])
    strip = overview_charts.strip(axis, spread)
    marks = (strip.least, strip.lower, strip.middle, strip.upper, strip.greatest)
    assert list(marks) == sorted(marks)
    assert all(0 <= each <= speedup_bars.WIDTH for each in (*marks, strip.one))


def test_the_edges_of_the_distribution_hold_one():
    assert 1.0 in BIN_EDGES


def test_names_break_after_their_signs_alone():
    assert render._breakable("a/b_c.d") == "a/<wbr>b_<wbr>c.<wbr>d"
    assert render._breakable("<b>/x") == "&lt;b&gt;/<wbr>x"


# A task's candidates


def test_a_task_shows_every_candidate_and_the_best_of_each_platform(board, client):
    board.add("a", 2.0, figures={"candidate_ms": 5.0})
    board.add("b", 3.0)
    board.add("b", 8.0, tags=["noisy"])
    board.add("c", verdict="wrong_output")
    board.add("c", 1.5, platform="opencl", device="GPU A")
    found = task_candidates_view(board.store, "starter", "op", "s1")
    assert [(each.platform, each.total, each.best.candidate.model) for each in found.targets] == [
        ("cpu", 4, "b"), ("opencl", 1, "c")
    ]  # fmt: skip
    assert [line.counts for line in found.targets[0].lines] == [True, True, False, False]


def test_a_target_without_a_rank_has_no_best(board):
    board.add("a", 2.0, tags=["noisy"])
    (target,) = task_candidates_view(board.store, "starter", "op", "s1").targets
    assert target.best is None


@pytest.fixture
def profiled(tmp_path):
    store = open_new_store(tmp_path / "profiled.db")
    made = seeded_store.Seeded(store)
    made.path = seeded_store.profiled_job(made)
    yield made
    store.close()


def pages(made):
    return TestClient(create_app(Dependencies(load_settings(), made.store)), base_url=LOCAL)


def test_a_task_tells_shapes_and_strides_and_draws_each_candidate_under_the_roof(profiled):
    text = pages(profiled).get("/tasks/local/mish").text
    assert '<td class="num">2048 × 2048</td><td class="num">2048 × 1' in text
    data = json.loads(text.partition('data-chart="roofline"')[2].partition('application/json">')[2].partition("<")[0])
    (series,) = data["series"]
    assert series["name"] == "vendor/profiled"
    (dot,) = series["dots"]
    assert dot["sure"] is True
    assert 0 < dot["gflop"] < data["intensity"] * data["peak_gb_per_s"]


@pytest.mark.parametrize(
    "result",
    [{}, {"correctness": None}, {"correctness": {"neighbours": {"judged": "x"}}},
     {"correctness": {"neighbours": {"judged": [3, [4, {"shape": 5}], []]}}}],
)  # fmt: skip
def test_inputs_that_a_result_does_not_tell_are_left_out(result):
    assert all(each.shape == "" for group in judged_inputs(result) for each in group)


# Why


def told(made):
    with made.store.read() as session:
        (record,) = results.list_evaluations(session, made.jobs["profiled"])
        record = results.get_evaluation(session, record.id)
    return record, evaluation_view(record)


def test_a_profile_is_told_in_shares_loops_and_sentences(profiled):
    record, view = told(profiled)
    source = seeded_store.EXEMPLAR.read_text()
    found = why(record, view, source)
    titles = {each.title: each for each in found.regions}
    assert sum(each.share for each in titles["Processor time by kind of code"].shares) == pytest.approx(1.0, abs=0.02)
    (own,) = titles["Its own functions"].shares
    assert "void mish(" in source.splitlines()[own.line.number - 1]
    (loop,) = found.loops
    assert (loop.at, loop.good, loop.made) == ("kernel.cpp:24", True, "vectors of 64 bytes")
    assert source.splitlines()[loop.line.number - 1].lstrip().startswith("for (int64_t i = 0")
    assert found.sentences[0].startswith("What bounds it is how fast memory moves its bytes. It reaches 30 %")
    assert "vectors of 64 B" in found.told


def with_profile(record, **profile):
    return replace(record, result={**record.result, "profile": profile})


LOOPS = [
    {"at": "main.cpp:3", "vectorized": False, "vector_bytes": None, "intrinsics": False,
     "notes": ["it calls a function that has no vector form"]},
    {"at": "main.cpp:5", "vectorized": False, "vector_bytes": None, "intrinsics": True, "notes": []},
]  # fmt: skip


def test_loops_that_are_not_vectorised_say_why_beside_their_line(profiled):
    record, view = told(profiled)
    lines = ['SOURCE = r"""', "void f() {", "  for (;;) y[i] = g(x[i]);", "  int k;", "  while (k--) h();", "}", '"""']
    source = "\n".join(lines)
    found = why(with_profile(record, detail={"vectorization": {"loops": LOOPS, "loops_seen": 2}}), view, source)
    assert [(loop.good, loop.made, loop.line.number) for loop in found.loops] == [
        (False, "not vectorized", 3), (True, "vectors by its own intrinsics", 5)
    ]  # fmt: skip
    assert any("1 of 2 loops" in each and "no vector form" in each for each in found.sentences)


def test_hot_machine_code_stands_beside_the_line_it_came_from(profiled):
    record, view = told(profiled)
    lines = ['SOURCE = r"""', "void f() {", "  for (;;) y[i] = g(x[i]);", "  int k;", "  while (k--) h();", "}", '"""']
    code = [
        {"share": 0.4, "text": "vfmadd231ps ymm0,ymm1,ymm2", "at": "main.cpp:3"},
        {"share": 0.1, "text": "jne 40 <f+0x10>", "at": "main.cpp:5"},
        {"share": 7, "text": "call g", "at": ""},
    ]
    hot = [{"function": "f", "object": "main.so", "share": 0.6, "instructions": code}, {"instructions": 3}, None]
    detail = {"processor_time": {"hot_code": hot}, "vectorization": {"loops": LOOPS}}
    (found,) = why(with_profile(record, detail=detail), view, "\n".join(["import x", *lines])).hot
    assert (found.function, found.where, found.share) == ("f", "main.so", 0.6)
    assert [(each.share, each.line and each.line.number) for each in found.instructions] == [
        (0.4, 4), (0.1, 6), (1.0, None)
    ]  # fmt: skip
    assert found.instructions[0].line.text == "for (;;) y[i] = g(x[i]);"


def test_a_source_of_nothing_but_strings_and_loops_takes_no_longer(profiled):
    record, view = told(profiled)
    loops = [{"at": f"main.cpp:{place}"} for place in (*range(1, 20), 9_000_000)]
    source = '"""for\n' * 5_000
    began = time.perf_counter()
    found = why(with_profile(record, detail={"vectorization": {"loops": loops}}), view, source)
    assert time.perf_counter() - began < 2  # a twentieth of a second where nothing else runs
    assert [loop.line for loop in found.loops] == [None] * 20


def test_a_line_that_cannot_be_found_is_not_shown(profiled):
    record, view = told(profiled)
    found = why(with_profile(record, detail={"vectorization": {"loops": LOOPS}}), view, "x = 1\n" * 30)
    assert [loop.line for loop in found.loops] == [None, None]


def test_a_screened_kernel_shows_what_it_takes_of_gpus(profiled):
    record, view = told(profiled)
    kernels = [{"kernel": "softmax", "registers": 40, "shared_bytes": 4096, "spill_stores": 16, "occupancy": 0.5}]
    compiled = [{"architecture": "sm_90a", "error": "", "kernels": kernels, "sass": {"all": 120, "scalar loads": 8}}]
    found = why(with_profile(record, screening={"compiled": compiled}), view, "")
    (shown,) = found.resources
    assert (shown.words, shown.spilled, shown.occupancy) == ("40 registers, 4096 bytes shared", 16, 0.5)
    assert any("softmax spills registers on sm_90a" in each for each in found.sentences)
    assert found.instructions == (("sm_90a", "120 in all: 8 scalar loads"),)


KEYS = st.sampled_from(("loops", "kinds", "share", "at", "compiled", "kernels", "notes", "sass", "operators"))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(-2, 2) | st.integers(-5, 5) | st.sampled_from(("", "x:7", "f(int)")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
PARTS = ("calls", "operators", "processor_time", "vectorization", "absent")


@given(
    st.dictionaries(st.sampled_from(("screening", "kernels_claimed", "time_by_file", "absent", "detail")), JSON),
    st.dictionaries(st.sampled_from(PARTS), JSON),
)
def test_a_malformed_profile_is_shown_as_far_as_it_goes(profile, detail):
    record = SimpleNamespace(platform="cpu", result={"profile": {"detail": detail} | profile})
    view = SimpleNamespace(roofline=None, clock=None, latencies=())
    found = why(record, view, "for\n")
    assert all(0 <= each.share <= 1 for region in found.regions for each in region.shares)


def test_the_page_of_a_candidate_says_why_it_is_fast(profiled):
    text = pages(profiled).get(profiled.path).text
    assert "Why it is as fast as it is" in text
    assert 'href="#L33"' in text
    assert 'id="L33"' in text
    assert "vectors of 64 bytes" in text
