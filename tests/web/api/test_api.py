"""The API's use cases, against the real application and a real store."""

import json

import pytest

from db.evaluations import results
from db.jobs import jobs
from db.jobs.jobs import set_spent
from db.records import JobStatus, Measurements
from service.batches.manage import start_batch
from service.batches.spec import make_spec
from service.cli.remote.models import read_archive
from tests.support import seeded_store
from tests.support.boards import Board
from tests.support.web_application import CANDIDATE, HASHES, OP, OTHER, add_done_job, opened

API = "/api/v1"


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path) as web:
        yield web


@pytest.fixture
def client(web):
    with web.client() as client:
        yield client


def submit(client, **body):
    return client.post(f"{API}/jobs", json={"task": "starter/rmsnorm_gelu", **body})


def problem(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["title"] and body["detail"] and body["instance"]
    assert body["request_id"] == response.headers["x-request-id"]
    return body


def test_a_job_for_a_built_in_task_is_queued_with_what_was_asked_for(client, web):
    response = submit(client, rounds=3, budget_s=60, priority="high")
    assert response.status_code == 201
    job = response.json()
    assert response.headers["location"] == f"{API}/jobs/{job['id']}"
    assert (job["status"], job["user"], job["priority"]) == ("queued", "local", -1)
    assert job["options"]["rounds"] == 3
    with web.store.read() as session:
        assert jobs.get_job(session, job["id"]).options["budget_s"] == 60


def test_a_job_for_ones_own_op_keeps_its_source(client):
    job = client.post(f"{API}/jobs", json={"source": OP, "name": "relu"}).json()
    task = client.get(f"{API}/tasks/local/relu").json()
    assert job["task"]["ref"] == "local/relu"
    assert task["source_hash"] == job["task"]["source_hash"]
    assert "torch.relu(x)" in task["source"]
    stored = client.get(f"{API}/tasks", params={"origin": "stored"}).json()["tasks"]
    assert [entry["task"] for entry in stored] == ["local/relu"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("api_base", "http://attacker.example"),
        ("api_key_file", "/etc/shadow"),
        ("image", "evil:latest"),
        ("sandbox", "process"),
        ("out", "/tmp/x.py"),
        ("user", "someone"),
        ("database_url", "sqlite:////tmp/x.db"),
    ],
)
def test_what_reaches_into_the_server_cannot_be_set(client, option, value):
    body = problem(submit(client, **{option: value}), 422)
    assert body["errors"][0] == {"field": f"body.{option}", "message": "Extra inputs are not permitted", "value": value}


def test_the_servers_own_settings_hold_where_nothing_is_asked(tmp_path):
    with opened(tmp_path, rounds=2, budget_usd=3.0) as web, web.client() as client:
        options = submit(client).json()["options"]
        assert (options["rounds"], options["budget_usd"]) == (2, 3.0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "manual/inbox"}, "works with files"),
        ({"model": "builtin/best"}, "built in: builtin/compiler"),
        ({"judge_model": "builtin/best"}, "built in: builtin/compiler"),
        ({"strategy": "contrastive"}, "needs a language model"),
        ({"platform": "nothing"}, "platform"),
    ],
)
def test_what_no_worker_could_do_is_refused_with_a_reason(client, body, words):
    assert words in problem(submit(client, **body), 422)["detail"]


@pytest.mark.parametrize("ref", ["starter/nothing", "local/relu", "nothing/at_all"])
def test_a_task_that_is_not_known_is_refused(client, ref):
    assert "no such task" in problem(client.post(f"{API}/jobs", json={"task": ref}), 422)["detail"]


@pytest.mark.parametrize(
    "ref", ["../../etc/passwd", "/etc/passwd", "tests/support/web_application.py", "a/b.py", "starter/../x"]
)
def test_a_reference_never_names_a_file_of_the_server(client, ref):
    body = problem(client.post(f"{API}/jobs", json={"task": ref}), 422)
    assert "root:" not in json.dumps(body)
    assert "no such task" in body["detail"] or body["errors"][0]["field"] == "body.task"


def test_an_invalid_value_is_named_with_its_field(client):
    errors = problem(submit(client, rounds=0), 422)["errors"]
    assert errors == [{"field": "body.rounds", "message": "Input should be greater than or equal to 1", "value": "0"}]


