"""The form that submits: all that a job can be asked for, and only what goes together."""

import html
import itertools
import json

import pytest
from starlette.testclient import TestClient

from agents.strategies.registry import STRATEGIES, STRATEGY_TEXTS
from db.jobs.jobs import get_job
from evaluator.platforms import PLATFORM_NAMES
from service.database import open_store
from service.errors import BadRequest
from service.settings import load_settings
from service.submissions.access import LOCAL as USER
from service.submissions.jobs import submit_for
from service.views.submit import combinations
from tasks.load import task_from_source
from tests.support.web_application import LOCAL, OP
from web.app import create_app
from web.dependencies import Dependencies

FORM = {
    "source": OP, "name": "relu", "platform": "cpu", "model": "openai/some", "strategy": "judge", "rounds": "3",
    "budget_usd": "2.50", "budget_s": "600", "budget_tokens": "50000", "budget_evaluations": "9",
    "judge_model": "openai/other", "seed": "compiler", "domain": "finite",
}  # fmt: skip


@pytest.fixture
def deps(isolated_settings):
    settings = load_settings()
    store = open_store(settings)
    yield Dependencies(settings, store)
    store.close()


@pytest.fixture
def client(deps):
    return TestClient(create_app(deps), base_url=LOCAL, follow_redirects=False)


def send(client, **changes):
    token = client.get("/devices").text.partition('csrf-token" content="')[2].partition('"')[0]
    return client.post("/submit", data={"csrf_token": token, **FORM, **changes})


def test_all_that_a_job_can_be_asked_for_is_asked_for(client, deps):
    answer = send(client)
    assert answer.status_code == 303, answer.text
    with deps.store.read() as session:
        job = get_job(session, int(answer.headers["location"].rpartition("/")[2]))
    asked = ("judge_model", "seed", "rounds", "budget_usd", "budget_s", "budget_tokens", "budget_evaluations")
    assert [job.options[name] for name in asked] == ["openai/other", "compiler", 3, 2.5, 600.0, 50_000, 9]
    assert (job.model, job.task.ref) == ("openai/some", "local/relu.finite")
    assert 'DOMAIN = "finite"' in job.task.source


def test_baselines_are_chosen_and_eager_is_always_among_them(client, deps):
    text = client.get("/submit").text
    assert '<input type="hidden" name="baselines" value="eager">' in text
    assert '<input type="checkbox" name="baselines" value="compile" checked> torch.compile' in text
    assert '<input type="checkbox" name="baselines" value="onnxruntime"> ONNX Runtime' in text
    for sent, stored in (
        (["eager", "openvino", "compile"], "eager,compile,openvino"), (["eager"], "eager"), ([], "eager,compile"),
    ):  # fmt: skip
        answer = send(client, baselines=sent)
        with deps.store.read() as session:
            job = get_job(session, int(answer.headers["location"].rpartition("/")[2]))
        assert job.options["baselines"] == stored
    refused = send(client, baselines=["eager", "<b>fast</b>"])
    assert refused.status_code == 422
    assert "&lt;b&gt;fast&lt;/b&gt;&#39; is no baseline; there is: eager, compile" in refused.text


def test_what_is_left_empty_is_as_the_server_has_it(client, deps):
    empty = ("judge_model", "seed", "budget_usd", "budget_s", "budget_tokens", "budget_evaluations", "domain")
    answer = send(client, **dict.fromkeys(empty, ""))
    with deps.store.read() as session:
        job = get_job(session, int(answer.headers["location"].rpartition("/")[2]))
    assert [job.options[name] for name in empty if name != "domain"] == [None] * 6
    assert job.task.ref == "local/relu"


