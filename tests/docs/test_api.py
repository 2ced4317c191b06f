"""docs/api.md and docs/access.md say what the server does."""

import re
from pathlib import Path

from sqlalchemy import create_engine

from db.accounts.idempotency import KEPT_FOR
from db.store import Store
from service.settings import Settings
from service.submissions.access import Role
from service.submissions.jobs import OPTIONS
from service.submissions.weights import MAX_FILE_BYTES
from tasks.text import MAX_SOURCE_BYTES
from web.api.events import MAX_TEXT_CHARS
from web.api.schemas.jobs import MAX_SOURCE_CHARS
from web.api.schemas.models import ModelOfTask
from web.api.weights import UPLOADS_AT_ONCE
from web.app import create_app
from web.broadcast import MAX_LISTENERS, MAX_LISTENERS_PER_USER
from web.dependencies import Dependencies
from web.security.rate_limit import FAILURES_A_MINUTE
from web.security.request_body import BODY_TIMEOUT_S, MAX_BODY_BYTES, MAX_LOGIN_BYTES, SLOWEST_BYTES_A_S
from web.security.sessions import LIFETIME_S
from web.security.timeouts import READ_TIMEOUT_S, REQUEST_TIMEOUT_S

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.md").read_text()
ACCESS = (DOCS / "access.md").read_text()


def test_the_table_names_every_address_and_no_other():
    app = create_app(Dependencies(Settings(), Store(create_engine("sqlite://"))))
    described = {f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item}
    table = "".join(line for line in API.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`((?:GET|POST|PUT|DELETE) /api/v1[^`]*)`", table)) == described


def test_what_a_run_over_a_model_may_set_is_named():
    section = API.partition("## What a run over a model may set")[2].partition("##")[0]
    of_jobs = {"translate_from", "source_kernel"}
    taken = {*ModelOfTask.model_fields} - {*OPTIONS, "priority", "task"}
    assert set(re.findall(r"`([a-z_]+)`", section)) == taken | of_jobs and not taken & of_jobs


def test_what_a_job_may_set_is_named():
    section = API.partition("## What a job may set")[2].partition("##")[0]
    named = set(re.findall(r"`([a-z_]+)`", section)) - {"high", "task"}
    assert named == {*OPTIONS, "priority", "translate_from", "source_kernel"}


def limits_of(page):
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|$", page.partition("## Limits")[2], flags=re.MULTILINE))


def test_the_limits_of_requests_are_those_of_the_code():
    assert limits_of(API) == {
        "limit": "value",
        "---": "---",
        "body of a request, uncompressed": f"{MAX_BODY_BYTES // 1024**2} MiB",
        "source of an op": f"{MAX_SOURCE_BYTES // 1024} KiB",
        "source of a candidate": f"{MAX_SOURCE_CHARS // 1024**2} MiB",
        "text within an event": f"{MAX_TEXT_CHARS:,} characters",
        "listeners of events, of one server": f"{MAX_LISTENERS:,}",
        "listeners of events, of one user": f"{MAX_LISTENERS_PER_USER}",
        "time that an idempotency key is kept": f"{KEPT_FOR.days} days",
    }


def test_the_limits_of_clients_are_those_of_the_code():
    requests = "requests of a token to one server process (`KERNELWRIGHT_REQUESTS_A_MINUTE`; 0 for none)"
    assert limits_of(ACCESS) == {
        "limit": "value",
        "---": "---",
        requests: f"{Settings.model_fields['requests_a_minute'].default} a minute",
        "requests from an address with tokens that are not valid": f"{FAILURES_A_MINUTE} a minute",
        "a browser's session": f"{LIFETIME_S // 3600} hours",
        "body of a request": f"{MAX_BODY_BYTES // 1024**2} MiB, within {BODY_TIMEOUT_S:.0f} s",
        "file with weights": f"{MAX_FILE_BYTES >> 30} GiB, within {BODY_TIMEOUT_S:.0f} s and what"
        f" {SLOWEST_BYTES_A_S >> 10} KiB/s take; {UPLOADS_AT_ONCE} at a time, one from each user",
        "weights that are kept for a user (`KERNELWRIGHT_WEIGHTS_MB`)": (
            f"{Settings.model_fields['weights_mb'].default} MiB"
        ),
        "body of a login": f"{MAX_LOGIN_BYTES // 1024} KiB",
        "head of a request, after the connection or the last response": f"{REQUEST_TIMEOUT_S:.0f} s",
        "reading a response": f"{READ_TIMEOUT_S:.0f} s",
    }


def test_every_role_is_explained():
    assert re.findall(r"^\| ([a-z]+) \|", ACCESS.partition("## Quotas")[0], flags=re.MULTILINE) == ["role", *Role]
