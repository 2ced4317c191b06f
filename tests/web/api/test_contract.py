"""The API keeps its own description: schemathesis calls each operation with good and bad values."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig
from sqlalchemy import create_engine

from db.store import Store
from service.settings import Settings
from tests.support import seeded_store
from tests.support.web_application import add_done_job, listening, opened
from web.app import create_app
from web.dependencies import Dependencies

# What is wrong with an op, a task or a model that the schema cannot rule out is a 422; so is a missing budget.
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "401", "403", "404", "409", "422"]}}}
)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("contract"), login=True, stopping=True, requests_a_minute=0) as web:
        add_done_job(web.store)
        seeded_store.model_run(seeded_store.Seeded(web.store), "net")
        yield web


@pytest.fixture(scope="module")
def token(web):
    return web.token("operator")


@pytest.fixture(scope="module")
def address(web):
    with listening(web) as address:
        yield address


def description():
    """The API's description; the store behind it is never opened."""
    return create_app(Dependencies(Settings(), Store(create_engine("sqlite://")))).openapi()


schema = schemathesis.openapi.from_dict(description(), config=CONFIG)


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_it_is_described(case, address, token):
    case.call_and_validate(base_url=address, headers={"Authorization": f"Bearer {token}"})