def test_an_empty_field_says_what_the_server_has_for_it(isolated_settings):
    plain, own = load_settings(), load_settings(
        seed="compiler", judge_model="openai/other", budget_usd=2.5, budget_s=600, budget_tokens=50_000,
        budget_evaluations=9,
    )  # fmt: skip
    store = open_store(plain)
    pages = [TestClient(create_app(Dependencies(each, store)), base_url=LOCAL).get("/submit") for each in (plain, own)]
    store.close()
    without, given = (html.unescape(each.text) for each in pages)
    assert '<option value="">by the model</option>' in without and 'placeholder="the same"' in without
    assert '<option value="">the server\'s: by the compiler</option>' in given and "by the model" not in given
    for name, value in (
        ("judge_model", "openai/other"), ("budget_usd", "2.5"), ("budget_s", "600"), ("budget_tokens", "50000"),
        ("budget_evaluations", "9"),
    ):  # fmt: skip
        field = f'name="{name}"'
        assert f'placeholder="the server\'s: {value}"' in given.partition(field)[2].partition(">")[0]
        assert "the server's" not in without.partition(field)[2].partition(">")[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget_tokens": "many"}, "tokens: give a whole number, or leave it empty (not &#39;many&#39;)"),
        ({"budget_tokens": "-1"}, "budget_tokens"),
        ({"budget_evaluations": "1.5"}, "evaluations: give a whole number"),
        ({"seed": "luck"}, "seed"),
        ({"domain": "odd"}, "--domain odd"),
        ({"judge_model": "builtin/luck"}, "builtin/luck"),
        ({"strategy": "tree", "platform": "cuda", "seed": ""}, "platform &#39;cuda&#39; times nothing; choose judge"),
        ({"strategy": "screen-then-time"}, "platform &#39;cpu&#39; is none of them, so choose judge"),
        ({"strategy": "tools", "model": "builtin/compiler"}, "needs a language model"),
        ({"platform": "riscv", "model": "builtin/compiler", "seed": ""}, "cannot write for platform"),
        ({"platform": "riscv"}, "seed &#39;compiler&#39; is unknown; platform &#39;riscv&#39; has: none"),
        ({"whole": "run"}, "domain: goes with an op and not with a whole model"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_clear_text_and_the_form_keeps_it(client, changes, said):
    answer = send(client, **changes)
    assert answer.status_code == 422
    assert said in answer.text.partition('id="problem"')[2].partition("</div>")[0]
    kept = {**FORM, **changes}
    assert f'value="{kept["budget_tokens"]}"' in answer.text
    assert f'value="{kept["judge_model"]}"' in answer.text


def test_the_form_offers_exactly_what_the_server_takes(deps):
    offered = combinations()
    by_name = {each.name: each for each in offered.strategies}
    task = task_from_source(OP, name="relu")
    models = ("openai/some", "builtin/compiler")
    for strategy, platform, model, seed in itertools.product(STRATEGIES, PLATFORM_NAMES, models, ("", "compiler")):
        builtin = model.startswith(f"{offered.builtin}/")
        choice = by_name[strategy]
        fits = (
            platform not in choice.not_on
            and not (builtin and (choice.not_builtin or not offered.seeds[platform]))
            and (not seed or seed in offered.seeds[platform])
        )
        options = {"platform": platform, "model": model, "strategy": strategy} | ({"seed": seed} if seed else {})
        try:
            submit_for(USER, task, options=options, settings=deps.settings, store=deps.store)
            taken = True
        except BadRequest:
            taken = False
        assert taken == fits, (strategy, platform, model, seed)


def test_every_strategy_is_explained_and_says_where_it_does_not_work(client):
    assert set(STRATEGY_TEXTS) == set(STRATEGIES)
    text = client.get("/submit").text
    for name, said in STRATEGY_TEXTS.items():
        assert f"<dt>{name}</dt><dd>{said}" in text
    assert "Not with a built-in model. Not on cuda, triton, hip." in text
    together = json.loads(text.partition('id="combinations">')[2].partition("</script>")[0])
    assert together["seeds"]["cpu"] == ["compiler"]
