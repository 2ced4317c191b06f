"""The pages in Chromium: by keyboard, live, dark, on a phone, under the strict policy, before hostile text."""

import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import expect, sync_playwright

from agents.protocols import Event
from db.evaluations import results
from db.jobs import jobs, workers
from db.jobs.batches import add_batch
from db.records import JobStatus
from db.tables import JobRow
from service.database import open_store
from service.jobs.query import get_job
from service.settings import load_settings
from tasks.weights_file import read_weights
from tests.support import seeded_store
from tests.support.weights import state_file
from web.app import create_app
from web.dependencies import Dependencies

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]  # they share one browser and one server

CHROMIUM = "/usr/bin/chromium"
OP = "import torch\n\n\ndef op(x):\n    return x + 1\n\n\ndef get_inputs():\n    return [torch.randn(8)]\n"
DESK = {"width": 1280, "height": 900}
# What tests do on purpose:
ASKED_FOR = re.compile("/nothing: .* status of 404|/(submit|api/v1/weights): .* status of 422")
PHONE = {"width": 360, "height": 780}


@contextmanager
def serving(store, data_dir, port=0):
    """A real server in a thread; its address."""
    app = create_app(Dependencies(load_settings(data_dir=data_dir), store))
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.started
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def made(data_dir):
    store = open_store(load_settings(data_dir=data_dir))
    seeded = seeded_store.seed(store)
    seeded_store.profiled_job(seeded)
    yield seeded
    store.close()


@pytest.fixture(scope="module")
def address(made, data_dir):
    with serving(made.store, data_dir) as found:
        yield found


@pytest.fixture(scope="module")
def chromium():
    expect.set_options(timeout=15_000)  # milliseconds: other tests keep the cores busy
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, address):
    """Opens pages; in the end none may have complained: no error, no warning, nothing that the policy refused."""
    contexts, said = [], []

    def note(message):
        if message.type in ("error", "warning") and not ASKED_FOR.search(
            f"{message.location.get('url')}: {message.text}"
        ):
            said.append(f"{message.location.get('url')}: {message.text}")

    def open_page(path, **options):
        context = chromium.new_context(base_url=address, **({"viewport": DESK} | options))
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def drawn(page):
    """Wait until every chart is there."""
    figures = page.locator("figure.chart")
    expect(page.locator("figure.chart[data-drawn]")).to_have_count(figures.count(), timeout=30_000)
    return page


def press_until(page, selector, key="Tab", most=80):
    """Go on by keyboard until the element has the focus."""
    for _ in range(most):
        page.keyboard.press(key)
        if page.evaluate("s => document.activeElement?.matches(s)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by {key}")


def candidate_path(made, job, number):
    job_id = made.jobs[job]
    return f"/jobs/{job_id}/candidates/{made.candidates[job_id][number]}"


def all_paths(made):
    yield from (
        "/",
        "/leaderboard",
        "/submit",
        "/jobs",
        "/tasks",
        "/tasks/starter/gelu_tanh",
        "/batches",
        "/models",
        "/devices",
        "/nothing",
    )
    yield from (f"/jobs/{made.jobs[name]}" for name in ("done", "running", "queued", "failed", "hostile"))
    yield from (f"/jobs/{made.jobs[name]}/transcript?fold=none" for name in ("done", "hostile", "running"))
    yield f"/jobs/{made.jobs['hostile']}/transcript/1"
    yield from (candidate_path(made, "done", 4), candidate_path(made, "work", 1), candidate_path(made, "hostile", 1))
    yield from ("/tasks/local/mish", candidate_path(made, "profiled", 1))
    yield f"{candidate_path(made, 'done', 4)}?against=reference"
    yield f"{candidate_path(made, 'hostile', 2)}?against={made.candidates[made.jobs['hostile']][1]}"
    yield f"/batches/{made.batches['second']}?against={made.batches['first']}"
    yield from (f"/models/{run_id}" for run_id in made.models.values())


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk-light", "phone-dark"])
def test_no_page_complains_scrolls_sideways_or_runs_hostile_text(opened, made, size, scheme):
    page = opened("/", viewport=size, color_scheme=scheme)
    for path in all_paths(made):
        page.goto(path)
        drawn(page)
        assert page.evaluate("window.hacked") is None, path
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
        assert page.locator("img").count() == 0, path


