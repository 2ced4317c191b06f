"""What addresses and forms may hold: every page is asked for with values that a database cannot take."""

import re

import pytest
from fastapi.routing import iter_route_contexts
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.settings import load_settings
from tests.support import seeded_store
from tests.support.web_application import HASHES, Web, add_done_job

NUL = "%00"
PATH_VALUES = {"job_id": "1", "run_id": "2", "call": "1", "batch_id": "1", "candidate_hash": HASHES[0], "suite": "user",
               "name": "relu", "digest": "0" * 12}  # fmt: skip
HOSTILE = (NUL, f"a{NUL}b", "%ED%A0%80", str(2**31), str(10**11), "-1", "%F0%9F%92%A9", "'")


@pytest.fixture
def web(store, tmp_path):
    add_done_job(store)
    seeded_store.model_run(seeded_store.Seeded(store), "net")
    return Web(store, load_settings(data_dir=tmp_path), login=False)


def routes_of(web, method):
    found = iter_route_contexts(web.app.routes)
    return [route for route in found if method in route.methods and not route.path.startswith("/api/")]


def addresses_of(route):
    """The route's address with each hostile value in each of its parameters, one at a time."""
    names = [field.alias for field in route.dependant.path_params]
    usual = {name: PATH_VALUES[name] for name in names}
    for value in HOSTILE:
        for name in names:
            yield filled(route.path, {**usual, name: value})
        for field in route.dependant.query_params:
            yield f"{filled(route.path, usual)}?{field.alias}={value}"


def filled(path, values):
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    return path


def test_no_value_in_the_address_of_a_page_is_a_fault_of_the_server(web):
    client = web.client()
    asked = {address: client.get(address).status_code for route in routes_of(web, "GET")
             for address in addresses_of(route)}  # fmt: skip
    assert len(asked) > 200
    assert {address: status for address, status in asked.items() if status >= 500} == {}


@pytest.mark.parametrize(
    "address",
    ["/tasks/a%00/b", "/tasks/user/relu%00", "/submit?from=a%00/b", "/jobs/1/candidates/%00",
     "/jobs/1/candidates/%00/source.py", f"/jobs/1/candidates/{HASHES[0]}?evaluation=%00"],
)  # fmt: skip
def test_what_is_named_with_a_nul_is_not_there(web, address):
    assert web.client().get(address).status_code == 404


@pytest.mark.parametrize("address", ["/?dtype=%00", "/?suite=%00", "/tasks?suite=%00"])
def test_a_filter_with_a_nul_finds_nothing(web, address):
    answer = web.client().get(address)
    assert answer.status_code == 200
    assert "relu" not in answer.text


def test_no_value_in_a_form_is_a_fault_of_the_server(web):
    client = web.client()
    token = re.search(r'name="csrf-token" content="([^"]+)"', client.get("/devices").text)[1]
    for route in routes_of(web, "POST"):
        usual = {field.alias: PATH_VALUES[field.alias] for field in route.dependant.path_params}
        for field in (each for each in route.dependant.body_params if each.alias not in ("csrf_token", "file")):
            for value in ("\x00", "a\x00b", "9" * 20):
                data = {"csrf_token": token, "evaluation": "evaluation-1-1", "reason": "r", field.alias: value}
                answer = client.post(filled(route.path, usual), data=data)
                assert answer.status_code < 500, (route.path, field.alias, value)


def test_no_error_of_the_database_shows_what_a_statement_was_given(store):
    with pytest.raises(DBAPIError) as caught, store.engine.connect() as connection:
        connection.execute(text("SELECT * FROM nowhere WHERE secret = :secret"), {"secret": "kw_hidden"})
    assert "kw_hidden" not in str(caught.value)
