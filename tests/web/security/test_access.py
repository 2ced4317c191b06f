"""Who may do what: tokens, roles, quotas, limits, sessions, and requests that other sites' pages send."""

import logging
import re
from datetime import timedelta

import pytest
from sqlalchemy import text as sql

from agents.llm.models import import_litellm
from db import engine
from db.jobs import batches, jobs, model_runs
from db.tables import AuditRow, TokenRow
from db.types import utc_now
from service.jobs.query import cancel_job
from service.submissions import quotas
from service.submissions.access import create_token, list_tokens, revoke_token
from tests.support.seeded_store import Seeded, model_jobs, model_run
from tests.support.web_application import OP, add_done_job, opened
from web.pages.login import local_path
from web.security.rate_limit import TokenBuckets
from web.security.sessions import COOKIE

API = "/api/v1"
JOB = {"task": "starter/rmsnorm_gelu"}


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path, login=True) as web:
        yield web


def detail(response, status):
    assert response.status_code == status, response.text
    return response.json()["detail"]


def test_without_a_token_nothing_but_health_is_answered(web):
    client = web.client()
    assert client.get(f"{API}/health/live").status_code == 200
    for path in ("/jobs", "/tasks", "/leaderboard", "/devices", "/me", "/jobs/1/events", "/batches"):
        response = client.get(API + path)
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
    assert client.get("/metrics").status_code == 401


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer kw_wrong", "Basic a2V5", "bearer\tx", "Bearer " + "x" * 5000, "kw_x"]
)
def test_what_is_no_token_opens_nothing(web, header):
    assert web.client().get(f"{API}/me", headers={"Authorization": header}).status_code == 401


def test_only_the_hash_of_a_token_is_stored(web):
    secret = web.token()
    with web.store.read() as session:
        row = session.query(TokenRow).one()
        assert re.fullmatch("[0-9a-f]{64}", row.hash)
        assert all(secret not in str(value) for value in vars(row).values())
    assert re.fullmatch(r"kw_[A-Za-z0-9_-]{43}", secret)


def test_making_and_revoking_a_token_is_in_the_audit_log(web):
    secret = web.token(user="ada")
    revoke_token(web.store, 1, actor="root", reason="left")
    revoke_token(web.store, 1, actor="root", reason="left again")
    with web.store.read() as session:
        rows = session.query(AuditRow).order_by(AuditRow.id).all()
    assert [(row.action, row.subject, row.actor, row.reason) for row in rows] == [
        ("token.create", "token/1", "local", ""),
        ("token.revoke", "token/1", "root", "left"),
    ]
    assert secret not in str([row.data for row in rows])


def test_a_revoked_token_opens_nothing(web):
    client = web.client(web.token())
    assert client.get(f"{API}/me").status_code == 200
    revoke_token(web.store, 1)
    assert "revoked" in detail(client.get(f"{API}/me"), 401)


def test_an_expired_token_opens_nothing(web):
    client = web.client(web.token(days=1))
    assert client.get(f"{API}/me").status_code == 200
    with web.store.write() as session:
        session.get(TokenRow, 1).expires_at = utc_now() - timedelta(seconds=1)
    assert "expired" in detail(client.get(f"{API}/me"), 401)


def test_a_tokens_use_is_noted_at_most_once_a_minute(web):
    client = web.client(web.token())
    client.get(f"{API}/me")
    first = list_tokens(web.store)[0].last_used_at
    client.get(f"{API}/me")
    assert first is not None
    assert list_tokens(web.store)[0].last_used_at == first


def test_a_viewer_reads_and_changes_nothing(web):
    job = add_done_job(web.store)
    client = web.client(web.token("viewer"))
    assert client.get(f"{API}/jobs/{job}").status_code == 200
    for path, body in (
        ("/jobs", JOB),
        ("/tasks/check", {"source": OP}),
        (f"/jobs/{job}/cancel", None),
        (f"/jobs/{job}/resume", None),
        (f"/jobs/{job}/candidates/{'a' * 64}/evaluations", None),
        ("/batches", {"tasks": ["starter"]}),
        (f"/evaluations/evaluation-{job}-1/retract", {"reason": "x"}),
    ):
        assert "role" in detail(client.post(API + path, json=body), 403)