CONTRASTS = """() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ({ r, g, b }) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      const found = parse(style.backgroundColor);
      if (found.a === 1) return found;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const poor = [];
  for (const node of document.querySelectorAll("main *, header *, footer *")) {
    if (!(node instanceof HTMLElement) || node.closest(".plot, :disabled, .visually-hidden")) continue;
    if (![...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim())) continue;
    if (!node.getClientRects().length) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)} ${node.textContent}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(opened, made, scheme):
    page = opened("/", color_scheme=scheme)
    for path in all_paths(made):
        page.goto(path)
        assert page.evaluate(CONTRASTS) == [], path


def test_dark_is_dark(opened):
    grounds = [
        opened("/", color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    levels = [sum(map(int, re.findall(r"\d+", ground))) for ground in grounds]
    assert levels[0] > 700
    assert levels[1] < 90


def test_charts_follow_a_change_of_the_scheme(opened, made):
    page = drawn(opened(candidate_path(made, "done", 4), color_scheme="light"))
    tick = page.locator(".xtick text").first
    before = tick.evaluate("each => getComputedStyle(each).fill")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "before => getComputedStyle(document.querySelector('.xtick text')).fill !== before", arg=before
    )


def test_an_op_is_submitted_by_keyboard_alone(opened, made):
    page = opened("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    press_until(page, "a[href='/submit']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/submit")
    press_until(page, "#source")
    page.keyboard.insert_text(OP)
    press_until(page, "#name")
    page.keyboard.type("by_keyboard")
    press_until(page, "#check")
    page.keyboard.press("Enter")
    expect(page.locator("#check-result")).to_contain_text("Valid: category")
    press_until(page, "#rounds")
    page.keyboard.press("Control+A")
    page.keyboard.type("3")
    press_until(page, "button.primary")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    expect(page.locator("h1")).to_contain_text("local/by_keyboard")
    job = get_job(made.store, int(page.url.rpartition("/")[2]))
    assert (job.status, job.options["rounds"]) == (JobStatus.QUEUED, 3)


def test_whatever_has_the_focus_shows_it(opened):
    page = opened("/")
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_what_is_wrong_with_an_op_is_said_at_once_and_leads_to_its_line(opened):
    page = opened("/submit")
    page.fill("#source", "import torch\n\n\ndef op(x):\n    return (x\n")
    page.click("#check")
    expect(page.locator("#check-result")).to_contain_text(":5: is not Python")
    assert page.get_attribute("#source", "aria-invalid") == "true"
    page.get_by_role("button", name="Go to line 5").click()
    chosen = page.evaluate("(s => s.value.slice(s.selectionStart, s.selectionEnd))(document.getElementById('source'))")
    assert chosen == "    return (x"


def test_a_file_is_read_into_the_form_and_checked(opened):
    page = opened("/submit")
    page.set_input_files("#file", {"name": "my op.py", "mimeType": "text/x-python", "buffer": OP.encode()})
    expect(page.locator("#check-result")).to_contain_text("Valid")
    expect(page.locator("#source")).to_have_value(OP)
    expect(page.locator("#name")).to_have_value("my_op")


def test_weights_are_sent_as_they_are_chosen_and_go_with_the_model(opened, made):
    page = opened("/submit")
    page.fill("#source", OP)
    page.fill("#name", "with_weights")
    page.select_option("#whole", "run")
    page.get_by_text("Weights of a whole model").click()
    page.set_input_files("#weights-file", {"name": "not.safetensors", "mimeType": "", "buffer": b"PK" * 20})
    expect(page.locator("#weights-result")).to_contain_text("cannot be read as a safetensors file")
    expect(page.get_by_role("button", name="Submit")).to_be_enabled()
    file = state_file({"w": ("U8", [3 << 20], bytes(3 << 20))})  # more than the body of any other request
    page.set_input_files("#weights-file", {"name": "w.safetensors", "mimeType": "", "buffer": file})
    expect(page.locator("#weights-result")).to_contain_text("w.safetensors is kept for your runs")
    digest = read_weights(file).digest
    expect(page.locator("#weights")).to_have_value(digest)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/models/\d+$"))
    expect(page.locator("dl.facts")).to_contain_text(digest[:8])
    assert get_job(made.store, int(page.url.rpartition("/")[2])).options["weights"] == digest
    page.goto(page.url.rpartition("/models/")[0] + "/submit")
    expect(page.locator("#weights option").nth(1)).to_contain_text(f"{digest[:12]}, 3.0 MiB")


def test_without_scripts_everything_can_be_read_and_submitted(opened, made):
    page = opened(f"/jobs/{made.jobs['done']}", java_script_enabled=False)
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator("noscript p")).to_contain_text("Without JavaScript this page stands still")
    page.goto("/submit")
    page.fill("#source", "def op(x):\n    return (x\n")
    page.click("#check")
    expect(page.locator("#problem")).to_contain_text("op:2:")
    expect(page.locator("#source")).to_have_value("def op(x):\n    return (x\n")
    page.fill("#source", OP)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))


def test_a_job_is_watched_live_from_its_first_round_to_its_end(opened, made):
    job_id = made.start("watched")
    page = opened(f"/jobs/{job_id}")
    expect(page.locator("#rounds-title + p")).to_contain_text("None yet")
    page.evaluate("window.stayed = true")
    made.round(job_id, 1, seeded_store.evaluation("passed", speedup=1.5), best=True)
    expect(page.locator("tr.best")).to_contain_text("1.50×")
    expect(page.locator("#log")).to_contain_text("best so far: round 1")
    expect(page.locator("#live")).to_contain_text("Write results past the cache.")
    drawn(page)
    made.journal(job_id)(Event("round_started", 2, {"request": "improve", "parent": 1}))
    expect(page.locator("#state")).to_contain_text("Round 2 of 6")
    made.round(job_id, 3, seeded_store.evaluation("passed", speedup=3.5), best=True)
    expect(page.locator("tr.best")).to_contain_text("3.50×")
    assert page.locator("figure.chart .js-plotly-plot, figure.chart .plot.js-plotly-plot").count() == 1
    assert page.evaluate("document.querySelector('.plot').data[0].y.at(-1)") == pytest.approx(3.5)
    made.end(job_id, JobStatus.DONE, "rounds")
    expect(page.locator("#state")).to_contain_text("Found 3.50× over eager")
    expect(page).to_have_title(re.compile(r"^\[done\]"))
    assert page.evaluate("window.stayed") is True


def test_an_evaluation_is_watched_live_phase_by_phase(opened, made):
    holds, job_id = made.start("holds"), made.start("phases")
    where = {"device": "AMD EPYC, 2 cores", "places": ["a"]}

    def phase(job, name, number=1):
        with made.store.write() as session:
            results.add_event(session, job, "phase", number, {"phase": name, **where})

    for each in (holds, job_id):
        made.journal(each)(Event("proof_started", 1, {"hash": f"{each:064x}"}))
    phase(holds, "timing")
    page = opened(f"/jobs/{job_id}")
    expect(page.locator("#step")).to_contain_text("waiting in the queue for the device")
    expect(page.locator("#doing")).to_contain_text(f"The device is held by job {holds} (timing).")
    made.end(holds, JobStatus.CANCELLED, "cancelled")
    for name in ("starting", "building"):
        phase(job_id, name)
    expect(page.locator("#step")).to_contain_text("building the candidate")
    expect(page.locator(".phases [aria-current]")).to_contain_text("building")
    bar = page.locator("progress")
    assert float(bar.get_attribute("max")) > 10  # what earlier evaluations on this device took
    expect(page.locator("#doing")).to_contain_text("of usually")
    before = bar.evaluate("each => each.value")
    page.wait_for_function("before => document.querySelector('progress').value > before + 0.9", arg=before)
    phase(job_id, "timing")
    expect(page.locator(".phases [aria-current]")).to_contain_text("timing")
    expect(page.locator(".phases li").first).to_contain_text("queued")
    made.end(job_id, JobStatus.CANCELLED, "cancelled")
    expect(page.locator("#doing")).to_have_count(0)


def test_a_transcript_is_read_without_scripts_from_a_candidate_to_the_whole_call(opened, made):
    page = opened(candidate_path(made, "done", 4), java_script_enabled=False)
    page.get_by_role("link", name="How it was written").click()
    page.wait_for_url(re.compile(r"/transcript\?page=1#call-\d+$"))
    call = page.locator(f"details{re.search('#call-[0-9]+$', page.url)[0]}")
    assert call.get_attribute("open") is None
    call.locator("> summary").click()
    expect(call.locator(".said-by")).to_be_visible()
    call.get_by_role("link", name="the whole call, as it was sent").click()
    expect(page.locator("h1")).to_contain_text("coder")
    page.get_by_role("link", name="What models said").click()
    page.get_by_role("link", name="Unfold all").click()
    assert page.locator("details.call:not([open])").count() == 0


def test_a_job_that_ended_on_its_budget_goes_on_with_more_from_its_page(opened, made):
    job_id = made.start("spent")
    made.round(job_id, 1, seeded_store.evaluation("passed", speedup=1.5), best=True)
    made.end(job_id, JobStatus.DONE, "budget")
    page = opened(f"/jobs/{job_id}")
    page.fill("#more-budget_usd", "5.5")
    page.get_by_role("button", name="Go on with more").click()
    expect(page.locator("#state")).to_contain_text("Waits for a worker")
    job = get_job(made.store, job_id)
    assert (job.status, job.options["budget_usd"]) == (JobStatus.QUEUED, 5.5)
    with made.store.write() as session:
        jobs.request_cancel(session, job_id)


def test_a_page_that_lost_the_server_catches_up_when_it_is_back(chromium, made, tmp_path):
    store = open_store(load_settings(data_dir=tmp_path))
    own = seeded_store.Seeded(store)
    job_id = own.start("one")
    with serving(store, tmp_path) as address:
        port = int(address.rpartition(":")[2])
        page = chromium.new_page()
        page.goto(f"{address}/jobs/{job_id}")
        expect(page.locator("#rounds-title + p")).to_contain_text("None yet")
    own.round(job_id, 1, seeded_store.evaluation("passed", speedup=1.5), best=True)
    try:
        with serving(store, tmp_path, port):
            expect(page.locator("tr.best")).to_contain_text("1.50×", timeout=30_000)
    finally:
        page.close()
        store.close()


def test_a_job_is_cancelled_from_its_page_and_resumed(opened, made):
    job_id = made.queue("to cancel")
    page = opened(f"/jobs/{job_id}")
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_contain_text("Cancelled")
    assert get_job(made.store, job_id).status is JobStatus.CANCELLED
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#state")).to_contain_text("Waits for a worker")


def test_what_someone_else_cancels_shows_without_reloading(opened, made):
    job_id = made.queue("cancelled elsewhere")
    page = opened(f"/jobs/{job_id}")
    other = opened(f"/jobs/{job_id}")
    other.get_by_role("button", name="Cancel").click()
    expect(page.locator("#state")).to_contain_text("Cancelled")


def test_an_open_advice_and_the_focus_stay_through_an_update(opened, made):
    job_id = made.start("read while it runs")
    made.round(job_id, 1, seeded_store.evaluation("passed", speedup=1.5), best=True)
    made.round(job_id, 2, seeded_store.evaluation("passed", speedup=1.6))
    page = opened(f"/jobs/{job_id}")
    page.locator("details[data-key=advice-1] summary").click()
    page.locator("#cancel").focus()
    made.journal(job_id)(Event("round_started", 3, {"request": "improve", "parent": 1}))
    expect(page.locator("#state")).to_contain_text("Round 3")
    assert page.evaluate("document.querySelector('details[data-key=advice-1]').open") is True
    assert page.evaluate("document.activeElement.id") == "cancel"


def test_one_slow_answer_does_not_keep_the_next_news_waiting(opened, made):
    job_id = made.start("slow once")
    page = opened(f"/jobs/{job_id}")
    slow = [4.0]  # seconds, of the first answer

    def late(route):
        time.sleep(slow.pop() if slow else 0)
        route.continue_()

    page.route("**/part", late)
    journal = made.journal(job_id)
    with page.expect_response("**/part"):
        journal(Event("round_started", 1, {"request": "write"}))
    journal(Event("round_started", 2, {"request": "improve", "parent": 1}))
    expect(page.locator("#state")).to_contain_text("Round 2", timeout=12_000)


def test_the_leaderboard_is_filtered_and_sorted(opened):
    page = opened("/leaderboard")
    page.select_option("#f-model", "openai/some-model")
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Over eager")
    values = [float(text.rstrip("×")) for text in page.locator("tbody .speed strong").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    page.get_by_role("link", name="Cost").focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Cost")
    page.get_by_role("link", name="Cost").focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Cost")
    assert "model=openai%2Fsome-model" in page.url
    page.select_option("#f-suite", "starter")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Cost")
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).not_to_have_count(4)


def test_the_overview_is_filtered_as_filters_change_and_keeps_the_focus(opened):
    page = opened("/")
    rows = page.locator(".heat-map tbody tr")
    expect(page.get_by_role("button", name="Filter")).to_have_count(0)
    whole = rows.count()
    page.evaluate("window.stayed = true")
    page.locator("#f-q").focus()
    page.keyboard.type("gelu_t")
    expect(rows).to_have_count(1)
    expect(page.locator("dl.facts")).to_contain_text("Tasks")
    assert page.evaluate("document.activeElement.id") == "f-q"
    assert "q=gelu_t" in page.url
    page.keyboard.type("anh")
    expect(rows).to_have_count(1)
    expect(page.locator("#f-q")).to_have_value("gelu_tanh")
    page.fill("#f-q", "")
    expect(rows).to_have_count(whole)
    page.select_option("#f-model", "openai/some-model")
    expect(page.locator(".heat-map thead th")).to_have_count(2)
    page.select_option("#f-suite", "local")
    expect(page.locator("#filtered")).to_contain_text("Nothing matches these filters")
    page.get_by_role("link", name="Show everything").click()
    expect(rows).to_have_count(whole)
    assert page.evaluate("window.stayed") is None  # a link of the page, followed as such


def test_a_search_whose_answers_come_out_of_order_shows_the_last(opened):
    page = opened("/")
    waits = {"gelu_tanh": 1.5}

    def late(route):
        time.sleep(next((each for text, each in waits.items() if route.request.url.endswith(text)), 0))
        route.continue_()

    page.route("**/?*", late)
    page.fill("#f-q", "gelu_tanh")
    page.wait_for_timeout(400)
    page.fill("#f-q", "mixed_pool")
    expect(page.locator(".heat-map tbody th")).to_have_text("starter/mixed_pool")
    page.wait_for_timeout(1500)
    expect(page.locator(".heat-map tbody th")).to_have_text("starter/mixed_pool")


def test_without_scripts_filters_have_a_button(opened):
    page = opened("/", java_script_enabled=False)
    page.fill("#f-q", "gelu_tanh")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".heat-map tbody tr")).to_have_count(1)
    expect(page.locator(".picture svg").first).to_be_visible()


def test_the_form_offers_what_goes_together_and_says_why_not(opened):
    page = opened("/submit")
    page.select_option("#strategy", "judge")
    assert page.locator("#strategy option", has_text="tools").get_attribute("disabled") is not None  # built-in model
    page.fill("#model", "openai/some-model")
    assert page.locator("#strategy option", has_text="tools").get_attribute("disabled") is None
    page.select_option("#strategy", "tree")
    expect(page.locator("#strategy-text")).to_contain_text("Beam search")
    page.select_option("#seed", "compiler")
    page.check("input[name=platform][value=cuda]")
    expect(page.locator("#combination")).to_contain_text("chooses by times, and platform 'cuda' times nothing")
    expect(page.locator("#combination")).to_contain_text("The compiler does not write for cuda")
    page.fill("#source", OP)
    page.get_by_role("button", name="Submit").click()
    assert page.url.endswith("/submit")  # the browser keeps it back
    page.check("input[name=platform][value=cpu]")
    expect(page.locator("#combination")).to_be_empty()
    page.select_option("#whole", "run")
    expect(page.locator("#domain")).to_be_disabled()


def test_two_candidates_are_compared(opened, made):
    page = drawn(opened(candidate_path(made, "done", 4)))
    page.select_option("#against", made.candidates[made.jobs["done"]][2])
    page.get_by_role("button", name="Show").click()
    expect(page.locator("td.changed.left").nth(1)).to_contain_text("// variant 2")
    expect(page.locator("td.changed.right-side").nth(1)).to_contain_text("// variant 4")


def test_tables_are_stacked_on_a_phone_and_stay_tables_for_those_who_listen(opened):
    page = opened("/leaderboard", viewport=PHONE)
    row = page.get_by_role("row").nth(1)
    assert row.evaluate("each => getComputedStyle(each).display") == "grid"
    assert page.get_by_role("columnheader").count() == 9
    assert page.get_by_role("cell").count() > 9


def test_the_leaderboard_can_be_sorted_on_a_phone(opened):
    page = opened("/leaderboard", viewport=PHONE)
    page.get_by_role("link", name="Roofline").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Roofline")
    expect(page.get_by_role("link", name="Over compile")).to_be_in_viewport()


def test_exports_are_saved(opened):
    page = opened("/leaderboard")
    with page.expect_download() as saved:
        page.get_by_role("link", name="CSV").click()
    assert saved.value.suggested_filename == "leaderboard.csv"


# Batches and devices


def start_batch(made, name, tasks=("starter/gelu_tanh", "starter/mixed_pool", "starter/channel_stats")):
    """A batch of which every job runs: one model, one try at each task; its id and its jobs."""
    with made.store.write() as session:
        batch = add_batch(session, name=name, user="ada", spec={}, budget_usd=5.0)
    return batch, [made.start(f"{name}/{ref}", made.task(ref), batch=batch, sample=1) for ref in tasks]


def end_with(made, job_id, speedup):
    made.round(job_id, 1, seeded_store.evaluation("passed", speedup=speedup), best=True)
    made.end(job_id, JobStatus.DONE, "rounds")


HEAT_HAS = """log => document.querySelector("figure[data-chart=heat] .plot")
  .data?.[0].z.flat().some((each) => each !== null && Math.abs(each - log) < 1e-9)"""


def test_a_batch_is_watched_live_until_it_is_done(opened, made):
    batch, jobs = start_batch(made, "watched batch")
    page = opened(f"/batches/{batch}")
    expect(page.locator("#state")).to_contain_text("Under way: 0 of 3 jobs have ended")
    expect(page.locator("#live")).to_contain_text("No job has ended yet.")
    page.evaluate("window.stayed = true")
    end_with(made, jobs[0], 2.0)
    expect(page.locator("#state")).to_contain_text("1 of 3 jobs have ended")
    expect(page).to_have_title(re.compile(r"^\[1/3\] Batch"))
    expect(page.locator("dl.facts")).to_contain_text("$0.0250")
    expect(page.locator("figure[data-chart=fastp][data-drawn]")).to_have_count(1)
    page.wait_for_function(HEAT_HAS, arg=1)
    page.evaluate("window.heat = document.querySelector('figure[data-chart=heat] .plot svg')")
    end_with(made, jobs[1], 4.0)
    page.wait_for_function(HEAT_HAS, arg=2)
    assert page.evaluate("window.heat.isConnected") is True  # it got new figures and was not made anew
    end_with(made, jobs[2], 0.5)
    expect(page.locator("#state")).to_contain_text("Done: 3 of 3 jobs have ended")
    page.wait_for_function(HEAT_HAS, arg=-1)
    assert page.locator(".js-plotly-plot").count() == 2
    assert page.evaluate("window.stayed") is True
    page.wait_for_timeout(500)
    assert page.evaluate("performance.getEntriesByType('resource').filter(e => e.name.includes('/part')).length") < 20


def test_an_ended_batch_opens_no_stream(opened, made):
    asked = []
    page = opened("/")
    page.on("request", lambda request: asked.append(request.url))
    drawn(page.goto(f"/batches/{made.batches['first']}") and page)
    assert not [url for url in asked if url.endswith("/events")]


def test_focus_scroll_and_choices_stay_while_a_batch_goes_on(opened, made):
    batch, jobs = start_batch(made, "read while it runs", ("starter/gelu_tanh", "starter/mixed_pool"))
    end_with(made, jobs[0], 2.0)
    page = drawn(opened(f"/batches/{batch}", viewport={"width": 600, "height": 500}))
    page.get_by_text("As a table, with links to the jobs").click()
    link = page.get_by_role("link", name="2.00×")
    link.focus()
    page.select_option("#over", "compile")
    link.focus()
    region = page.locator(".scroll[aria-labelledby=figures-title]")
    region.evaluate("each => each.scrollLeft = 120")
    assert page.evaluate("scrollY") > 0
    place = link.bounding_box()["y"]
    end_with(made, jobs[1], 3.0)
    expect(page.get_by_role("link", name="3.00×")).to_have_count(1)
    assert page.evaluate("document.activeElement.textContent") == "2.00×"
    assert page.locator("details[data-key=heat-table]").evaluate("each => each.open") is True
    assert page.locator("#over").input_value() == "compile"
    assert region.evaluate("each => each.scrollLeft") == 120
    assert abs(link.bounding_box()["y"] - place) < 40  # what is read stays where it is; its own table has grown


def test_the_focus_goes_on_nearby_when_what_had_it_is_gone(opened, made):
    batch, jobs = start_batch(made, "cancelled while it runs", ("starter/gelu_tanh",))
    page = opened(f"/batches/{batch}")
    page.locator("#cancel").focus()
    end_with(made, jobs[0], 2.0)
    expect(page.locator("#state")).to_contain_text("Done")
    assert page.evaluate("document.activeElement.id") == "live"


def test_a_batch_is_cancelled_from_its_page_by_keyboard(opened, made):
    with made.store.write() as session:
        batch = add_batch(session, name="to cancel", user="ada", spec={}, budget_usd=None)
    waiting = made.queue("waits in a batch")
    with made.store.write() as session:
        session.get_one(JobRow, waiting).batch_id = batch
    page = opened(f"/batches/{batch}")
    press_until(page, "#cancel")
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_contain_text("Stopped: 1 of 1 jobs have ended")
    page.get_by_role("button", name="Resume what ended early").click()
    expect(page.locator("#state")).to_contain_text("Under way")


LABELS = """() => {
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (node) => getComputedStyle(node).fill.match(/[\\d.]+/g).slice(0, 3)
    .reduce((sum, v, i) => sum + linear(v / 255) * [0.2126, 0.7152, 0.0722][i], 0);
  return [...document.querySelectorAll(".time-label")].map((node) => {
    const [a, b] = [light(node), light(node.parentElement.querySelector("rect"))].sort((x, y) => y - x);
    return [node.textContent, (a + 0.05) / (b + 0.05)];
  });
}"""


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk-light", "phone-dark"])
def test_the_bars_of_a_model_need_no_script_and_their_labels_can_be_read(opened, made, size, scheme):
    many = [{"name": f"r{place:02}_add", "share": 0.14} for place in range(1, 8)]
    run = seeded_store.model_run(made, f"many {scheme}", plan=seeded_store.PLAN | {"apart": many})
    page = opened(f"/models/{run}", viewport=size, color_scheme=scheme)
    found = page.evaluate(LABELS)
    assert [label for label, _ in found] == [*(f"r{place:02}" for place in range(1, 7)), "…"]
    assert min(contrast for _, contrast in found) >= 4.5
    page = opened(f"/models/{run}", viewport=size, java_script_enabled=False)
    picture = page.get_by_role("img", name=re.compile("Time of one call: eager 41.5 ms"))
    box = picture.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size["width"]
    table = page.get_by_role("region", name="Where time goes")
    expect(table.get_by_role("rowheader")).to_have_count(1 + 6 + 1 + 1 + 1)  # eager, its parts, smaller, else, compile


def test_a_model_leads_by_keyboard_to_its_proof(opened, made):
    page = opened("/models")
    press_until(page, f"a[href='/models/{made.models['decoder']}']")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/models/{made.models['decoder']}")
    press_until(page, "a[href*='?evaluation=']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/candidates/**")
    expect(page.locator("h1")).to_contain_text("Candidate")


def test_who_wants_less_motion_sees_none_on_a_running_batch(opened, made):
    batch, _ = start_batch(made, "calm", ("starter/gelu_tanh",))
    for motion, name in (("no-preference", "pulse"), ("reduce", "none")):
        page = opened(f"/batches/{batch}", reduced_motion=motion)
        assert page.locator(".pulse").evaluate("each => getComputedStyle(each).animationName") == name
        moving = page.evaluate("document.getAnimations().length")
        assert moving == (motion == "no-preference")


def test_a_worker_that_comes_works_and_gets_lost_shows_without_reloading(opened, made):
    page = opened("/devices")
    page.evaluate("window.stayed = true")
    worker = "w-seen-coming"
    with made.store.write() as session:
        workers.add_worker(session, worker, seeded_store.OWNER, platform="cpu", slot=7, device="CPU of a new worker",
                           kind="new-2", sandbox="docker", version="0.1.0")  # fmt: skip
    row = page.locator(f"tr[data-key={worker}]")
    expect(row).to_contain_text("alive")
    expect(row).to_contain_text("nothing")
    row.evaluate("each => window.row = each")
    job = made.start("of the new worker")
    with made.store.write() as session:
        session.get_one(JobRow, job).worker_id = worker
    expect(row.get_by_role("link", name=f"job {job}")).to_be_visible()
    row.get_by_role("link").focus()
    with made.store.write() as session:
        workers.set_lost(session, worker)
    expect(row).to_contain_text("lost")
    assert page.evaluate("window.row.isConnected && window.stayed") is True
    assert page.evaluate("document.activeElement.textContent") == f"job {job}"
    made.end(job, JobStatus.DONE, "rounds")
    expect(row).to_contain_text("nothing")


def test_the_devices_page_follows_the_server_through_its_absence(chromium, tmp_path):
    store = open_store(load_settings(data_dir=tmp_path))
    page = chromium.new_page()
    try:
        with serving(store, tmp_path) as address:
            page.goto(f"{address}/devices")
            expect(page.locator("#live")).to_contain_text("No worker yet")
        with store.write() as session:
            workers.add_worker(session, "w", seeded_store.OWNER, platform="cpu", slot=0, device="CPU", kind="c",
                               sandbox="docker", version="0.1.0")  # fmt: skip
        with serving(store, tmp_path, port=int(address.rpartition(":")[2])):
            expect(page.locator("tr[data-key=w]")).to_contain_text("alive", timeout=30_000)
    finally:
        page.close()
        store.close()


# On a narrow phone

NARROW = {"width": 390, "height": 844}
CLIPPED = (Path(__file__).parent / "clipped_text.js").read_text()
ALL_OPEN = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.mark.parametrize("width", [390, 360])
def test_on_a_phone_nothing_is_cut_off_and_no_word_breaks(opened, made, width):
    page = opened("/", viewport=NARROW | {"width": width})
    faults = {}
    for path in all_paths(made):
        page.goto(path)
        page.evaluate(ALL_OPEN)
        drawn(page)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            faults.setdefault(path, []).append("the page scrolls sideways")
        if found := page.evaluate(CLIPPED):
            faults.setdefault(path, []).extend(found)
    assert faults == {}


ADD = """([tag, text, style]) => {
  const node = document.createElement(tag);
  if (tag === "select") node.append(new Option(text));
  else node.textContent = text;
  document.querySelector("main").append(node);
  Object.assign(node.style, style);
}"""


@pytest.mark.parametrize(
    ("tag", "text", "style", "said"),
    [
        ("p", "cut off at its end", {"width": "4em", "overflow": "hidden", "whiteSpace": "nowrap"}, "cut off: P"),
        ("p", "unbreakable", {"width": "2em"}, "broken: unbreakable"),
        ("p", "outside", {"position": "relative", "left": "300px", "width": "200px"}, "beyond the edge: P"),
        ("select", "a name that is long", {"width": "5em"}, "cut off: : a name that is long"),
    ],
)
def test_text_that_is_cut_off_or_broken_is_noticed(opened, tag, text, style, said):
    page = opened("/devices", viewport=NARROW)
    page.evaluate(ADD, [tag, text, style])
    assert any(each.startswith(said) for each in page.evaluate(CLIPPED))