def test_an_op_is_checked_by_reading_it(client):
    good = client.post(f"{API}/tasks/check", json={"source": OP}).json()
    bad = client.post(f"{API}/tasks/check", json={"source": "import os\nos.abort()\n"}).json()
    assert (good["ok"], good["dtype"]) == (True, "float32")
    assert bad["ok"] is False
    assert "get_inputs" in bad["message"]


def test_the_same_key_and_request_queue_one_job(client):
    first = client.post(f"{API}/jobs", json={"source": OP}, headers={"Idempotency-Key": "k1"})
    again = client.post(f"{API}/jobs", json={"source": OP}, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json()["id"] == again.json()["id"]
    assert len(client.get(f"{API}/jobs").json()["jobs"]) == 1


def test_the_same_key_with_another_request_is_refused(client):
    submit(client, rounds=2).raise_for_status()
    client.post(f"{API}/jobs", json={"source": OP}, headers={"Idempotency-Key": "k1"}).raise_for_status()
    other = client.post(f"{API}/jobs", json={"source": OP, "rounds": 2}, headers={"Idempotency-Key": "k1"})
    assert "another request" in problem(other, 409)["detail"]


def test_jobs_are_listed_newest_first_page_by_page(client):
    ids = [submit(client).json()["id"] for _ in range(5)]
    seen, cursor = [], None
    while True:
        page = client.get(f"{API}/jobs", params={"limit": 2} | ({} if cursor is None else {"cursor": cursor})).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_jobs_are_filtered(client, web):
    add_done_job(web.store, user="ada")
    queued = submit(client).json()["id"]
    of = lambda **query: [job["id"] for job in client.get(f"{API}/jobs", params=query).json()["jobs"]]  # noqa: E731
    assert of(status="queued") == [queued]
    assert of(task="local/relu") == [1]
    assert of(model="openai/none") == []


def test_a_job_that_waits_is_cancelled_and_resumed(client):
    job = submit(client).json()["id"]
    assert client.post(f"{API}/jobs/{job}/cancel").json()["status"] == "cancelled"
    resumed = client.post(f"{API}/jobs/{job}/resume").json()
    assert (resumed["status"], resumed["attempt"]) == ("queued", 2)
    assert "queued already" in problem(client.post(f"{API}/jobs/{job}/resume"), 409)["detail"]


def test_a_job_that_is_done_is_not_resumed(client, web):
    job = add_done_job(web.store)
    assert "done" in problem(client.post(f"{API}/jobs/{job}/resume"), 409)["detail"]


def test_a_done_job_is_shown_with_its_best_and_without_the_servers_secrets(client, web):
    job = add_done_job(web.store)
    whole = client.get(f"{API}/jobs/{job}")
    assert whole.json()["schema"] == "kernelwright.job/1"
    assert whole.json()["best"]["verdict"] == "passed"
    assert "http://inside" not in whole.text
    assert "/secret/key" not in whole.text


def test_the_best_kernel_is_exported_as_one_file(client, web):
    response = client.get(f"{API}/jobs/{add_done_job(web.store)}/export")
    assert response.headers["content-type"].startswith("text/x-python")
    assert "attachment" in response.headers["content-disposition"]
    assert response.text.startswith("# Written by Kernelwright")
    assert response.text.endswith(CANDIDATE)


def test_without_a_passed_candidate_there_is_nothing_to_export(client):
    job = submit(client).json()["id"]
    problem(client.get(f"{API}/jobs/{job}/export"), 409)
    problem(client.get(f"{API}/jobs/{job}/report"), 409)


def test_candidates_are_listed_shown_and_compared(client, web):
    job = add_done_job(web.store)
    listed = client.get(f"{API}/jobs/{job}/candidates").json()["candidates"]
    assert [(entry["hash"], entry["evaluation"]["verdict"]) for entry in listed] == [
        (HASHES[0], "passed"),
        (HASHES[1], "wrong_output"),
    ]
    assert client.get(f"{API}/jobs/{job}/candidates/{HASHES[1]}").json()["source"] == OTHER
    diff = client.get(f"{API}/jobs/{job}/candidates/{HASHES[1]}/diff", params={"against": HASHES[0]})
    assert "-        return x.clamp(min=0)" in diff.text
    assert "+        return x.clamp_min(0)" in diff.text
    problem(client.get(f"{API}/jobs/{job}/candidates/{'c' * 64}"), 404)


def test_a_candidate_is_queued_for_another_evaluation_with_its_source(client, web):
    job = add_done_job(web.store)
    response = client.post(f"{API}/jobs/{job}/candidates/{HASHES[0]}/evaluations")
    new = response.json()
    assert (response.status_code, new["kind"], new["status"]) == (201, "evaluate", "queued")
    assert new["options"] == {"candidate_hash": HASHES[0], "of_job": job, "sandbox": "docker"}
    kept = client.get(f"{API}/jobs/{new['id']}/candidates/{HASHES[0]}").json()
    assert kept["source"] == CANDIDATE
    again = client.post(f"{API}/jobs/{new['id']}/candidates/{HASHES[0]}/evaluations").json()
    assert again["options"] == new["options"]


def test_a_candidate_that_is_measured_again_is_still_its_models(client, web):
    job = add_done_job(web.store)
    before = client.get(f"{API}/leaderboard").json()["entries"]
    new = client.post(f"{API}/jobs/{job}/candidates/{HASHES[0]}/evaluations").json()
    assert new["model"] == "builtin/compiler"
    with web.store.write() as session:
        candidate = results.add_candidate(session, new["id"], round_number=0, candidate_hash=HASHES[0], source="")
        results.add_evaluation(
            session, "again", candidate_id=candidate, round_number=0, platform="cpu", device="CPU A", sandbox="docker",
            verdict="passed", code=None, message="", tags=["custom_kernel"], result={},
            measurements=Measurements(speedup=1.5, speedup_low=1.4, speedup_high=1.6),
        )  # fmt: skip
    (entry,) = client.get(f"{API}/leaderboard").json()["entries"]
    assert (entry["model"], entry["evaluations"]) == ("builtin/compiler", before[0]["evaluations"] + 1)
    assert (entry["job_id"], entry["evaluation_id"]) == (before[0]["job_id"], "again")
    assert (before[0]["pooled"], entry["pooled"]) == (1, 2)
    assert 1.5 < entry["speedup"] < before[0]["speedup"]
    shown = client.get(f"{API}/jobs/{job}").json()
    assert f"{entry['speedup']:.3f} over eager" in shown["on_leaderboard"]
    assert "by 2 evaluations, pooled." in shown["on_leaderboard"]
    exported = client.get(f"{API}/jobs/{job}/export").text
    assert f"# {shown['on_leaderboard']}" in exported
    assert shown["on_leaderboard"] in client.get(f"{API}/jobs/{job}/report").text


def test_a_candidate_that_was_found_wrong_when_measured_again_leaves_the_leaderboard(client, web):
    job = add_done_job(web.store)
    new = client.post(f"{API}/jobs/{job}/candidates/{HASHES[0]}/evaluations").json()
    with web.store.write() as session:
        candidate = results.add_candidate(session, new["id"], round_number=0, candidate_hash=HASHES[0], source="")
        results.add_evaluation(
            session, "again", candidate_id=candidate, round_number=0, platform="cpu", device="CPU A", sandbox="docker",
            verdict="wrong_output", code="values", message="", tags=[], result={}, measurements=Measurements(),
        )  # fmt: skip
    (entry,) = client.get(f"{API}/leaderboard").json()["entries"]
    assert (entry["rank"], entry["speedup"], entry["passed"], entry["evaluations"]) == (None, None, 0, 3)
    assert "found it wrong" in client.get(f"{API}/jobs/{job}").json()["on_leaderboard"]
    assert (
        client.post(f"{API}/evaluations/again/retract", json={"reason": "a defect of the referee"}).status_code == 200
    )
    (entry,) = client.get(f"{API}/leaderboard").json()["entries"]
    assert (entry["rank"], entry["speedup"], entry["pooled"]) == (1, 2.0, 1)
    assert client.get(f"{API}/jobs/{job}").json()["on_leaderboard"] == ""


def test_a_retracted_result_leaves_the_leaderboard_and_can_come_back(client, web):
    job = add_done_job(web.store)
    path = f"{API}/evaluations/evaluation-{job}-1"
    ranked = lambda: [entry["passed"] for entry in client.get(f"{API}/leaderboard").json()["entries"]]  # noqa: E731
    assert ranked() == [1]
    problem(client.post(f"{path}/retract", json={"reason": "   "}), 422)
    assert client.post(f"{path}/retract", json={"reason": "wrong clock"}).json()["retracted_at"] is not None
    assert ranked() in ([], [0])
    problem(client.post(f"{path}/retract", json={"reason": "again"}), 409)
    assert client.post(f"{path}/restore", json={"reason": "clock was right"}).json()["retracted_at"] is None
    assert ranked() == [1]


def test_the_leaderboard_is_given_as_json_and_as_csv(client, web):
    add_done_job(web.store)
    page = client.get(f"{API}/leaderboard", params={"suite": "local", "sort": "speedup"}).json()
    assert (page["total"], page["entries"][0]["speedup"]) == (1, 2.0)
    lines = client.get(f"{API}/leaderboard.csv").text.splitlines()
    assert lines[0].startswith("task,source_hash")
    assert lines[1].startswith("local/relu,")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("leaderboard", "platform, "),
        ("leaderboard.csv", "platform, "),
        ("jobs", "status"),
        ("openapi.json", "has none"),
    ],
)
def test_a_misspelt_parameter_is_refused_with_those_that_there_are(client, address, told):
    body = problem(client.get(f"{API}/{address}", params={"platfrom": "cuda", "limit ": "3"}), 422)
    assert [(each["field"], each["value"]) for each in body["errors"]] == [
        ("query.platfrom", "cuda"),
        ("query.limit ", "3"),
    ]
    assert body["detail"].startswith("query.platfrom: no such parameter; ") and told in body["detail"]


