"""docs/api.md and docs/access.md say what the server does."""

import re
from pathlib import Path

from sqlalchemy import create_engine

from db.store import Store
from service.settings import Settings
from service.submissions.access import Role
from service.submissions.jobs import OPTIONS
from web.api.events import MAX_TEXT_CHARS
from web.app import create_app
from web.broadcast import MAX_LISTENERS
from web.dependencies import Dependencies
from web.security.rate_limit import FAILURES_A_MINUTE
from web.security.request_body import MAX_BODY_BYTES
from web.security.sessions import LIFETIME_S

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.md").read_text()
ACCESS = (DOCS / "access.md").read_text()


def test_the_table_names_every_address_and_no_other():
    app = create_app(Dependencies(Settings(), Store(create_engine("sqlite://"))))
    described = {f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item}
    table = "".join(line for line in API.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`((?:GET|POST) /api/v1[^`]*)`", table)) == described


def test_what_a_job_may_set_is_named():
    section = API.partition("## What a job may set")[2].partition("##")[0]
    assert set(re.findall(r"`([a-z_]+)`", section)) - {"high", "task"} == {*OPTIONS, "priority"}


def test_the_bounds_are_those_of_the_code():
    assert f"{MAX_BODY_BYTES // 1024**2} MiB" in API
    assert f"{MAX_TEXT_CHARS:,} characters" in API
    assert f"takes {MAX_LISTENERS:,} of them" in API
    assert f"{FAILURES_A_MINUTE} a minute from an address" in ACCESS
    assert LIFETIME_S == 12 * 3600
    assert f"KERNELWRIGHT_REQUESTS_A_MINUTE`, {Settings.model_fields['requests_a_minute'].default};" in ACCESS


def test_every_role_is_explained():
    assert re.findall(r"^\| ([a-z]+) \|", ACCESS, flags=re.MULTILINE) == ["role", *Role]
