"""The pages as HTML: what they show in each state, what leads where, and that hostile text stays text."""

import csv
import io
import json
import re
import time
import tracemalloc
import unicodedata
import zipfile
from dataclasses import replace
from html.parser import HTMLParser

import anyio
import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import event

from db.evaluations.results import add_llm_call, get_evaluation
from db.evaluations.tasks import add_task
from db.jobs.model_runs import get_run, set_stage
from db.records import JobStatus, LlmCall
from db.tables import JobRow
from service.audit import retract_evaluation
from service.database import open_store
from service.settings import load_settings
from service.submissions.access import Role, create_token
from service.views import safe_text as text_of
from service.views.candidates import diff
from service.views.evaluation import Ratio
from service.views.models import TimeBar, TimePart
from tests.support import seeded_store
from web.app import create_app
from web.dependencies import Dependencies
from web.pages.render import render, speedup_bars, time_bars

pytestmark = pytest.mark.xdist_group("pages")  # they share one seeded store

BASE = "http://127.0.0.1"
PAGES = ("/", "/leaderboard", "/submit", "/jobs", "/tasks", "/batches", "/models", "/devices")


class Page(HTMLParser):
    """A page's elements: their attributes, and the text that people read."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.status = answer.status_code
        self.elements = []
        self.words = []
        self._silent = 0
        self._glued = False
        self.feed(answer.text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._silent += tag in ("script", "style")
        self._glued = tag == "wbr"

    def handle_endtag(self, tag):
        self._silent -= tag in ("script", "style")

    def handle_data(self, data):
        if self._glued and self.words:
            self.words[-1] += data
        elif not self._silent:
            self.words.append(data)
        self._glued = False

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def prose(self):
        """As `text`, where spans (of highlighted code) part no words."""
        return " ".join("".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self):
        return [each["href"] for each in self.all("a") if "href" in each]


class Site:
    """The application over a store, asked without a network."""

    def __init__(self, deps):
        self.deps = deps
        self.app = create_app(deps)
        self.cookies = httpx.Cookies()

    def ask(self, method, path, **values):
        async def go():
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url=BASE, cookies=self.cookies) as client:
                return await client.request(method, path, **values)

        answer = anyio.run(go)
        self.cookies.update(answer.cookies)
        return answer

    def get(self, path, **values):
        return Page(self.ask("GET", path, **values))

    def post(self, path, data=None, *, csrf=True, **values):
        """Send a form as the page that holds it would."""
        token = self.get("/devices").all("meta")[-1]["content"] if csrf is True else csrf or ""
        return self.ask("POST", path, data={"csrf_token": token, **(data or {})}, **values)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    store = open_store(load_settings(data_dir=tmp_path_factory.mktemp("pages")))
    yield seeded_store.seed(store)
    store.close()


@pytest.fixture(scope="module")
def site(made):
    return Site(Dependencies(load_settings(), made.store))


@pytest.fixture
def fresh(isolated_settings):
    settings = load_settings()
    store = open_store(settings)
    yield Site(Dependencies(settings, store))
    store.close()


def job_page(site, made, name):
    return site.get(f"/jobs/{made.jobs[name]}")


def candidate_path(made, job, number):
    job_id = made.jobs[job]
    return f"/jobs/{job_id}/candidates/{made.candidates[job_id][number]}"


# every page


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_whole_also_over_an_empty_store(fresh, path):
    page = fresh.get(path)
    assert page.status == 200
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert page.all("main")[0]["id"] == "content"
    assert page.links[0] == "#content"
    assert [each.get("href") for each in page.all("a") if each.get("aria-current") == "page"][:1] == [path]


def every_page(made):
    yield from PAGES
    yield from (f"/jobs/{job_id}" for name, job_id in made.jobs.items() if "/" not in name)
    yield from (f"/jobs/{made.jobs[name]}/transcript?fold=none" for name in ("done", "hostile", "queued", "running"))
    yield f"/jobs/{made.jobs['done']}/transcript/1"
    yield from (candidate_path(made, name, 1) for name in ("done", "work", "hostile"))
    yield f"{candidate_path(made, 'hostile', 2)}?against={made.candidates[made.jobs['hostile']][1]}"
    yield f"/batches/{made.batches['second']}?against={made.batches['first']}"
    yield from (f"/models/{run_id}" for run_id in made.models.values())
    yield from ("/tasks/starter/gelu_tanh", "/login", "/nothing")


def test_no_page_has_an_inline_script_style_or_handler(site, made):
    for path in every_page(made):
        page = site.get(path)
        for tag, attributes in page.elements:
            assert tag != "style", path
            assert "style" not in attributes, (path, tag)
            assert not [name for name in attributes if name.startswith("on")], (path, tag)
            if tag == "script":
                assert attributes.get("type") == "application/json" or "src" in attributes, path


def test_no_page_takes_anything_from_elsewhere(site, made):
    for path in every_page(made):
        page = site.get(path)
        given = [
            a.get("src") or a.get("href") for tag, a in page.elements if tag in ("script", "link", "img", "iframe")
        ]
        assert all(each.startswith("/assets/") for each in given if each is not None), path


def test_hostile_text_is_shown_as_text_on_every_page(site, made):
    seen = 0
    for path in every_page(made):
        page = site.get(path)
        assert not page.all("img"), path
        assert not [a for a in page.all("script") if not a], path
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", page.answer.text), path
        assert seeded_store.LONG not in page.answer.text, path
        seen += "<script>window.hacked=1</script>" in page.text
    assert seen >= 4


def test_data_of_charts_cannot_end_its_block(site, made):
    for path in every_page(made):
        for block in re.findall(r'<script type="application/json">(.*?)</script>', site.get(path).answer.text, re.S):
            assert "<" not in block, path


def test_files_of_pages_may_be_kept_for_ever_under_the_address_of_their_content(site):
    for attributes in site.get("/").all("link"):
        answer = site.ask("GET", attributes["href"])
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    stale = site.ask("GET", "/assets/0123456789abcdef/style.css")
    assert (stale.status_code, stale.headers["cache-control"]) == (200, "no-store")


@pytest.mark.parametrize("name", ["nothing.css", "..%2fapp.py", "__init__.py", ".gitkeep"])
def test_nothing_else_is_served_as_a_file(site, name):
    assert site.ask("GET", f"/assets/0123456789abcdef/{name}").status_code == 404


def test_the_chart_script_is_the_packages_own(site, made):
    page = job_page(site, made, "done")
    path = next(each["data-plotly"] for each in page.all("script") if "data-plotly" in each)
    answer = site.ask("GET", path)
    assert answer.headers["content-type"].startswith("text/javascript")
    assert b"plotly.js v" in answer.content[:200]
    assert "immutable" in answer.headers["cache-control"]


# leaderboard


def test_an_empty_leaderboard_says_how_to_submit(fresh):
    page = fresh.get("/leaderboard")
    assert "Nothing was evaluated yet" in page.text
    assert "/submit" in page.links


def test_the_leaderboard_shows_speedups_with_their_intervals(site):
    text = site.get("/leaderboard?task=starter/gelu_tanh").text
    assert "2.40× 2.30×–2.50×" in text
    assert "openai/some-model" in text
    assert "custom_kernel" in text


def test_ranks_that_are_shared_are_marked(site):
    text = site.get("/leaderboard?task=starter/gelu_tanh").text
    assert text.count("1 = shared") == 2
    assert "3 starter/gelu_tanh" in text


def test_what_cannot_be_relied_on_is_marked_and_has_no_rank(site):
    page = site.get("/leaderboard?task=starter/gelu_tanh")
    assert [each["class"] for each in page.all("tr") if each.get("class")] == ["unsure"]
    assert "no rank starter/gelu_tanh" in page.text
    assert "quarantined until someone has seen why. No rank." in page.text  # the legend


def test_results_of_the_process_sandbox_are_marked(site):
    assert "no boundary: process" in site.get("/leaderboard?task=starter/softcap_attention").text


def test_filters_are_part_of_the_address_and_stay_in_the_form(site):
    page = site.get("/leaderboard?model=anthropic/other")
    assert "openai/small" not in [word.strip() for word in page.text.split(" kernel ")]
    assert {"value": "anthropic/other", "selected": None} in page.all("option")
    assert "vendor/too-good kernel" not in page.text
    assert "Clear" in page.text


def test_a_filter_that_nothing_matches_says_so(site):
    assert "Nothing matches these filters" in site.get("/leaderboard?suite=nowhere").text


def test_columns_are_sorted_by_links_that_keep_the_filters(site):
    page = site.get("/leaderboard?suite=starter")
    assert sorted_by(page) == ["descending"]
    assert speedups(page) == sorted(speedups(page), reverse=True)
    assert "/leaderboard?suite=starter&sort=speedup&order=asc" in page.links
    found = site.get("/leaderboard?suite=starter&sort=speedup&order=asc")
    assert sorted_by(found) == ["ascending"]
    assert speedups(found) == sorted(speedups(found))
    assert "/leaderboard?suite=starter&sort=speedup&order=desc" in found.links
    order = re.findall(r"<strong>(\d+\.\d+)×", found.answer.text)
    assert order[-1] == "30.00"  # claims nothing, so it stands last


def sorted_by(page):
    return [each["aria-sort"] for each in page.all("th") if "aria-sort" in each]


def speedups(page):
    order = re.findall(r"<strong>(\d+\.\d+)×", page.answer.text)
    return [float(value) for value in order if value != "30.00"]


@pytest.mark.parametrize(
    ("column", "order"),
    [("task", "asc"), ("model", "asc"), ("speedup_compile", "desc"), ("latency", "asc"), ("roofline", "desc"),
     ("cost", "asc"), ("evaluated_at", "desc")],
)  # fmt: skip
def test_each_column_has_a_link_that_sorts_its_own_way_first_and_the_other_way_then(site, column, order):
    link = f"/leaderboard?sort={column}&order={order}"
    assert link in site.get("/leaderboard").links
    found = site.get(link)
    assert sorted_by(found) == ["ascending" if order == "asc" else "descending"]
    assert f"/leaderboard?sort={column}&order={'desc' if order == 'asc' else 'asc'}" in found.links


def test_the_order_goes_with_filters_pages_and_exports(site):
    page = site.get("/leaderboard?sort=cost&order=desc&page=2&suite=starter")
    assert {"type": "hidden", "name": "sort", "value": "cost"} in page.all("input")
    assert {"type": "hidden", "name": "order", "value": "desc"} in page.all("input")
    assert "/leaderboard?sort=cost&order=desc" in page.links  # without the filters
    assert "/api/v1/leaderboard.csv?suite=starter&sort=cost&order=desc" in page.links
    rows = site.ask("GET", "/api/v1/leaderboard.csv?suite=starter&sort=cost&order=desc").text.splitlines()
    told = site.ask("GET", "/api/v1/leaderboard?suite=starter&sort=cost&order=desc").json()["entries"]
    assert [row["model"] for row in csv.DictReader(rows)] == [entry["model"] for entry in told]


def test_pages_show_the_figure_that_the_evaluations_of_a_candidate_give_together(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.start("repeated")
    digest = made.round(job_id, 1, seeded_store.evaluation("passed", speedup=2.0), best=True)
    made.end(job_id, JobStatus.DONE, "rounds")
    assert "pooled" not in fresh.get(f"/jobs/{job_id}").text
    source = seeded_store.KERNEL.format(job=job_id, number=1, note="as before")
    made.evaluate(job_id, 1, source, seeded_store.evaluation("passed", speedup=2.2))
    (entry,) = fresh.ask("GET", "/api/v1/leaderboard").json()["entries"]
    assert (entry["pooled"], 2.0 < entry["speedup"] < 2.2) == (2, True)
    board = fresh.get("/leaderboard")
    assert "2 evaluations pooled" in board.text
    assert f"{entry['speedup']:.2f}×" in board.answer.text
    sentence = f"On the leaderboard: {entry['speedup']:.3f} over eager"
    assert sentence in fresh.get(f"/jobs/{job_id}").text
    assert sentence in fresh.get(f"/jobs/{job_id}/candidates/{digest}").text
    made.evaluate(job_id, 1, source, seeded_store.evaluation("wrong"))
    assert "found it wrong" in fresh.get(f"/jobs/{job_id}/candidates/{digest}").text
    assert "none passed" in fresh.get("/leaderboard").text


def test_a_cost_that_nobody_knows_is_called_unknown(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.start("unpriced")
    with made.store.write() as session:
        add_llm_call(session, job_id, LlmCall(1, "m", "coder", "write", [], "", 1, 1, None, 1.0))
    made.round(job_id, 1, seeded_store.evaluation("passed", speedup=2.0), best=True)
    assert "unknown" in fresh.get("/leaderboard").text


@pytest.mark.parametrize("query", ["sort=-nothing", "sort=task;drop", "sort=" + "x" * 300, "order=up", "sort=&order="])
def test_an_order_that_there_is_none_of_changes_nothing(site, query):
    page = site.get(f"/leaderboard?{query}")
    assert page.status == 200
    assert sorted_by(page) == ["descending"]


def test_exports_lead_to_the_api_with_the_same_filters(site):
    page = site.get("/leaderboard?suite=starter")
    links = [link for link in page.links if link.startswith("/api/v1/leaderboard")]
    query = "?suite=starter&sort=speedup&order=desc"
    assert links == [f"/api/v1/leaderboard.csv{query}", f"/api/v1/leaderboard{query}"]
    assert site.ask("GET", links[0]).headers["content-type"].startswith("text/csv")
    assert site.ask("GET", links[1]).json()


def test_a_page_past_the_end_is_the_last(site):
    assert "1–18 of 18" in site.get("/leaderboard?page=900").text


# jobs


def test_jobs_are_listed_by_state(site, made):
    page = site.get("/jobs?status=failed")
    assert f"/jobs/{made.jobs['failed']}" in page.links
    assert f"/jobs/{made.jobs['done']}" not in page.links


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("queued", "1 job for cpu stands before it."),
        ("ahead", "next one in the queue for cpu"),
        ("running", "Round 2 of 6"),
        ("done", "all of its rounds are done. The 95 % interval of the best candidate is 2.30× to 2.50×."),
        ("failed", "no key in OPENAI_API_KEY"),
        ("failed", "What to do: Check the model's name"),
        ("cancelled", "nothing is paid for twice"),
        ("interrupted", "Its process was stopped or died"),
    ],
)
def test_each_state_of_a_job_says_what_it_means(site, made, name, said):
    assert said in job_page(site, made, name).text


def test_a_job_that_waits_without_any_worker_says_which_to_start(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.queue("alone")
    assert (
        "No worker is alive for it. Start one: kernelwright worker --platform cpu" in fresh.get(f"/jobs/{job_id}").text
    )


@pytest.mark.parametrize(
    ("name", "cancel", "resume", "download"),
    [
        ("queued", True, False, False),
        ("running", True, False, True),
        ("done", False, False, True),
        ("failed", False, True, False),
        ("cancelled", False, True, True),
    ],
)
def test_a_job_offers_what_can_be_done_with_it(site, made, name, cancel, resume, download):
    page = job_page(site, made, name)
    actions = {each.get("formaction", "").rpartition("/")[2] for each in page.all("button")}
    assert ("cancel" in actions, "resume" in actions) == (cancel, resume)
    assert any(link.endswith("best.py") for link in page.links) is download


def test_a_job_shows_rounds_with_verdicts_costs_and_advice(site, made):
    text = job_page(site, made, "done").text
    assert "wrong_output: values" in text
    assert "$0.1000" in text
    assert "Write results past the cache." in text
    assert "round 2: passed" in text
    assert "4 best" in text


def test_the_best_kernel_and_its_report_are_files(site, made):
    kernel = site.ask("GET", f"/jobs/{made.jobs['done']}/best.py")
    assert kernel.headers["content-disposition"].startswith("attachment")
    assert "class ModelNew" in kernel.text
    report = site.ask("GET", f"/jobs/{made.jobs['done']}/report.md")
    assert report.text.startswith("<!-- Written by Kernelwright -->")
    assert site.get(f"/jobs/{made.jobs['queued']}/best.py").status == 404


def test_cancelling_and_resuming_lead_back_to_the_job(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.queue("one")
    answer = fresh.post(f"/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
    assert "Cancelled" in fresh.get(f"/jobs/{job_id}").text
    assert fresh.post(f"/jobs/{job_id}/resume").status_code == 303
    assert "Waits for a worker" in fresh.get(f"/jobs/{job_id}").text


@pytest.mark.parametrize("csrf", [None, "wrong"])
def test_a_form_without_its_pages_token_changes_nothing(fresh, csrf):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.queue("one")
    answer = fresh.post(f"/jobs/{job_id}/cancel", csrf=csrf)
    assert answer.status_code == 403
    assert "load the page again" in answer.text
    assert "Waits for a worker" in fresh.get(f"/jobs/{job_id}").text


# candidates


def test_a_candidate_shows_its_evidence(site, made):
    page = site.get(candidate_path(made, "done", 4))
    assert "best of its job" in page.text
    assert "NaN and Inf" in page.text
    assert "16,777,216" in page.text
    assert "docker" in page.text
    assert {each.get("data-chart") for each in page.all("figure")} == {"latency", "bandwidth"}


def test_an_op_with_arithmetic_has_a_roofline_of_work_per_byte(site, made):
    page = site.get(candidate_path(made, "work", 1))
    assert {each.get("data-chart") for each in page.all("figure")} == {"latency", "roofline"}
    assert "Arithmetic reached, measured peak 72.8, 227 GFLOP/s" in page.text


@pytest.mark.parametrize("bound", ["memory", "cache"])
def test_the_rate_reached_is_the_same_share_of_its_peak_wherever_it_is_shown(site, made, bound):
    job_id = made.start(bound)
    roofline = {"bound": bound, "limit_ms": 0.20795620075659824, "fraction": 0.25275377471441607}
    made.round(job_id, 1, seeded_store.evaluation("passed", roofline=roofline), best=True)
    page = site.get(candidate_path(made, bound, 1))
    assert "Bandwidth reached, measured peak for as much reading and writing 20.4, 80.7 GB/s" in page.text
    [chart] = re.findall(r'data-chart="bandwidth".*?<script type="application/json">(.*?)</script>', page.answer.text)
    shown = json.loads(chart)
    assert shown["achieved_gb_per_s"] / shown["peak_gb_per_s"] == pytest.approx(roofline["fraction"], rel=0.001)
    assert "25%" in page.text.replace(" ", "")


def test_a_check_that_was_not_made_is_not_shown_as_passed(site, made):
    text = site.get(candidate_path(made, "done", 4)).text
    assert "as generated passed" in text
    assert "large integers skipped" in text


def test_the_foot_of_a_page_names_the_statistic_of_speedups(site):
    assert "Speedups are interquartile means of paired ratios" in site.get("/devices").text


def test_a_compiler_search_has_no_tokens(site, made):
    assert "Tokens 28,704 Model" in job_page(site, made, "done").text
    assert "Tokens – Model" in job_page(site, made, "work").text


def test_a_candidate_shows_why_it_is_not_compared_with_a_baseline(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.start("without")
    found = seeded_store.evaluation("passed", speedup=2.0)
    reason = "OpenVINO is no baseline for this task: <b>off</b> in the family of ties"
    found = replace(found, profile={**found.profile, "absent": {"openvino": reason}})
    digest = made.round(job_id, 1, found, best=True)
    page = fresh.get(f"/jobs/{job_id}/candidates/{digest}")
    assert page.text.count(f"{reason}.") == 1
    assert "<b>off" not in page.answer.text


def test_a_candidate_that_failed_shows_what_failed(site, made):
    page = site.get(candidate_path(made, "done", 1))
    assert "wrong_output: values" in page.text
    assert "failed" in page.text
    assert not page.all("figure")


def test_two_candidates_are_compared_line_by_line(site, made):
    other = made.candidates[made.jobs["done"]][2]
    page = site.get(f"{candidate_path(made, 'done', 4)}?against={other}")
    assert "+4 −4 lines against round 2" in page.text
    assert "removed: // variant 2" in page.prose
    assert "added: // variant 4" in page.prose


def test_a_candidate_is_compared_with_the_reference(site, made):
    page = site.get(f"{candidate_path(made, 'done', 4)}?against=reference")
    assert "removed: class Model(nn.Module):" in page.prose


@pytest.mark.parametrize("query", ["?against=" + "0" * 64, "?evaluation=none"])
def test_what_a_candidate_is_not_compared_with_is_not_there(site, made, query):
    assert site.get(candidate_path(made, "done", 4) + query).status == 404


def test_a_candidates_source_is_downloaded_unchanged(site, made):
    answer = site.ask("GET", candidate_path(made, "hostile", 1) + "/source.py")
    assert seeded_store.BIDI in answer.text
    assert answer.headers["content-disposition"].startswith("attachment")


def test_evaluating_again_queues_a_job(fresh):
    made = seeded_store.seed(fresh.deps.store)
    answer = fresh.post(candidate_path(made, "done", 4) + "/evaluate")
    assert answer.status_code == 303
    assert "Waits for a worker" in fresh.get(answer.headers["location"]).text


def test_an_operator_retracts_with_a_reason_and_restores(fresh):
    made = seeded_store.seed(fresh.deps.store)
    path = candidate_path(made, "done", 4)
    evaluation = next(link for link in fresh.get(path).links if "evaluation=" in link).partition("evaluation=")[2]
    without = Page(fresh.post(f"{path}/retract", {"evaluation": evaluation}))
    assert (without.status, "say why" in without.text) == (422, True)
    assert fresh.post(f"{path}/retract", {"evaluation": evaluation, "reason": "cooled <b>CPU</b>"}).status_code == 303
    page = fresh.get(path)
    assert "no longer counts. local: cooled <b>CPU</b>" in page.text
    assert fresh.post(f"{path}/retract", {"evaluation": evaluation, "reason": "again"}).status_code == 409
    assert "2.40×" not in fresh.get("/leaderboard?task=starter/gelu_tanh&model=openai/some-model").text
    restored = {"evaluation": evaluation, "reason": "measured again", "do": "restore"}
    assert fresh.post(f"{path}/retract", restored).status_code == 303
    assert "no longer counts" not in fresh.get(path).text


# tasks, batches, devices


@pytest.mark.parametrize(
    "path",
    ["/", "/jobs", "/jobs?status=done", "/tasks", "/tasks?page=2", "/tasks?suite=local", "/batches", "/batches/1",
     "/models", "/devices", "/submit", "/api/v1/jobs", "/api/v1/models", "/api/v1/tasks",
     "/api/v1/tasks?origin=stored", "/api/v1/batches/1"],
)  # fmt: skip
def test_no_list_reads_the_sources_of_tasks(site, path):
    asked = []

    def note(_connection, _cursor, statement, _parameters, _context, _many):
        asked.append(statement)

    event.listen(site.deps.store.engine, "before_cursor_execute", note)
    try:
        assert site.ask("GET", path).status_code == 200
    finally:
        event.remove(site.deps.store.engine, "before_cursor_execute", note)
    assert asked
    assert [statement for statement in asked if re.search(r"tasks\w*\.source\b", statement)] == []


def test_lists_of_tasks_with_large_sources_are_quick(fresh):
    with fresh.deps.store.write() as session:
        for number in range(300):
            add_task(session, suite="large", name=f"t{number:03}", source_hash=f"{number:064}",
                     source=f"# {number}" + "x" * 500_000, category="other", dtype="float32")  # fmt: skip
    tracemalloc.start()
    page = fresh.get("/tasks?page=3&suite=large")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "large/t250" in page.text
    assert most < 50_000_000  # all sources together are 150 MB


def test_a_task_shows_source_board_and_jobs(site, made):
    page = site.get("/tasks/starter/gelu_tanh")
    assert "0.044715" in page.text
    assert "vendor/too-good" in page.text
    assert f"/jobs/{made.jobs['done']}" in page.links
    assert "/submit?task=starter%2Fgelu_tanh" in page.links


def test_what_someone_submitted_can_be_submitted_again(site):
    listed = site.get("/tasks?suite=local")
    link = next(link for link in listed.links if link.startswith("/tasks/local/"))
    page = site.get(link)
    assert page.status == 200
    again = next(link for link in page.links if link.startswith("/submit?"))
    assert "class Model: pass" in site.get(again).prose


def test_a_batch_counts_failures_openly(site, made):
    text = site.get(f"/batches/{made.batches['first']}").text
    assert "count a try that failed, or whose times cannot be relied on, as 1.00×" in text
    assert "33 %" in text
    assert "x/y : no such task" in text


def test_two_batches_are_compared(site, made):
    text = site.get(f"/batches/{made.batches['second']}?against={made.batches['first']}").text
    assert "1.30× 1.30×–1.30×" in text
    assert "no difference shown" in text


def test_workers_are_told_apart_by_their_state(site):
    text = site.get("/devices").text
    for state in ("lost", "stopped"):
        assert f"{state} gpu-7.example" in text


# models


def model_page(site, made, name):
    return site.get(f"/models/{made.models[name]}")


def test_without_a_run_over_a_model_the_page_says_how_to_begin(fresh):
    text = fresh.get("/models").text
    assert "No run over a whole model yet" in text
    assert "kernelwright model examples/models/decoder.py --plan" in text


def test_runs_over_models_are_listed_newest_first_with_what_is_proven(site, made):
    page = site.get("/models")
    numbers = [link for link in page.links if re.fullmatch(r"/models/\d+", link)]
    assert list(dict.fromkeys(numbers)) == [f"/models/{run}" for run in sorted(made.models.values(), reverse=True)]
    assert "local/decoder done 1.45× 1.39×–1.51×" in page.text
    assert "local/at-work running optimize – – – vendor/kernels cpu ada" in page.text
    assert "local/in-vain done – – 0" in page.text


def test_runs_over_models_are_paged(fresh, monkeypatch):
    made = seeded_store.Seeded(fresh.deps.store)
    runs = [seeded_store.model_run(made, f"net{number}", regions=()) for number in range(52)]
    first = fresh.get("/models")
    assert f"/models?before={runs[2]}" in first.links
    assert f"/models/{runs[2]}" in first.links
    assert f"/models/{runs[1]}" not in first.links
    second = fresh.get(f"/models?before={runs[2]}")
    assert [link for link in second.links if link.startswith("/models?")] == []
    assert {f"/models/{run}" for run in runs[:2]} <= set(second.links)
    assert f"/models/{runs[2]}" not in second.links


def test_a_model_that_is_proven_shows_its_proof(site, made):
    page = model_page(site, made, "decoder")
    assert "Proven: 1.45× over eager" in page.text
    assert "eager 71.04 25.30–77.33 1.45× 1.39×–1.51×" in page.text
    assert f"/models/{made.models['decoder']}/model.zip" in page.links
    (proof,) = [link for link in page.links if "?evaluation=" in link]
    assert "correct on 9 input families" in site.get(proof).text
    (task,) = [link for link in page.links if link.startswith("/tasks/local/decoder?")]
    assert "# decoder" in site.get(task).prose


def test_regions_of_a_model_say_what_became_of_each(site, made):
    page = model_page(site, made, "decoder")
    jobs = {name: made.jobs[f"models/decoder/{name}"] for name in ("r01_block", "r02_rms_norm", "r04_mul_silu")}
    assert f"r01_block block 12 37.4 90 % {jobs['r01_block']} done – – no kernel passed" in page.text
    assert f"r02_rms_norm normalization 24 10.4 25 % {jobs['r02_rms_norm']} done 3.10× 2.98×–3.22×" in page.text
    assert "the model is no slower without it (alike, 1.004)" in page.text
    assert "r05_add element-wise 1 0.2490 0.6 % – – – no job: too little to gain" in page.text
    assert page.text.count("kept kernel") == 2
    kernel = made.candidates[jobs["r02_rms_norm"]][1]
    assert {f"/jobs/{job}" for job in jobs.values()} <= set(page.links)
    assert f"/jobs/{jobs['r02_rms_norm']}/candidates/{kernel}" in page.links
    (task,) = [link for link in page.links if link.startswith("/tasks/regions/decoder.r02_rms_norm?")]
    assert "# r02_rms_norm" in site.get(task).prose


def test_trials_of_a_model_say_what_they_asked_and_decided(site, made):
    text = model_page(site, made, "decoder").text
    assert "r03_attention does the model pass with it? passed – no" in text
    assert "r04_mul_silu is the model better off without it? alike 1.004 yes" in text
    assert "r02_rms_norm is the model better off without it? worse 0.870 no" in text


def test_a_trial_in_which_a_model_failed_says_what_was_wrong(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    run = seeded_store.model_run(made, "net")
    trials = [
        seeded_store.trial("r02_rms_norm", "passes", "wrong_output", None, True, "row 3 differs"),
        seeded_store.trial("r03_attention", "without", "worse", 0.9, False, "correct on 9 input families"),
    ]
    seeded_store.decide(made, "net", trials, ["r03_attention"])
    text = fresh.get(f"/models/{run}").text
    assert "does the model pass with it? wrong_output row 3 differs – yes" in text
    assert "is the model better off without it? worse 0.900 no" in text


def test_a_model_with_several_shapes_shows_the_proof_of_each(fresh):
    groups = [{"shape_group": 0, "eager_ms": 1.25, "compile_ms": 2.0}, {"shape_group": 1, "eager_ms": 80.0}]
    plan = seeded_store.PLAN | {"groups": groups, "as_it_is": [f"get_input_groups()[2]: {seeded_store.HOSTILE}"]}
    regions = (*seeded_store.REGIONS[:2], ("g0_r01_block", "block", 12, 0.7), ("g1_r01_block", "block", 12, 0.6))
    made = seeded_store.Seeded(fresh.deps.store)
    run = seeded_store.model_run(made, "net", plan=plan, regions=regions)
    seeded_store.model_jobs(made, "net", {"r01_block": 2.0, "g0_r01_block": 3.0, "g1_r01_block": None})
    seeded_store.prove(made, "net", seeded_store.evaluation("passed", speedup=1.5))
    with made.store.read() as session:
        proof = get_evaluation(session, get_run(session, run).evaluation_id)
    other = made.evaluate(run, 0, proof.source, seeded_store.evaluation("passed", speedup=2.25, tags=["other_inputs"]))
    shown = seeded_store.trial("all", "proof", "passed", 2.25, False)
    shown |= {"candidate": proof.candidate_hash, "shape_group": 0, "evaluation": other}
    seeded_store.decide(made, "net", [shown], ["r01_block", "g0_r01_block"])
    assert "not decided yet" in fresh.get(f"/models/{run}").text.split("Other inputs")[1]
    with made.store.write() as session:
        set_stage(session, run, "done")
    page = fresh.get(f"/models/{run}")
    first, second = page.text.split("Other inputs")[1].split("get_input_groups()[1]", 1)
    assert "get_input_groups()[0] 1.25 1 2.25" in first and "evidence" in first
    assert "80" in second and "the original code runs" in second[:60]
    assert any(f"evaluation={other}" in each.get("href", "") for each in page.all("a"))
    assert page.text.count("get_input_groups()[2]") == 1
    assert "does all of it hold at full precision? with the inputs of get_input_groups()[0] passed" in page.text
    bars = page.text.split("Where time goes")[1].split("Regions of different")[0]
    assert "r01_block" in bars and "g0_r01_block" not in bars, "bars are those of the model's own inputs"


def test_the_bars_of_a_model_are_those_of_the_proof_parted_by_the_regions_that_are_kept(site, made):
    page = model_page(site, made, "decoder")
    (picture,) = [each for each in page.all("svg") if each.get("role") == "img"]
    assert "eager 71.0 ms, torch.compile 6.18 ms, with its kernels 49.0 ms" in picture["aria-label"]
    assert "eager 71.04 100 % r03_attention 21.31 30 % r02_rms_norm 17.76 25 % everything else 31.97 45 %" in page.text
    kinds = [
        each["class"] for each in page.all("rect") if "time-part" in each.get("class", "") and each["height"] == "26"
    ]
    assert kinds == [f"time-part part-{kind}" for kind in ("0", "1", "rest", "compile", "candidate")]


def test_a_model_without_a_proof_has_the_bars_of_its_plan(site, made):
    text = model_page(site, made, "at-work").text
    assert "as the plan measured it" in text
    assert "eager 41.50 100 % r03_attention 12.45 30 % r02_rms_norm 4.150 10 % everything else 24.90 60 %" in text
    assert "torch.compile 30.25 100 %" in text
    assert "with its kernels" not in text


def test_the_longest_kernels_under_torch_compile_are_listed(site, made):
    page = model_page(site, made, "decoder")
    assert "cpp_fused_add_mul_pow_rsqrt_0 6.50 mkl._mkl_linear 0 5.00" in page.text
    assert "mkl._mkl_linear 10" in page.text
    assert "mkl._mkl_linear 11" not in page.text
    assert "3 shorter ones are left out" in page.text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("at-work", "Under way: each region's job looks for a kernel"),
        ("at-work", "1 of its 2 jobs have ended: batch"),
        ("at-work", "its job has found nothing yet"),
        ("at-work", "r03_attention Round 2: the coder answers (improve),"),
        ("at-work", "It comes last, when kernels are chosen."),
        ("in-vain", "Nothing was found that makes the model faster end to end"),
        ("in-vain", "There is nothing to prove: no kernel is kept."),
        ("in-vain", "None: nothing here can be put into a kernel that is worth one."),
        ("hostile", "Stopped by a failure, in stage optimize"),
        ("hostile", "nothing is paid for twice"),
        ("hostile", "torch.compile was not timed: <script>"),
    ],
)
def test_each_state_of_a_model_says_what_it_means_and_what_to_do(site, made, name, said):
    assert said in model_page(site, made, name).text


@pytest.mark.parametrize(
    ("name", "cancel", "resume", "download"),
    [("decoder", False, False, True), ("at-work", True, False, False), ("in-vain", False, False, False),
     ("hostile", False, True, False)],
)  # fmt: skip
def test_a_model_offers_what_can_be_done_with_it(site, made, name, cancel, resume, download):
    page = model_page(site, made, name)
    buttons = [each.get("id") for each in page.all("button")]
    assert ("cancel" in buttons, "resume" in buttons) == (cancel, resume)
    assert (f"/models/{made.models[name]}/model.zip" in page.links) is download
    assert site.get(f"/models/{made.models[name]}/model.zip").status == (200 if download else 409)


def test_a_faster_model_is_downloaded_with_its_kernels_and_its_report(site, made):
    answer = site.ask("GET", f"/models/{made.models['decoder']}/model.zip")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    report = files.pop("report.md")
    assert files == seeded_store.FILES
    assert "r02_rms_norm" in report


def test_a_model_is_submitted_by_its_source_and_cancelled_and_resumed(fresh):
    answer = fresh.post("/submit", FORM | {"source": OP, "name": "plus", "whole": "run"})
    assert answer.status_code == 303
    path = answer.headers["location"]
    assert re.fullmatch(r"/models/\d+", path)
    assert "Waits for a worker" in fresh.get(path).text
    assert fresh.post(f"{path}/cancel").status_code == 303
    assert "Cancelled, in stage plan" in fresh.get(path).text
    assert fresh.post(f"{path}/resume").status_code == 303
    assert "Waits for a worker" in fresh.get(path).text


def test_a_plan_alone_can_be_asked_for(fresh):
    path = fresh.post("/submit", FORM | {"source": OP, "whole": "plan"}).headers["location"]
    with fresh.deps.store.read() as session:
        assert get_run(session, int(path.rpartition("/")[2])).options["plan_only"] is True


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"platform": "cuda"}, "whole models are for cpu"),
        ({"kernel": "__global__ void f() {}"}, "goes with an op and not with a whole model"),
        ({"weights": "a" * 64}, "are not kept for local; send the file first"),
        ({"weights": "a" * 64, "whole": ""}, "weights: go with a whole model and not with an op"),
    ],
)
def test_what_cannot_be_asked_for_a_model_is_said(fresh, changes, said):
    page = Page(fresh.post("/submit", FORM | {"source": OP, "whole": "run"} | changes))
    assert (page.status, said in page.text) == (422, True)


def test_the_page_of_a_models_job_is_the_models_own(site, made):
    answer = site.ask("GET", f"/jobs/{made.models['decoder']}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/models/{made.models['decoder']}")


def test_a_model_that_runs_leads_to_its_batch(site, made):
    (batch,) = {link for link in model_page(site, made, "at-work").links if link.startswith("/batches/")}
    assert "whole model at-work" in site.get(batch).text


def test_code_that_stays_as_it_is_is_named_with_the_reason(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    stays = [{"path": "", "module_class": "Net", "reason": "data-dependent control flow"}]
    run = seeded_store.model_run(made, "net", plan={"eager_ms": 2.0, "stays_eager": stays})
    assert "the model itself Net data-dependent control flow" in fresh.get(f"/models/{run}").text


def test_what_a_capture_notes_is_shown(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    plan = {"eager_ms": 2.0, "notes": [f"1 of the 3 weights is float16 {seeded_store.SCRIPT}"]}
    run = seeded_store.model_run(made, "net", plan=plan)
    page = fresh.get(f"/models/{run}")
    assert "Note: 1 of the 3 weights is float16" in page.text
    assert seeded_store.SCRIPT not in page.answer.text


def test_a_model_whose_proof_failed_is_not_called_proven(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    run = seeded_store.model_run(made, "net")
    seeded_store.decide(made, "net", [], ["r02_rms_norm"])
    seeded_store.prove(made, "net", seeded_store.evaluation("wrong"))
    text = fresh.get(f"/models/{run}").text
    assert "Stopped by a failure" in text
    assert "Proven" not in text
    assert "wrong_output: values" in text
    assert "as the plan measured it" in text


def test_kernels_of_a_model_that_is_not_delivered_say_that_the_proof_decided(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    run = seeded_store.model_run(made, "net")
    seeded_store.model_jobs(made, "net", {"r02_rms_norm": 3.1, "r04_mul_silu": 1.1})
    seeded_store.decide(made, "net", [seeded_store.trial("r04_mul_silu", "without", "alike", 1.004, True)], [])
    seeded_store.prove(made, "net", seeded_store.evaluation("wrong"))
    text = fresh.get(f"/models/{run}").text
    assert text.count("nothing is delivered, by the proof") == 1
    assert "the model is no slower without it (alike, 1.004)" in text
    assert "shares operators" not in text


def test_a_proof_whose_figures_cannot_be_relied_on_is_no_headline(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    run = seeded_store.model_run(made, "net")
    seeded_store.decide(made, "net", [], ["r02_rms_norm"])
    seeded_store.prove(made, "net", seeded_store.evaluation("passed", speedup=1.68, tags=("noisy", "tie")))
    text = fresh.get(f"/models/{run}").text
    assert "Proven to be right; its speedup is uncertain: 1.68× over eager (1.61×–1.75×)" in text
    assert "Proven: " not in text


def test_a_proof_that_was_taken_back_proves_nothing(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    run = seeded_store.model_run(made, "net")
    seeded_store.decide(made, "net", [], ["r02_rms_norm"])
    seeded_store.prove(made, "net", seeded_store.evaluation("passed", speedup=1.5))
    assert "Proven: 1.50× over eager" in fresh.get(f"/models/{run}").text
    with made.store.read() as session:
        proof = get_run(session, run).evaluation_id
    retract_evaluation(made.store, proof, actor="ada", reason="another program ran")
    text = fresh.get(f"/models/{run}").text
    assert "Its proof was taken back" in text
    assert "Proven" not in text
    assert "1.50× 1.44×–1.56× retracted" in fresh.get("/models").text


@pytest.mark.parametrize("plan", [{}, {"eager_ms": None, "kernels_ms": None}, {"eager_ms": "x", "apart": [3, {}]}])
def test_what_a_plan_lacks_is_shown_as_missing(fresh, plan):
    made = seeded_store.Seeded(fresh.deps.store)
    page = fresh.get(f"/models/{seeded_store.model_run(made, 'net', plan=plan)}")
    assert page.status == 200
    assert "Nothing was timed yet." in page.text
    assert "Not measured." in page.text


# submit

OP = "import torch\n\n\ndef op(x):\n    return x + 1\n\n\ndef get_inputs():\n    return [torch.randn(8)]\n"
FORM = {"platform": "cpu", "model": "builtin/compiler", "strategy": "judge", "rounds": "2", "priority": "normal"}


def test_an_op_is_submitted_by_its_source(fresh):
    answer = fresh.post("/submit", FORM | {"source": OP, "name": "plus", "do": "submit"})
    page = fresh.get(answer.headers["location"])
    assert "local/plus" in page.text
    with fresh.deps.store.read() as session:
        row = session.get_one(JobRow, 1)
        assert (row.status, row.options["rounds"], row.model) == (JobStatus.QUEUED.value, 2, "builtin/compiler")


def test_an_op_is_submitted_as_a_file(fresh):
    answer = fresh.post("/submit", FORM, files={"file": ("my op.py", OP.encode(), "text/x-python")})
    assert "local/my_op" in fresh.get(answer.headers["location"]).text


def test_a_built_in_task_is_submitted_by_name(fresh):
    answer = fresh.post("/submit", FORM | {"task": "starter/gelu_tanh"})
    assert "starter/gelu_tanh" in fresh.get(answer.headers["location"]).text


def test_without_a_script_the_check_is_a_form_as_well(fresh):
    page = Page(fresh.post("/submit", FORM | {"source": OP, "do": "check"}))
    assert "Valid: category" in page.text
    assert fresh.get("/jobs").text.count("No jobs yet") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "def op(x):\n    return (x\n"}, "op:2: "),
        ({"source": ""}, "is empty"),
        ({"source": "a" * 262_145}, "over 256 KiB"),
        ({"source": OP, "rounds": "many"}, "rounds: give a whole number"),
        ({"source": OP, "rounds": "0"}, "rounds"),
        ({"source": OP, "budget_usd": "-1"}, "budget_usd"),
        ({"source": OP, "budget_usd": "nan"}, "budget_usd"),
        ({"source": OP, "platform": "abacus"}, "platform 'abacus' is unknown"),
        ({"source": OP, "strategy": "luck"}, "strategy 'luck' is unknown"),
        ({"source": OP, "name": "../x"}, "cannot be given the name"),
        ({"source": OP, "model": "manual/inbox"}, "manual/inbox"),
        ({"task": "/etc/passwd"}, "no such task"),
    ],
)
def test_what_cannot_be_submitted_is_said_and_the_form_keeps_what_was_written(fresh, changes, said):
    page = Page(fresh.post("/submit", FORM | changes))
    assert page.status == 422
    assert said in page.text
    assert page.all("textarea")
    assert fresh.get("/jobs").text.count("No jobs yet") == 1
    if len(changes.get("source", "")) < 1000:
        assert changes.get("source", "").strip() in "".join(page.words)


def test_the_line_that_is_wrong_is_marked(fresh):
    page = Page(fresh.post("/submit", FORM | {"source": "import torch\ndef op(x):\n    return (x\n", "do": "check"}))
    items = [attributes for attributes in page.all("li") if attributes.get("class") == "wrong"]
    assert len(items) == 1


# errors and access


@pytest.mark.parametrize(
    "path", ["/nothing", "/jobs/999999", "/jobs/1/candidates/zz", "/tasks/a/b", "/batches/77", "/models/77"]
)
def test_what_is_not_there_is_told_on_a_page_of_the_same_design(fresh, path):
    page = fresh.get(path)
    assert page.status == 404
    assert "Not here" in page.text
    assert page.all("nav")


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/x",
        "/jobs/0",
        "/?page=-1",
        "/leaderboard?page=-1",
        "/jobs?before=0",
        "/models/0",
        "/models/x",
        "/models?before=0",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_on_a_page(fresh, path):
    page = fresh.get(path)
    assert page.status == 422
    assert "That cannot be" in page.text


def test_a_fault_of_the_server_tells_nothing_of_its_inside(fresh, monkeypatch):
    def broken(*_args, **_values):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("web.pages.devices.devices_view", broken)
    page = fresh.get("/devices")
    assert page.status == 500
    assert "The server made a mistake" in page.text
    assert "secret detail" not in page.answer.text


def _logged_in(fresh, role):
    _, secret = create_token(fresh.deps.store, name="eve", role=role.value)
    site = Site(Dependencies(fresh.deps.settings, fresh.deps.store, login=True))
    answer = site.ask("POST", "/login", data={"token": secret, "next": "/jobs"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    return site


def test_who_is_not_logged_in_is_led_to_the_form(fresh):
    site = Site(Dependencies(fresh.deps.settings, fresh.deps.store, login=True))
    page = site.get("/jobs")
    assert page.status == 401
    assert "/login?next=%2Fjobs" in page.links
    assert site.get("/login?next=/jobs").all("input")[0]["type"] == "password"
    wrong = Page(site.ask("POST", "/login", data={"token": "kw_wrong", "next": "//evil.example"}))
    assert wrong.status == 401
    assert "the token is not known" in wrong.text
    assert "evil" not in wrong.answer.text


def test_a_viewer_is_offered_nothing_that_is_not_allowed(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.queue("one")
    site = _logged_in(fresh, Role.VIEWER)
    page = site.get(f"/jobs/{job_id}")
    assert "Cancel" not in page.text
    assert "eve (viewer)" in page.text
    assert "may look, not submit" in site.get("/submit").text
    assert site.post(f"/jobs/{job_id}/cancel").status_code == 403


def test_a_submitter_changes_only_his_own_jobs(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.queue("bobs")
    site = _logged_in(fresh, Role.SUBMITTER)
    answer = Page(site.post(f"/jobs/{job_id}/cancel"))
    assert (answer.status, "Not allowed" in answer.text) == (403, True)
    own = site.post("/submit", FORM | {"source": OP})
    assert site.post(own.headers["location"] + "/cancel").status_code == 303
    assert site.post("/logout").status_code == 303


# bounds


def test_a_source_that_is_slow_to_read_is_shown_all_the_same(fresh):
    made = seeded_store.Seeded(fresh.deps.store)
    job_id = made.start("slow to read")
    note = "\n".join(["@" * 1900] * 400)
    first = made.round(job_id, 1, seeded_store.evaluation("passed", speedup=1.5), note=note)
    second = made.round(job_id, 2, seeded_store.evaluation("passed", speedup=1.6), note=note.replace("@", "("))
    begun = time.monotonic()
    assert fresh.get(f"/jobs/{job_id}/candidates/{first}").status == 200
    assert fresh.get(f"/jobs/{job_id}/candidates/{first}?against={second}").status == 200
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain", "plain"),
        ("a\u202eb", "a\\u202eb"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("e" + "\u0301" * 40 + "f", "e" + "\u0301" * 3 + "f"),
        ("begin" + "n" * 900 + "end", "begin" + "n" * 434 + "…" + "n" * 57 + "end"),
    ],
)
def test_text_from_outside_shows_what_it_hides_and_ends(text, said):
    assert text_of.shown(text) == said


@given(st.text(max_size=300), st.integers(8, 200))
def test_shown_text_holds_no_control_character_and_keeps_its_bound(text, limit):
    found = text_of.shown(text, limit)
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") and char not in "\n\t" for char in found)
    assert len(found) <= limit * 10  # an escape takes up to ten characters
    assert len(text_of.one_line(text, limit).splitlines()) <= 1


@given(st.floats(-1e300, 1e300) | st.none())
@example(0.001953125)
def test_figures_are_short_and_keep_their_size(value):
    text = render.figure(value)
    assert len(text) <= 14
    if value is not None and value != 0:
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006, abs=0)


@given(st.lists(st.tuples(*[st.floats(1e-300, 1e300)] * 3), min_size=1, max_size=5))
def test_bars_stay_within_their_picture_and_in_order(values):
    ratios = [Ratio(middle, low, high) for low, middle, high in map(sorted, values)]
    axis = speedup_bars.axis(ratios)
    for ratio in ratios:
        drawn = speedup_bars.bar(axis, ratio)
        assert 0 <= drawn.low <= drawn.value <= drawn.high <= speedup_bars.WIDTH
        assert 0 < drawn.one < speedup_bars.WIDTH


@given(
    st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=3),
    st.lists(st.floats(0.001, 1.0), max_size=20),
)
def test_bars_of_times_share_an_axis_and_their_segments_add_up(times, weights):
    total = sum(weights) * 1.25
    parts = tuple(TimePart(f"r{place:02}_x", weight / total) for place, weight in enumerate(sorted(weights)[::-1]))
    bars = [TimeBar(name, ms) for name, ms in zip(("eager", "compile", "candidate"), times, strict=False)]
    drawn = time_bars.picture([TimeBar("eager", times[0], parts), *bars[1:]])
    for bar in drawn.bars:
        assert sum(each.ms for each in bar.segments) == pytest.approx(bar.ms)
        assert sum(each.share for each in bar.segments) == pytest.approx(1)
        assert bar.segments[-1].x + bar.segments[-1].width == pytest.approx(100 * bar.ms / max(times))
        assert len(bar.segments) <= time_bars.MOST_PARTS + 2
    assert drawn.ticks[0].x == 0
    assert 2 <= len(drawn.ticks) <= 6
    assert all(tick.x <= 100.001 for tick in drawn.ticks)


def test_nothing_timed_has_no_picture():
    assert time_bars.picture(()) is None


def test_a_difference_leaves_out_what_is_equal_and_pairs_what_changed():
    before = "\n".join(f"line {number}" for number in range(40))
    found = diff("x", before, before.replace("line 20", "line twenty").replace("line 39", "line 39\nlast"))
    assert [line.kind for line in found.lines] == (
        ["gap"] + ["same"] * 3 + ["changed"] + ["same"] * 3 + ["gap"] + ["same"] * 3 + ["added"]
    )
    assert (found.added, found.removed, found.cut) == (2, 1, False)
    assert diff("x", "a\n" * 3000, "a\n").cut


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_a_difference_holds_every_line_that_is_not_left_out(left, right):
    found = diff("x", "\n".join(left), "\n".join(right))
    assert [line.left for line in found.lines if line.left_number] == [
        left[line.left_number - 1] for line in found.lines if line.left_number
    ]
    assert [line.right for line in found.lines if line.right_number] == [
        right[line.right_number - 1] for line in found.lines if line.right_number
    ]
    assert bool(found.lines) is (left != right)