def test_the_leaderboard_is_sorted_as_it_is_asked_for_and_by_speedup_if_not(client, web):
    board = Board(web.store)
    for model, speedup, cost in (("a", 2.0, 0.5), ("b", 3.0, 0.25), ("c", 1.0, 0.75)):
        job_id = board.add(model, speedup)
        with web.store.write() as session:
            set_spent(session, job_id, cost_usd=cost, tokens=1)

    def models(**given):
        return "".join(entry["model"] for entry in client.get(f"{API}/leaderboard", params=given).json()["entries"])

    asked = [{}, {"order": "asc"}, {"sort": "cost"}, {"sort": "cost", "order": "desc"}, {"sort": "cost", "limit": 1}]
    assert [models(**given) for given in asked] == ["bac", "cab", "bac", "cab", "b"]
    assert models(sort="cost", offset=1) == "ac"
    for wrong in ({"sort": "beauty"}, {"order": "up"}, {"sort": ""}):
        problem(client.get(f"{API}/leaderboard", params=wrong), 422)


def test_a_batch_is_queued_shown_cancelled_and_resumed(client):
    body = {"name": "two", "tasks": ["starter/rmsnorm_gelu", "starter/adamw_step"], "job": {"rounds": 1}}
    started = client.post(f"{API}/batches", json=body, headers={"Idempotency-Key": "b"})
    again = client.post(f"{API}/batches", json=body, headers={"Idempotency-Key": "b"})
    assert (started.status_code, again.status_code) == (201, 200)
    batch = started.json()["id"]
    assert again.json()["id"] == batch
    assert started.json()["counts"] == {"queued": 2}
    cancelled = client.post(f"{API}/batches/{batch}/cancel").json()
    assert (cancelled["counts"], cancelled["concerned"]) == ({"cancelled": 2}, 2)
    assert client.post(f"{API}/batches/{batch}/resume").json()["counts"] == {"queued": 2}
    client.post(f"{API}/batches/{batch}/cancel")
    again = client.post(f"{API}/batches/{batch}/resume", json={"budget_usd": 7})
    assert (again.json()["counts"], again.json()["budget_usd"]) == ({"queued": 2}, 7.0)
    problem(client.post(f"{API}/batches/{batch}/resume", json={"budget_usd": True}), 422)
    assert client.get(f"{API}/batches").json()["batches"][0]["id"] == batch
    assert len(client.get(f"{API}/batches/{batch}").json()["figures"]["jobs"]) == 2
    assert len(client.get(f"{API}/batches/{batch}/export.csv").text.splitlines()) == 3
    assert "no job has ended" in problem(client.get(f"{API}/batches/{batch}/report.zip"), 409)["detail"]
    for wrong in ({"k": 0}, {"k": 1001}, {"k": "x"}, {"over": "nothing"}, {"k": list(range(1, 30))}):
        problem(client.get(f"{API}/batches/{batch}/report.zip", params=wrong), 422)