def test_a_submitter_changes_his_own_jobs_only(web):
    ada, bob = web.client(web.token("submitter", "ada")), web.client(web.token("submitter", "bob"))
    job = ada.post(f"{API}/jobs", json=JOB).json()["id"]
    assert "another user's" in detail(bob.post(f"{API}/jobs/{job}/cancel"), 403)
    assert ada.post(f"{API}/jobs/{job}/cancel").json()["status"] == "cancelled"
    assert "another user's" in detail(bob.post(f"{API}/jobs/{job}/resume"), 403)
    assert ada.post(f"{API}/jobs/{job}/resume").status_code == 200
    root = web.client(web.token("operator", "root"))
    assert root.post(f"{API}/jobs/{job}/cancel").status_code == 200


def test_a_submitters_batch_is_not_anothers_to_stop(web):
    ada, bob = web.client(web.token("submitter", "ada")), web.client(web.token("submitter", "bob"))
    batch = ada.post(f"{API}/batches", json={"tasks": ["starter/rmsnorm_gelu"]}).json()["id"]
    detail(bob.post(f"{API}/batches/{batch}/cancel"), 403)
    detail(bob.post(f"{API}/batches/{batch}/resume"), 403)
    assert ada.post(f"{API}/batches/{batch}/cancel").status_code == 200


def test_high_priority_and_retractions_are_for_operators(web):
    job = add_done_job(web.store)
    client = web.client(web.token("submitter"))
    assert "operator" in detail(client.post(f"{API}/jobs", json={**JOB, "priority": "high"}), 403)
    assert "operator" in detail(client.post(f"{API}/batches", json={"tasks": ["starter"], "priority": "high"}), 403)
    assert "operator" in detail(client.post(f"{API}/evaluations/evaluation-{job}-1/retract", json={"reason": "x"}), 403)


def test_a_submitter_spends_on_allowed_models_only(tmp_path):
    with opened(tmp_path, login=True, models="openai/gpt-*, anthropic/good") as web:
        client = web.client(web.token("submitter"))
        ask = lambda **body: client.post(f"{API}/jobs", json={**JOB, **body})  # noqa: E731
        assert ask(model="openai/gpt-5").status_code == 201
        assert ask(model="anthropic/good").status_code == 201
        assert "not among those allowed" in detail(ask(model="openai/o-dear"), 403)
        assert "not among those allowed" in detail(ask(model="openai/gpt-5", judge_model="groq/x"), 403)
        assert "not among those allowed" in detail(
            client.post(f"{API}/batches", json={"tasks": ["starter"], "models": ["groq/x"]}), 403
        )
        assert client.get(f"{API}/me").json()["models"] == ["builtin/compiler", "openai/gpt-*", "anthropic/good"]
        assert web.client(web.token("operator")).post(f"{API}/jobs", json={**JOB, "model": "groq/x"}).status_code == 201


def test_the_servers_address_and_key_stay_with_its_own_provider(tmp_path):
    key = tmp_path / "key"
    key.write_text("sk-secret")
    with opened(
        tmp_path, login=True, model="openai/own", api_base="http://inside", api_key_file=key, models="*"
    ) as web:
        client = web.client(web.token("submitter"))
        own = client.post(f"{API}/jobs", json=JOB).json()["id"]
        other = client.post(f"{API}/jobs", json={**JOB, "model": "anthropic/x"}).json()["id"]
        with web.store.read() as session:
            assert jobs.get_job(session, own).options["api_base"] == "http://inside"
            foreign = jobs.get_job(session, other).options
        assert (foreign["api_base"], foreign.get("api_key_file")) == (None, None)


