"""A batch's report: its tables, plots, settings and forms, whatever names are in it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batches.manage import BatchDetails, group_samples
from service.batches.plots import Bar, Curve, Spread, categories_plot, fast_p_plot, speed_range, speedups_plot
from service.batches.report import MARK, check_ks, report_files, write_report
from service.batches.results import SETTINGS, groups_of
from service.batches.statistics import Estimate, estimates
from service.batches.tables import Cell, Column, Table, latex, latex_text, markdown
from service.errors import BadRequest, Conflict
from service.submissions.jobs import OPTIONS
from tests.support.kernelbench_script import details_of, generated_rows

HOSTILE = r"openai/<script>&\input{/etc/passwd}$x$_%#|`"
VERSIONS = {"harness": "6b61e2", "torch": "2.13.0+cpu", "seed": "abc"}


def of_jobs(details: BatchDetails, jobs: tuple, **values: object) -> BatchDetails:
    return replace(details, jobs=jobs, groups=groups_of(jobs, details.over), **values)


@pytest.fixture(scope="module")
def batch() -> BatchDetails:
    """Two models at two suites in four categories, three samples each."""
    jobs = []
    for number, model in enumerate(("builtin/compiler", HOSTILE)):
        for level in (1, 2):
            rows = generated_rows(10 * number + level, suite=f"kernelbench-level{level}", tasks=10, samples=3)
            for job in details_of(rows).jobs:
                category = ("matmul", "conv", "reduce", "a_b & c")[int(job.task.rpartition("_")[2]) % 4]
                asked = {"rounds": 4, "budget_usd": 0.5, "domain": "finite", "seed": 11}
                found = {"model": model, "category": category, "settings": asked, "versions": VERSIONS}
                jobs.append(replace(job, job=len(jobs) + 1, **found))
    return of_jobs(details_of([]), tuple(jobs), refused=(("no/such", "no such task"),))


@pytest.fixture(scope="module")
def files(batch: BatchDetails) -> dict[str, str]:
    return report_files(batch)


def test_a_report_has_tables_plots_results_and_what_they_are_made_of(files: dict[str, str]) -> None:
    tables = ("overall", "fast_p", "at_k", "levels", "categories", "tasks")
    assert {f"{name}.tex" for name in tables} | {"tables.tex", "report.md", MARK, "jobs.csv"} <= set(files)
    assert {"fast_p.svg", "speedups.svg", "categories.svg"} <= set(files)
    text = files["report.md"]
    for word in ("Compile@1", "Pass@3", "SpeedUp_1@3", "fast_0.5", "geomean of correct", "kernelbench-level2", "conv"):
        assert word in text, word
    for name, value in (
        ("settings.rounds", "4"),
        ("settings.domain", "finite"),
        ("settings.seed", "11"),
        ("versions.harness", "6b61e2"),
    ):
        assert f"| {name} | {value} |" in text
    assert "versions.seed" not in text, "each evaluation has its own"
    assert "no/such: no such task" in text and "its times do not count, noisy" in text
    assert "Davison" in text and "MultiKernelBench, section 4.1" in text


def test_every_figure_of_the_tables_is_that_of_the_estimates(batch: BatchDetails, files: dict[str, str]) -> None:
    for group in batch.groups:
        found = estimates(group_samples(batch, group), ks=(1, 2, 3))
        row = next(line for line in files["overall.tex"].splitlines() if latex_text(group.model) in line)
        for name, factor, digits in (("pass@3", 100, 1), ("SpeedUp_1@1", 100, 1), ("geomean", 1, 2)):
            assert f"{found[name].value * factor:.{digits}f}" in row
    whole = json.loads(files[MARK])
    assert whole["groups"][0]["estimates"]["pass@3"]["low"] is not None


def test_every_export_names_versions_and_settings(files: dict[str, str]) -> None:
    whole = json.loads(files[MARK])
    assert whole["about"]["versions"]["harness"] == ["6b61e2"] and whole["about"]["settings"]["rounds"] == [4]
    assert whole["about"]["kernelwright"] == whole["jobs"][0]["versions"]["kernelwright"]
    head, first = files["jobs.csv"].splitlines()[:2]
    assert head.endswith("settings,versions") and "6b61e2" in first and '""rounds"": 4' in first
    about = next(text for name, text in files.items() if name.startswith("kernelbench/") and "about" in name)
    assert json.loads(about)["batch"]["versions"]["torch"] == ["2.13.0+cpu"]
    result = next(text for name, text in files.items() if name.startswith("multikernelbench/output"))
    assert next(iter(json.loads(result).values()))["versions"]["harness"] == "6b61e2"


def test_settings_that_exports_name_are_those_that_a_request_may_set() -> None:
    assert set(SETTINGS) == set(OPTIONS) - {"platform", "model", "strategy"}


def test_each_form_has_a_folder_of_its_own(files: dict[str, str]) -> None:
    runs = {name.split("/")[1] for name in files if name.startswith("kernelbench/")}
    assert len(runs) == 4 and all(re.fullmatch(r"[A-Za-z0-9._-]+", run) for run in runs)
    assert len([name for name in files if name.endswith("result.json")]) == 6  # two models, three samples
    assert all(not part.startswith(".") for name in files for part in name.split("/"))


def balanced(text: str) -> bool:
    """Whether groups and environments close, and every row has as many cells as the head."""
    bare = text.replace(r"\{", "").replace(r"\}", "").replace(r"\\", "\n")
    rows = [
        line for line in re.sub(r"\\&", "", text).splitlines() if line.endswith((r"\\", r"\\[2pt]")) and "&" in line
    ]
    return (
        bare.count("{") == bare.count("}")
        and re.findall(r"\\begin\{(.*?)\}", text) == re.findall(r"\\end\{(.*?)\}", text)[::-1]
        and len({line.count(" & ") for line in rows}) == 1
    )


def test_names_are_no_markup_anywhere(files: dict[str, str]) -> None:
    for name, text in files.items():
        if name.endswith(".svg"):
            root = ElementTree.fromstring(text)
            assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
                *("svg", "title", "desc", "rect", "line", "text", "polygon", "polyline", "circle")
            }
        elif name.endswith(".tex") and name != "tables.tex":
            assert balanced(text), name
            assert r"\input" not in text and r"\textbackslash{}input\{/etc/passwd\}" in text
    assert "<script>" not in files["report.md"] and "&lt;script&gt;" in files["report.md"]


@given(st.text(max_size=30), st.text(max_size=30), st.booleans())
def test_any_text_makes_a_table_of_the_same_form(name: str, other: str, best: bool) -> None:
    rows = ((Cell(name), Cell("1.0", "[0.5, 2.0]", best)), (Cell(other), Cell("–")))
    table = Table("t", name, (Column(other), Column("v")), rows)
    assert balanced(latex(table, "tab:t"))
    assert markdown(table).count("\n|") >= 4


def test_a_table_of_many_rows_goes_over_pages() -> None:
    table = Table("t", "c", (Column("a"), Column("b")), tuple((Cell(str(row)), Cell("1")) for row in range(50)))
    text = latex(table, "tab:t")
    assert balanced(text) and r"\begin{longtable}" in text and text.count(r"\endhead") == 1


# --- plots


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.floats(1e-3, 1e4), max_size=12), min_size=1, max_size=8),
    st.text(min_size=1, max_size=60),
)
def test_plots_are_sound_whatever_the_speedups_and_names(speeds: list[list[float]], name: str) -> None:
    curves = [
        Curve(f"{name}{n}", [(s, 1 / 12) for s in found], [(1.0, Estimate(0.5, 0.4, 0.6))])
        for n, found in enumerate(speeds)
    ]
    plots = (
        fast_p_plot(curves, name),
        speedups_plot([Spread(name, found, name) for found in speeds], name),
        categories_plot([name] * len(speeds), [(name, [Bar(0.5, Estimate(0.25)) for _ in speeds])], name),
    )
    for plot in plots:
        root = ElementTree.fromstring(plot)
        width, height = (float(root.attrib[side]) for side in ("width", "height"))
        for element in root.iter():
            for x in ("x", "x1", "x2", "cx"):
                assert -1 <= float(element.attrib.get(x, 0)) <= width + 1
            for y in ("y", "y1", "y2", "cy"):
                assert -1 <= float(element.attrib.get(y, 0)) <= height + 1


def test_the_curve_falls_by_each_samples_share_at_its_speedup() -> None:
    text = fast_p_plot([Curve("m", [(1.0, 0.25), (4.0, 0.5)], [])], "eager")
    points = next(each for each in ElementTree.fromstring(text).iter() if each.tag.endswith("polyline"))
    places = [tuple(map(float, each.split(","))) for each in points.attrib["points"].split()]
    low, high = speed_range([1.0, 4.0])
    assert (low, high) == (0.5, 8.0)
    (left, _), *_, (right, bottom) = places
    width = right - left
    assert [x for x, _ in places[1:5]] == [
        pytest.approx(left + width * part, abs=0.02) for part in (1 / 4, 1 / 4, 3 / 4, 3 / 4)
    ]
    heights = [bottom - y for _, y in places]
    assert heights[0] == pytest.approx(heights[1]) and heights[2] / heights[0] == pytest.approx(0.5 / 0.75, abs=1e-3)
    assert heights[-1] == 0.0


# --- refusals, and how it is written


def test_the_same_results_give_the_same_files(batch: BatchDetails, files: dict[str, str]) -> None:
    assert report_files(batch) == files


def test_k_are_those_that_were_asked_for_as_far_as_there_are_samples(batch: BatchDetails) -> None:
    found = report_files(batch, ks=check_ks([2, 2, 7]))
    assert "Pass@2" in found["overall.tex"] and "Pass@7" not in found["overall.tex"]
    with pytest.raises(BadRequest, match="the batch has 3 of each task"):
        report_files(batch, ks=(7,))
    with pytest.raises(BadRequest, match="--k 0: must be from 1"):
        check_ks([0])


def test_a_batch_without_an_ended_job_has_nothing_to_report(batch: BatchDetails) -> None:
    waiting = tuple(replace(job, outcome="open") for job in batch.jobs)
    with pytest.raises(Conflict, match="no job has ended"):
        report_files(of_jobs(batch, waiting))


def test_a_batch_that_goes_on_says_so_and_names_what_is_left_out(batch: BatchDetails) -> None:
    jobs = (replace(batch.jobs[0], outcome="open", reason="queued"), *batch.jobs[1:])
    text = report_files(of_jobs(batch, jobs))["report.md"]
    assert "not the batch's last ones" in text and "sample 1: left out, queued" in text


def test_one_sample_of_one_task_is_reported_without_intervals() -> None:
    details = details_of([("s/op", 1, "passed", True, True, 2.0, 2.0, 1.0)])
    found = report_files(details)
    assert "| openai/m | 1 | 1 | 100.0 | 100.0 | 100.0 | 2.00 | 2.00 | 0.00 |" in found["report.md"]


def test_a_report_is_written_wholly_and_takes_the_place_of_an_earlier_one(
    files: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "paper" / "batch1"
    write_report(files, out)
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == set(files)
    earlier = json.dumps({"report_files": [*files, "extra.svg", "old/run/extra.json"]})
    write_report({**files, MARK: earlier, "extra.svg": "earlier", "old/run/extra.json": "{}"}, out)
    write_report(files, out)
    assert {str(path.relative_to(out)) for path in out.rglob("*")} >= set(files)
    assert not (out / "extra.svg").exists() and not (out / "old").exists() and list(out.parent.iterdir()) == [out]
    assert (out / MARK).read_text() == files[MARK]


def test_what_no_report_wrote_stays_beside_one(files: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "paper"
    write_report(files, out)
    (out / "main.tex").write_text("mine")
    (out / "kernelbench" / "notes").mkdir()
    write_report(files, out)
    assert (out / "main.tex").read_text() == "mine" and (out / "kernelbench" / "notes").is_dir()
    with pytest.raises(BadRequest, match=r"main\.tex is there, and no report wrote it"):
        write_report({**files, "main.tex": "the report's"}, out)
    assert (out / "main.tex").read_text() == "mine"


def test_files_outside_of_the_folder_are_not_touched_whatever_its_mark_says(
    files: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "paper"
    write_report(files, out)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.txt").write_text("mine")
    (out / "link").symlink_to(tmp_path / "elsewhere")
    names = [*files, "../mine.txt", str(tmp_path / "mine.txt"), "link/mine.txt", ""]
    (out / MARK).write_text(json.dumps({"report_files": names}))
    write_report(files, out)
    assert [path.read_text() for path in (tmp_path / "elsewhere" / "mine.txt", tmp_path / "mine.txt")] == ["mine"] * 2


def test_a_report_that_was_cut_short_is_written_over(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "paper"
    write_report(files, out)
    replace_file, left = Path.replace, [4]

    def full(self: Path, target: Path) -> Path:
        left[0] -= 1
        if not left[0]:
            raise OSError(28, "No space left on device")
        return replace_file(self, target)

    more = {**files, "a.tex": "a", "b.tex": "b", "c.tex": "c"}
    more[MARK] = json.dumps({"report_files": [*more]})
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadRequest, match="No space left"):
        write_report(more, out)
    monkeypatch.undo()
    write_report(files, out)
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == set(files)


@pytest.mark.parametrize("mark", ["{}", "[]", "nothing", '{"report_files": ["report.json", 3]}'])
def test_a_report_of_something_else_is_left_as_it_is(files: dict[str, str], tmp_path: Path, mark: str) -> None:
    (tmp_path / MARK).write_text(mark)
    with pytest.raises(BadRequest, match="something other than a report"):
        write_report(files, tmp_path)
    assert (tmp_path / MARK).read_text() == mark and len([*tmp_path.iterdir()]) == 1


def test_a_folder_with_something_else_is_left_as_it_is(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(BadRequest, match="something other than a report"):
            write_report(files, out)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