def test_the_tasks_of_a_batch_are_restricted_to_the_inputs_that_it_names(client):
    body = {"tasks": ["starter/rmsnorm_gelu"], "domain": "finite"}
    started = client.post(f"{API}/batches", json=body).json()
    assert started["spec"]["domain"] == "finite"
    [job] = client.get(f"{API}/batches/{started['id']}").json()["figures"]["jobs"]
    assert job["task"] == "starter.finite/rmsnorm_gelu"
    problem(client.post(f"{API}/batches", json=body | {"domain": "small"}), 422)


def test_what_a_batch_was_asked_for_is_told_without_what_is_the_servers(client, web, tmp_path):
    op, key = tmp_path / "mine.py", tmp_path / "key"
    op.write_text(OP)
    key.write_text("sk-secret")
    model = {"name": "openai/a", "api_base": "http://inside", "api_key_file": str(key), "price": "1,2"}
    job = {"rounds": 1, "image": "inside", "api_base": "http://inside"}
    spec = make_spec({"name": "own", "tasks": [str(op), "starter/gelu_tanh"], "models": [model], "job": job})
    batch = start_batch(spec, settings=web.settings, store=web.store)
    told = client.get(f"{API}/batches/{batch}").json()["batch"]
    assert told["spec"]["tasks"] == ["starter/gelu_tanh"]
    assert (told["spec"]["models"], told["spec"]["job"]) == (["openai/a"], {"rounds": 1})
    listed = client.get(f"{API}/batches").text
    for secret in ("inside", str(tmp_path), "sk-secret"):
        assert secret not in listed + client.get(f"{API}/batches/{batch}").text