def test_the_servers_address_and_key_stay_with_its_own_provider_in_batches_too(tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_text("sk-secret")
    monkeypatch.setenv("KERNELWRIGHT_API_BASE", "http://inside")
    monkeypatch.setenv("KERNELWRIGHT_API_KEY_FILE", str(key))
    with opened(tmp_path, login=True, model="openai/own", models="*") as web:
        client = web.client(web.token("submitter"))
        batch = {"tasks": [JOB["task"]], "models": ["openai/own", "anthropic/x"]}
        batch_id = client.post(f"{API}/batches", json=batch).json()["id"]
        with web.store.read() as session:
            kept = {job.model: job.options for job in jobs.list_jobs(session, batch_id=batch_id)}
    assert (kept["openai/own"]["api_base"], kept["openai/own"]["api_key_file"]) == ("http://inside", str(key))
    assert (kept["anthropic/x"]["api_base"], kept["anthropic/x"].get("api_key_file")) == (None, None)


def test_a_batch_is_told_nothing_of_the_servers_key_file(tmp_path):
    with opened(tmp_path, login=True, model="openai/own", api_key_file=tmp_path / "missing") as web:
        client = web.client(web.token("submitter"))
        answer = client.post(f"{API}/batches", json={"tasks": [JOB["task"]], "models": ["openai/own"]})
    assert answer.status_code == 201
    assert "missing" not in answer.text


def test_what_an_operator_does_to_the_work_of_others_is_in_the_audit_log(web):
    ada, op = web.client(web.token("submitter")), web.client(web.token("operator", "olga"))
    job = ada.post(f"{API}/jobs", json=JOB).json()["id"]
    batch = ada.post(f"{API}/batches", json={"tasks": ["starter/rmsnorm_gelu"]}).json()["id"]
    lines = lambda: [  # noqa: E731
        (line["actor"], line["action"], line["subject"], line["data"])
        for line in op.get(f"{API}/audit").json()["lines"]
        if not line["action"].startswith("token.")
    ][::-1]
    for act in ("cancel", "resume"):
        for path in (f"jobs/{job}", f"batches/{batch}"):
            assert ada.post(f"{API}/{path}/{act}").status_code == 200
    assert lines() == []
    for act in ("cancel", "cancel", "resume", "cancel"):  # the second finds nothing to change
        for path in (f"jobs/{job}", f"batches/{batch}"):
            assert op.post(f"{API}/{path}/{act}").status_code == 200
    by_olga = [
        ("olga", f"{kind}.{act}", f"{kind}/{number}", {"user": "ada"})
        for act in ("cancel", "resume", "cancel")
        for kind, number in (("job", job), ("batch", batch))
    ]
    assert lines() == by_olga
    cancel_job(web.store, ada.post(f"{API}/jobs", json=JOB).json()["id"])
    assert lines()[-1][:2] == ("local", "job.cancel")


def test_so_many_jobs_at_once_and_no_more(web):
    client = web.client(web.token("submitter", max_jobs=2))
    first = client.post(f"{API}/jobs", json=JOB).json()["id"]
    assert client.post(f"{API}/jobs", json=JOB).status_code == 201
    response = client.post(f"{API}/jobs", json=JOB)
    assert "2 jobs at once" in detail(response, 403)
    assert response.json()["type"] == "/problems/quota"
    detail(client.post(f"{API}/batches", json={"tasks": ["starter/rmsnorm_gelu"]}), 403)
    client.post(f"{API}/jobs/{first}/cancel")
    assert client.post(f"{API}/jobs", json=JOB).status_code == 201
    assert "2 jobs at once" in detail(client.post(f"{API}/jobs/{first}/resume"), 403)


def test_a_full_quota_is_no_fault_in_the_log(web, caplog):
    client = web.client(web.token("submitter", max_jobs=0))
    detail(client.post(f"{API}/jobs", json=JOB), 403)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_so_many_dollars_a_day_counting_the_worst_of_what_runs(tmp_path):
    with opened(tmp_path, login=True, models="openai/*") as web:
        client = web.client(web.token("submitter", max_usd_a_day=10.0))
        ask = lambda **body: client.post(f"{API}/jobs", json={**JOB, "model": "openai/gpt-5", **body})  # noqa: E731
        assert "needs a budget_usd" in detail(ask(), 403)
        first = ask(budget_usd=6).json()["id"]
        assert "$4.00 are left" in detail(ask(budget_usd=5), 403)
        assert ask(budget_usd=4).status_code == 201
        assert client.post(f"{API}/jobs", json=JOB).status_code == 201  # the built-in model costs nothing
        client.post(f"{API}/jobs/{first}/cancel")  # it had spent nothing
        assert ask(budget_usd=6).status_code == 201


def test_a_run_over_a_model_cannot_spend_more_by_another_total_of_its_regions(tmp_path):
    with opened(tmp_path, login=True, models="openai/*") as web:
        made = Seeded(web.store)
        run = model_run(made, "net")
        model_jobs(made, "net", {"r02_rms_norm": ""})
        with web.store.read() as session:
            regions = model_runs.batch_of(session, run)
        limited = web.client(web.token("submitter", user="ada", max_usd_a_day=10.0))
        answer = limited.post(f"{API}/batches/{regions}/resume", json={"budget_usd": 100_000})
        assert f"the budget_usd of model run {run}" in detail(answer, 403)
        with web.store.read() as session:
            assert batches.get_batch(session, regions).budget_usd == 3.0
        assert limited.post(f"{API}/batches/{regions}/resume", json={}).status_code == 200
        free = web.client(web.token("submitter", user="ada"))
        assert free.post(f"{API}/batches/{regions}/resume", json={"budget_usd": 4}).status_code == 200


def test_a_plan_of_a_model_that_waits_leaves_all_dollars_of_the_day(tmp_path):
    with opened(tmp_path, login=True, models="openai/*") as web:
        client = web.client(web.token("submitter", max_usd_a_day=10.0))
        paid = {"model": "openai/gpt-5"}
        plan = client.post(f"{API}/models", json={"source": OP, "plan_only": True, **paid})
        assert plan.status_code == 201, plan.text
        assert "$10.00 are left" in detail(client.post(f"{API}/jobs", json={**JOB, **paid, "budget_usd": 11}), 403)
        assert client.post(f"{API}/jobs", json={**JOB, **paid, "budget_usd": 10}).status_code == 201


def test_a_price_is_for_operators_to_set(tmp_path):
    with opened(tmp_path, login=True, models="openai/*") as web:
        client = web.client(web.token("submitter"))
        batch = {"tasks": ["starter/rmsnorm_gelu"], "job": {"price": "0,0"}}
        assert "an operator's to set" in detail(client.post(f"{API}/jobs", json={**JOB, "price": "0,0"}), 403)
        assert "an operator's to set" in detail(client.post(f"{API}/batches", json=batch), 403)
        operator = web.client(web.token("operator"))
        assert operator.post(f"{API}/jobs", json={**JOB, "price": "1,2"}).status_code == 201
        assert operator.post(f"{API}/batches", json=batch).status_code == 201


@pytest.mark.parametrize(("price", "status"), [(None, 403), ("5,15", 201)])
def test_dollars_a_day_need_a_price_that_is_known(tmp_path, price, status):
    with opened(tmp_path, login=True, models="openai/*", price=price) as web:
        client = web.client(web.token("submitter", max_usd_a_day=10.0))
        ours = {"model": "openai/our-70b", "budget_usd": 1.0}
        answer = client.post(f"{API}/jobs", json={**JOB, **ours})
        assert answer.status_code == status, answer.text
        assert status == 201 or "no price of model 'openai/our-70b' is known" in detail(answer, 403)
        batch = {"tasks": [JOB["task"]], "models": [ours["model"]], "job": {"budget_usd": 1.0}}
        assert client.post(f"{API}/batches", json=batch).status_code == status
        judged = {"model": "openai/gpt-4o", "judge_model": "openai/our-70b", "budget_usd": 1.0}
        assert client.post(f"{API}/jobs", json={**JOB, **judged}).status_code == status


def test_nobody_waits_while_prices_are_looked_up(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 1.0)
    with opened(tmp_path, login=True, models="openai/*") as web:
        looked = []

        def import_slowly():
            with web.store.write() as session:  # would wait for a transaction of ours without end
                session.execute(sql("UPDATE jobs SET attempt = attempt"))
            looked.append(import_litellm())
            return looked[-1]

        monkeypatch.setattr(quotas, "import_litellm", import_slowly)
        client = web.client(web.token("submitter", max_usd_a_day=10.0))
        paid = {"model": "openai/gpt-4o", "budget_usd": 1.0}
        job = client.post(f"{API}/jobs", json={**JOB, **paid})
        batch = {"tasks": [JOB["task"]], "models": [paid["model"]], "job": {"budget_usd": 1.0}}
        made = client.post(f"{API}/batches", json=batch)
        assert (job.status_code, made.status_code) == (201, 201), (job.text, made.text)
        client.post(f"{API}/jobs/{job.json()['id']}/cancel")
        client.post(f"{API}/batches/{made.json()['id']}/cancel")
        assert client.post(f"{API}/jobs/{job.json()['id']}/resume").status_code == 200
        assert client.post(f"{API}/batches/{made.json()['id']}/resume").status_code == 200
        assert len(looked) == 4


def test_requests_a_minute_are_limited_for_each_token(tmp_path):
    with opened(tmp_path, login=True, requests_a_minute=3) as web:
        ada, bob = web.client(web.token(user="ada")), web.client(web.token(user="bob"))
        assert [ada.get(f"{API}/me").status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = ada.get(f"{API}/me")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert bob.get(f"{API}/me").status_code == 200


def test_guessing_tokens_is_limited_and_good_tokens_still_work(web):
    good = web.client(web.token())
    bad = web.client("kw_guess")
    statuses = [bad.get(f"{API}/me").status_code for _ in range(25)]
    assert statuses[:20] == [401] * 20
    assert statuses[-1] == 429
    assert good.get(f"{API}/me").status_code == 200


def test_a_bucket_fills_again():
    now = [0.0]
    bucket = TokenBuckets(60, clock=lambda: now[0])
    assert [bucket.take("a") for _ in range(60)] == [None] * 60
    assert bucket.take("a") == pytest.approx(1.0)
    now[0] += 1.0
    assert bucket.take("a") is None
    assert bucket.take("a") is not None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]", "a:b:c"])
def test_on_loopback_other_names_are_not_answered_to(tmp_path, host):
    with opened(tmp_path) as web:
        assert web.client().get(f"{API}/me", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1", "[::1]:1", "LOCALHOST"])
def test_on_loopback_its_own_names_need_no_login(tmp_path, host):
    with opened(tmp_path) as web:
        assert web.client().get(f"{API}/me", headers={"Host": host}).json()["role"] == "operator"


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Server", "Forwarded", "Via", "X-Real-IP", "CF-Ray"]
)
def test_a_proxy_before_a_server_without_login_is_refused(tmp_path, header):
    with opened(tmp_path) as web:
        response = web.client().get(f"{API}/me", headers={header: "203.0.113.5"})
        assert "--login" in detail(response, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8765"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://[bad"},
    ],
)
def test_what_another_sites_page_sends_is_refused(tmp_path, headers):
    with opened(tmp_path) as web:
        response = web.client().post(f"{API}/jobs", json=JOB, headers=headers)
        assert response.status_code == 403
        assert response.json()["type"] == "/problems/cross-site"
        assert web.client().get(f"{API}/jobs").json()["jobs"] == []


