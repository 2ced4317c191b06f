"""The web application keeps its own description: schemathesis calls each operation with good and bad values.

It does so on both databases, because PostgreSQL refuses values that SQLite takes. Pages have no description that is
published; theirs is made here, and all that is asked of them is that no value is a fault of the server.
"""

import contextlib
import copy
from collections.abc import Iterator

import pytest
import schemathesis
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig
from sqlalchemy import create_engine

from db.engine import open_store
from db.store import Store
from service.settings import Settings, load_settings
from tests.support import seeded_store
from tests.support.new_stores import open_new_store
from tests.support.web_application import Web, add_done_job, listening
from web.app import create_app
from web.dependencies import Dependencies

# What is wrong with an op, a task or a model that the schema cannot rule out is a 422; so is a missing budget.
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "409", "422"]}}}
)
EXAMPLES = 12
EXAMPLES_OF_PAGES = 6
"""Of each operation or page on each database. With what schemathesis adds of its own, that is some 4,000 requests on
each, in half a minute; twice as many examples take twice as long."""


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def web(request, tmp_path_factory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("contract")
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            store = open_new_store(folder / "web.db")
        else:
            server = request.getfixturevalue("postgres")
            store = open_store(stack.enter_context(server.database(request.getfixturevalue("postgres_template"))))
        stack.callback(store.close)
        add_done_job(store)
        seeded_store.model_run(seeded_store.Seeded(store), "net")
        yield Web(store, load_settings(data_dir=folder, requests_a_minute=0), login=True, stopping=True)


@pytest.fixture(scope="module")
def token(web):
    return web.token("operator")


@pytest.fixture(scope="module")
def address(web):
    with listening(web) as address:
        yield address


def application():
    """The application; the store behind it is never opened."""
    return create_app(Dependencies(Settings(), Store(create_engine("sqlite://"))))


def description_of_pages():
    """An OpenAPI description of the pages that read, which the application itself does not publish."""
    routes = [route for route in iter_route_contexts(application().routes) if "GET" in route.methods]
    pages = [copy.copy(route.original_route) for route in routes if not route.path.startswith(("/api/", "/metrics"))]
    for page in pages:
        page.include_in_schema = True
    return get_openapi(title="pages", version="1", routes=pages)


schema = schemathesis.openapi.from_dict(application().openapi(), config=CONFIG)
pages = schemathesis.openapi.from_dict(description_of_pages(), config=CONFIG)


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


@schema.parametrize()
@examples(EXAMPLES)
def test_every_operation_answers_as_it_is_described(case, address, token):
    case.call_and_validate(base_url=address, headers={"Authorization": f"Bearer {token}"})


@pages.parametrize()
@examples(EXAMPLES_OF_PAGES)
def test_no_page_is_a_fault_of_the_server(case, address, token):
    response = case.call(base_url=address, headers={"Authorization": f"Bearer {token}"})
    assert response.status_code < 500, (case.path, case.path_parameters, case.query)