@pytest.mark.parametrize("option", ["api_base", "api_key_file", "image"])
def test_a_batch_cannot_reach_into_the_server_either(client, option):
    body = {"tasks": ["starter"], "job": {option: "/etc/passwd"}}
    assert problem(client.post(f"{API}/batches", json=body), 422)["errors"][0]["field"] == f"body.job.{option}"


@pytest.mark.parametrize(("option", "value"), [("plateau_rounds", False), ("budget_usd", True), ("rounds", "3")])
def test_a_number_is_neither_a_truth_value_nor_text(client, option, value):
    for path, body in ((f"{API}/batches", {"tasks": ["starter"], "job": {option: value}}), (f"{API}/jobs", None)):
        answer = client.post(path, json=body or {"task": "starter/rmsnorm_gelu", option: value})
        assert problem(answer, 422)["errors"][0]["field"].endswith(option)


def test_a_batch_of_a_servers_file_is_refused(client):
    for ref in ("tests/support/web_application.py", "setup.py"):
        problem(client.post(f"{API}/batches", json={"tasks": [ref]}), 422)


def test_runs_over_models_are_listed_page_by_page(client, web):
    made = seeded_store.Seeded(web.store)
    runs = [seeded_store.model_run(made, f"net{number}", regions=()) for number in range(3)]
    first = client.get(f"{API}/models", params={"limit": 2}).json()
    assert [run["id"] for run in first["models"]] == [runs[2], runs[1]]
    assert first["next_cursor"] == runs[1]
    last = client.get(f"{API}/models", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert ([run["id"] for run in last["models"]], last["next_cursor"]) == ([runs[0]], None)
    run = last["models"][0]
    assert (run["task"]["ref"], run["model"], run["stage"]) == ("local/net0", "vendor/kernels", "plan")
    assert (run["status"], run["kept"], run["speedup"]) == ("running", None, None)


def test_a_run_over_a_model_is_told_with_its_regions_decisions_and_proof(client, web):
    made = seeded_store.Seeded(web.store)
    run = seeded_store.model_run(made, "net")
    seeded_store.model_jobs(made, "net", {"r02_rms_norm": 3.0, "r04_mul_silu": 1.1})
    taken_out = seeded_store.trial("r04_mul_silu", "without", "alike", 1.004, True)
    seeded_store.decide(made, "net", [taken_out], ["r02_rms_norm"])
    seeded_store.prove(made, "net", seeded_store.evaluation("passed", speedup=1.5))
    told = client.get(f"{API}/models/{run}").json()
    assert (told["schema"], told["status"], told["stage"]) == ("kernelwright.model/1", "done", "done")
    assert (told["kept"], told["plan"]["eager_ms"]) == (["r02_rms_norm"], 41.5)
    assert told["proof"]["speedup"]["eager"]["value"] == pytest.approx(1.5)
    assert client.get(f"{API}/evaluations/{told['evaluation_id']}").json()["speedup"] == pytest.approx(1.5)
    regions = {region["name"]: region for region in told["regions"]}
    assert list(regions) == ["r01_block", "r02_rms_norm", "r03_attention", "r04_mul_silu", "r05_add"]
    kept, out, never = (regions[name] for name in ("r02_rms_norm", "r04_mul_silu", "r05_add"))
    assert (kept["kept"], kept["occurrences"], kept["share"]) == (True, 24, 0.25)
    assert kept["speedup"]["value"] == pytest.approx(3.0)
    assert kept["task"]["ref"] == "regions/net.r02_rms_norm"
    assert client.get(f"{API}/jobs/{kept['job_id']}/candidates/{kept['candidate_hash']}").status_code == 200
    assert (out["kept"], out["why"]) == (False, "the model is no slower without it (alike, 1.004)")
    assert (never["job_id"], never["speedup"], never["why"]) == (None, None, "no job: too little to gain")
    expected = {"name": "r04_mul_silu", "question": "without", "decision": "alike", "ratio": 1.004}
    assert told["trials"] == [expected | {"taken_out": True, "message": "", "shape_group": None}]
    assert told["shapes"] == []
    listed = client.get(f"{API}/models").json()["models"][0]
    assert listed["speedup"] == {"value": pytest.approx(1.5), "low": pytest.approx(1.44), "high": pytest.approx(1.56)}


def test_a_run_over_a_model_is_told_without_paths_of_its_machine(client, web):
    run = seeded_store.model_run(seeded_store.Seeded(web.store), "net")
    answer = client.get(f"{API}/models/{run}")
    assert answer.json()["options"] == {"rounds": 2, "budget_usd": 3.0}
    assert "/secret" not in answer.text + client.get(f"{API}/models").text


def test_a_run_over_a_model_that_is_not_there_is_a_404(client):
    assert "model run 7 is not in the store" in problem(client.get(f"{API}/models/7"), 404)["detail"]
    problem(client.get(f"{API}/models/0"), 422)


def test_a_run_over_a_model_is_queued_once_for_a_key(client, web):
    body = {"source": OP, "name": "net", "rounds": 2}
    key = {"Idempotency-Key": "one"}
    first = client.post(f"{API}/models", json=body, headers=key)
    assert first.status_code == 201
    run = first.json()
    assert first.headers["location"] == f"{API}/models/{run['id']}"
    assert (run["status"], run["stage"], run["task"]["ref"]) == ("queued", "plan", "local/net")
    assert run["options"]["rounds"] == 2 and run["options"]["plan_only"] is False
    again = client.post(f"{API}/models", json=body, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, run["id"])
    with web.store.read() as session:
        assert jobs.get_job(session, run["id"]).kind == "model"
    (listed,) = client.get(f"{API}/jobs", params={"kind": "model"}).json()["jobs"]
    assert listed["id"] == run["id"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "source"),
        ({"source": "import torch\n"}, 422, "get_inputs"),
        ({"source": OP, "platform": "cuda"}, 422, "whole models are for cpu"),
        ({"source": OP, "state": "/etc/passwd"}, 422, "state"),
        ({"source": OP, "out": "/tmp"}, 422, "out"),
        ({"source": OP, "weights": "/etc/passwd"}, 422, "weights"),
        ({"source": OP, "weights": "a" * 64}, 422, "are not kept for local; send the file first (PUT /api/v1/weights)"),
        ({"task": "starter/none"}, 422, "starter/none"),
    ],
)
def test_what_cannot_be_asked_for_a_model_is_refused(client, web, body, status, said):
    assert said in json.dumps(problem(client.post(f"{API}/models", json=body), status))
    assert client.get(f"{API}/models").json()["models"] == []