def test_what_its_own_page_sends_is_done(tmp_path):
    with opened(tmp_path) as web:
        own = {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
        assert web.client().post(f"{API}/jobs", json=JOB, headers=own).status_code == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_cannot_stand_in_for_json(tmp_path, kind):
    with opened(tmp_path) as web:
        content = b'{"task": "starter/rmsnorm_gelu"}'
        response = web.client().post(f"{API}/jobs", content=content, headers={"Content-Type": kind})
        assert response.status_code in (415, 422)
        assert web.client().get(f"{API}/jobs").json()["jobs"] == []


def logged_in(web, role="operator"):
    client = web.client()
    response = client.post("/login", data={"token": web.token(role), "next": "/jobs"})
    assert (response.status_code, response.headers["location"]) == (303, "/jobs")
    return client, response


def csrf(client, web):
    from starlette.requests import Request

    from web.security.sessions import csrf_token

    cookie = f"{COOKIE}={client.cookies[COOKIE]}"
    scope = {
        "type": "http",
        "scheme": "http",
        "path": "/",
        "query_string": b"",
        "server": ("127.0.0.1", 8765),
        "headers": [(b"cookie", cookie.encode())],
    }
    return csrf_token(Request(scope), web.app.state.dependencies.session_key)


def test_a_browser_logs_in_once_and_its_cookie_stands_for_the_token(web):
    client, response = logged_in(web)
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "kw_" not in cookie
    assert client.get(f"{API}/me").json()["user"] == "ada"


def test_behind_https_the_cookie_is_secure(web):
    client = web.client(base_url="https://kernels.example.com")
    cookie = client.post("/login", data={"token": web.token()}).headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie
    assert "max-age" in client.get(f"{API}/health/live").headers["strict-transport-security"]


def test_a_wrong_token_logs_nobody_in(web):
    response = web.client().post("/login", data={"token": "kw_no"})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


def test_a_session_ends_with_its_token(web):
    client, _ = logged_in(web)
    revoke_token(web.store, 1)
    assert client.get(f"{API}/me").status_code == 401


def test_a_session_ends_with_time(web, monkeypatch):
    client, _ = logged_in(web)
    monkeypatch.setattr("web.security.sessions.time.time", lambda: 4e9)
    assert client.get(f"{API}/me").status_code == 401


def test_a_session_changes_things_only_with_its_pages_token(web):
    client, _ = logged_in(web)
    assert "X-CSRF-Token" in detail(client.post(f"{API}/jobs", json=JOB), 403)
    detail(client.post(f"{API}/jobs", json=JOB, headers={"X-CSRF-Token": "x"}), 403)
    assert client.post(f"{API}/jobs", json=JOB, headers={"X-CSRF-Token": csrf(client, web)}).status_code == 201


def test_logging_out_needs_the_pages_token_and_ends_the_session(web):
    client, _ = logged_in(web)
    assert client.post("/logout").status_code == 403
    assert client.post("/logout", data={"csrf_token": csrf(client, web)}).status_code == 303
    assert client.get(f"{API}/me").status_code == 401


@pytest.mark.parametrize(
    "forge",
    [
        lambda value: "1.9999999999.x." + "A" * 43,
        lambda value: value.replace("1.", "2.", 1),
        lambda value: value[:-2] + "xx",
        lambda value: value.rpartition(".")[0],
        lambda value: "",
        lambda value: "." * 30,
        lambda value: "x" * 4000,
        lambda value: "1.1.1.1.1.1",
    ],
)
def test_a_forged_cookie_opens_nothing(web, forge):
    client, _ = logged_in(web)
    forged = forge(client.cookies[COOKIE])
    response = web.client().get(f"{API}/me", headers={"Cookie": f"{COOKIE}={forged}"})
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/jobs/7?x=1", "/jobs/7?x=1"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_after_logging_in_one_stays_on_this_server(target, path):
    assert local_path(target) == path


def test_every_answer_carries_the_headers_that_protect_browsers(web):
    client = web.client(web.token())
    for path in (f"{API}/me", f"{API}/nothing", "/static/none.js", "/login", "/metrics", f"{API}/jobs/x"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert "x-request-id" in headers
    assert client.get(f"{API}/me").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
def test_static_files_are_those_of_the_folder_alone(web, path):
    response = web.client(web.token()).get(path)
    assert response.status_code == 404
    assert "create_app" not in response.text


def test_bodies_are_bounded_also_where_their_length_is_not_told(web):
    client = web.client(web.token())
    big = b'{"source": "' + b"x" * (3 * 1024 * 1024) + b'"}'
    headers = {"Content-Type": "application/json"}
    assert client.post(f"{API}/jobs", content=big, headers=headers).status_code == 413
    pieces = (big[begin : begin + 65536] for begin in range(0, len(big), 65536))
    response = client.post(f"{API}/jobs", content=pieces, headers=headers)
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert client.post("/login", content=big).status_code == 413


def test_compressed_bodies_are_not_unpacked(web):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert web.client(web.token()).post(f"{API}/jobs", content=b"\x1f\x8b", headers=headers).status_code == 415


def test_an_op_within_the_body_is_bounded_too(web):
    source = OP + "#" * (300 * 1024)
    assert "KiB" in detail(web.client(web.token()).post(f"{API}/jobs", json={"source": source}), 422)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "../../x", "a\x00b", "x" * 200, "", "ünï"])
