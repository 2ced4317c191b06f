"""A job is refused before it is stored if its models cannot write for its platform."""

from collections.abc import Iterator

import pytest

from db.jobs import jobs
from db.store import Store
from service.batches.manage import start_batch
from service.batches.spec import make_spec
from service.database import open_store
from service.errors import BadRequest
from service.settings import load_settings
from service.tasks import find_task
from tests.support.submit import submit

OP = "starter/gelu_tanh"


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(load_settings())
    yield store
    with store.read() as session:
        assert jobs.list_jobs(session) == []
    store.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "model 'builtin/compiler' cannot write for platform 'simulated'; name a language model"),
        (
            {"model": "openai/x", "judge_model": "builtin/compiler"},
            "model 'builtin/compiler' cannot write for platform 'simulated'; name a language model",
        ),
        ({"model": "openai/x", "seed": "compiler"}, "seed 'compiler' is unknown; platform 'simulated' has: none"),
    ],
)
def test_a_job_whose_model_cannot_write_for_the_platform_is_refused(
    store: Store, options: dict[str, str], said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        submit(find_task(OP, store=store), settings=load_settings(platform="simulated", **options), store=store)
    model, job = options.get("model", "builtin/compiler"), {name: options[name] for name in options if name != "model"}
    with pytest.raises(BadRequest, match=said):
        asked = make_spec({"tasks": [OP], "platforms": ["cpu", "simulated"], "models": [model], "job": job})
        start_batch(asked, settings=load_settings(), store=store)


def test_a_strategy_that_needs_times_is_refused_on_a_platform_that_times_nothing(store: Store) -> None:
    settings = load_settings(platform="cuda", model="openai/x", strategy="tree")
    with pytest.raises(BadRequest, match="platform 'cuda' times nothing"):
        submit(find_task(OP, store=store), settings=settings, store=store)