def test_a_run_over_a_model_is_cancelled_with_its_regions_and_resumed(client, web):
    made = seeded_store.Seeded(web.store)
    run = seeded_store.model_run(made, "net")
    seeded_store.model_jobs(made, "net", {"r02_rms_norm": ""})
    (region,) = [each["job_id"] for each in client.get(f"{API}/models/{run}").json()["regions"] if each["job_id"]]
    assert client.post(f"{API}/jobs/{run}/cancel").json()["cancel_requested"]
    with web.store.write() as session:
        assert jobs.get_job(session, region).cancel_requested
        for each in (run, region):
            jobs.finish_job(session, each, seeded_store.OWNER, status=JobStatus.CANCELLED, stop_reason="cancelled")
    with web.store.write() as session:
        jobs.update_options(session, run, weights="a" * 64)
    assert "are not kept for ada" in problem(client.post(f"{API}/jobs/{run}/resume"), 422)["detail"]
    with web.store.write() as session:
        jobs.update_options(session, run, weights=None)
    assert client.post(f"{API}/jobs/{run}/resume").json()["status"] == "queued"
    assert client.get(f"{API}/jobs/{region}").json()["job"]["status"] == "queued"


def test_what_a_run_delivers_is_downloaded(client, web):
    made = seeded_store.Seeded(web.store)
    run = seeded_store.model_run(made, "net")
    assert "delivered nothing" in problem(client.get(f"{API}/models/{run}/export"), 409)["detail"]
    seeded_store.decide(made, "net", [], ["r02_rms_norm"])
    seeded_store.prove(made, "net", seeded_store.evaluation("passed", speedup=1.5))
    answer = client.get(f"{API}/models/{run}/export")
    files = read_archive(answer.content)
    assert files.keys() == {*seeded_store.FILES, "report.md"}
    assert "/secret" not in files["report.md"] + client.get(f"{API}/jobs/{run}").text