def test_hostile_names_are_refused_and_never_come_back_as_markup(web, name):
    response = web.client(web.token()).post(f"{API}/jobs", json={"source": OP, "name": name})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"1e999999", b'"\\ud800"', b""])
def test_bodies_that_are_no_json_are_a_422(web, content):
    client = web.client(web.token())
    response = client.post(f"{API}/jobs", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_lone_surrogate_in_an_op_is_a_problem_and_no_fault(web):
    client = web.client(web.token())
    body = b'{"source": "x = 1 # \\ud800", "name": "op"}'
    response = client.post(f"{API}/jobs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422


def test_no_secret_is_in_any_answer_or_log_line(tmp_path, monkeypatch, caplog):
    key, token_setting = "sk-test-9f8e7d6c5b4a", "kw_setting_0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", token_setting)
    caplog.set_level(logging.DEBUG)
    seen = []
    with opened(tmp_path, login=True, database_url=None) as web:
        job = add_done_job(web.store)
        _, secret = create_token(web.store, name="ada", role="operator")
        clients = [web.client(secret), web.client("kw_" + "A" * 43), web.client()]
        paths = [path for path, item in web.app.openapi()["paths"].items() if "get" in item]
        for client in clients:
            for path in [*paths, "/metrics", "/login", "/nothing", f"{API}/openapi.json"]:
                if path.endswith("/events"):
                    continue
                path = path.replace("{job_id}", str(job)).replace("{candidate_hash}", "a" * 64)
                path = path.replace("{evaluation_id}", f"evaluation-{job}-1").replace("{batch_id}", "1")
                path = path.replace("{suite}", "local").replace("{name}", "relu")
                response = client.get(path)
                seen.append(f"{response.headers}{response.text}")
            seen.append(client.post("/login", data={"token": "kw_" + "B" * 43}).text)
            seen.append(client.post(f"{API}/jobs", json={**JOB, "rounds": 0}).text)
            seen.append(client.post(f"{API}/jobs", json=JOB).text)
        login = web.client().post("/login", data={"token": secret})
        seen.append(f"{login.headers}{login.text}")
    seen += [record.getMessage() + str(vars(record)) for record in caplog.records if record.name.startswith("web")]
    assert len(seen) > 50
    for text in seen:
        for hidden in (key, token_setting, secret, "A" * 43, "B" * 43, "/secret/key"):
            assert hidden not in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "a b"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "ada", "user": "local"}, "local"),
        ({"name": "ada", "role": "root"}, "--role"),
        ({"name": "ada", "days": 0}, "--days"),
        ({"name": "ada", "max_jobs": -1}, "--max-jobs"),
        ({"name": "ada", "max_usd_a_day": float("nan")}, "--max-usd-a-day"),
    ],
)
def test_tokens_that_make_no_sense_are_not_made(web, given, words):
    from service.errors import BadRequest

    with pytest.raises(BadRequest, match=words):
        create_token(web.store, **given)