def test_health_and_metrics_tell_how_the_server_is(client):
    submit(client)
    assert client.get(f"{API}/health/live").json()["status"] == "ok"
    assert client.get(f"{API}/health/ready").json()["status"] == "ok"
    text = client.get("/metrics").text
    assert 'kernelwright_jobs{status="queued"} 1.0' in text
    assert 'kernelwright_queue_length{platform="cpu"} 1.0' in text
    assert 'kernelwright_http_requests_total{method="POST",route="/api/v1/jobs",status="201"} 1.0' in text


def test_two_applications_in_one_process_keep_their_metrics_apart(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two, one.client() as first, two.client() as second:
        first.get(f"{API}/health/live")
        assert "health/live" in first.get("/metrics").text
        assert "health/live" not in second.get("/metrics").text


def test_a_store_that_does_not_answer_is_a_503_without_its_address(client, web, tmp_path):
    web.store.close()
    (tmp_path / "web.db").unlink()
    (tmp_path / "web.db").mkdir()
    body = problem(client.get(f"{API}/health/ready"), 503)
    assert str(tmp_path) not in json.dumps(body)


def test_a_fault_of_the_server_shows_an_id_and_the_log_the_traceback(client, web, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("the inner secret")

    monkeypatch.setattr("web.api.jobs.show_job", broken)
    body = problem(client.get(f"{API}/jobs/1"), 500)
    assert "inner secret" not in json.dumps(body)
    record = next(record for record in caplog.records if record.exc_info)
    assert record.request_id == body["request_id"]


@pytest.mark.parametrize("job_id", ["0", "-1", "99999999999999999999", "1.5", "abc", "%00", "1;drop", "١"])
def test_ids_that_are_none_are_refused(client, job_id):
    assert client.get(f"{API}/jobs/{job_id}").status_code in (404, 422)


def test_unknown_addresses_and_methods_are_problems(client):
    problem(client.get(f"{API}/nothing"), 404)
    body = client.delete(f"{API}/jobs")
    problem(body, 405)
    assert body.headers["allow"] == "GET, HEAD, POST"


def test_the_pages_errors_are_not_json(client):
    response = client.get("/nothing/here")
    assert response.status_code == 404
    assert "json" not in response.headers["content-type"]


def test_a_job_that_runs_is_told_to_stop(client, web):
    job = submit(client).json()["id"]
    with web.store.write() as session:
        from db.tables import JobRow

        session.get(JobRow, job).status = JobStatus.RUNNING.value
    assert client.post(f"{API}/jobs/{job}/cancel").json()["cancel_requested"] is True
