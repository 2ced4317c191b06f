"""The page of devices shows how quiet they were, and no headline praises what was measured on a busy one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from db.evaluations import results
from db.jobs import jobs, workers
from db.records import JobStatus, Measurements
from db.store import Store
from db.tables import JobRow
from service.jobs.liveness import this_process
from service.views.devices import HISTORY, devices_view
from service.views.jobs import job_view
from tests.support.web_application import HASHES, Web, add_done_job, opened


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with opened(tmp_path) as made:
        with made.store.write() as session:
            workers.add_worker(
                session, "w", this_process(), platform="cpu", slot=0, device="CPU A", kind="c", sandbox="docker",
                version="1",
            )  # fmt: skip
        yield made


def evaluated(
    store: Store, number: int, noise: float | None, *, tags: tuple[str, ...] = (), device: str = "CPU A"
) -> None:
    profile = {} if noise is None else {"others_cores_busy": noise}
    with store.write() as session:
        candidate = results.add_candidate(session, 1, round_number=1, candidate_hash=HASHES[0], source="")
        results.add_evaluation(
            session,
            f"e{number}",
            candidate_id=candidate,
            round_number=1,
            platform="cpu",
            device=device,
            sandbox="docker",
            verdict="passed",
            code=None,
            message="",
            tags=["custom_kernel", *tags],
            measurements=Measurements(speedup=2.5, speedup_low=2.4, speedup_high=2.6),
            result={"verdict": "passed", "profile": profile},
            noise=noise,
        )


def test_a_worker_is_shown_with_all_jobs_that_it_runs(web: Web) -> None:
    assert "nothing</span>" in web.client().get("/devices").text
    ids = [add_done_job(web.store, name=name) for name in ("a", "b", "c")]
    with web.store.write() as session:
        session.execute(
            update(JobRow).where(JobRow.id.in_(ids[:2])).values(status=JobStatus.RUNNING.value, worker_id="w")
        )
    text = web.client().get("/devices").text
    assert re.findall(r'<a href="/jobs/(\d+)">job', text) == [str(job_id) for job_id in ids[:2]]
    (line,) = devices_view(web.store).workers
    assert line.job_ids == tuple(ids[:2])


def test_a_device_has_a_history_of_noise(web: Web) -> None:
    add_done_job(web.store)
    text = web.client().get("/devices").text
    assert "Too noisy" not in text, "nothing is known yet"
    for number, (noise, tags) in enumerate([(0.02, ()), (1.5, ("noisy",)), (0.06, ()), (None, ())]):
        evaluated(web.store, number, noise, tags=tags)
    evaluated(web.store, 9, 0.7, device="CPU B")  # which no worker has
    [history] = devices_view(web.store).noise
    assert (history.device, history.values, history.noisy, history.median) == ("CPU A", (0.02, 1.5, 0.06), 1, 0.06)
    text = web.client().get("/devices").text
    assert re.search(r"Too noisy\">1 of 3<", text)
    assert text.count('<rect class="meter-level"') == 3
    assert "from 0.0200 to 1.50," in text


def test_the_history_ends_somewhere(web: Web) -> None:
    add_done_job(web.store)
    for number in range(HISTORY + 5):
        evaluated(web.store, number, number / 100)
    [history] = devices_view(web.store).noise
    assert history.values == tuple(number / 100 for number in range(5, HISTORY + 5))


@pytest.mark.parametrize(("tags", "praised"), [((), True), (("tie",), True), (("noisy",), False)])
def test_a_headline_praises_what_counts_alone(web: Web, tags: tuple[str, ...], praised: bool) -> None:
    job = add_done_job(web.store)
    evaluated(web.store, 1, 0.0, tags=tags)
    with web.store.write() as session:
        jobs.set_best(session, job, "e1")
    text = web.client().get(f"/jobs/{job}").text
    [headline] = re.findall(r"<h2>(.*?)</h2>", text, re.DOTALL)[:1]
    assert ("2.50×" in headline) == praised
    assert ("its speedup does not count" in headline) != praised
    [note] = re.findall(r"It ended because .*?</p>", text, re.DOTALL)
    assert ("a worker does so by itself" in note) != praised


@pytest.mark.parametrize(("noise", "shown"), [(0.0, "0"), (0.312, "0.312"), (None, None)])
def test_a_job_shows_how_quiet_the_device_was_for_its_best_result(
    web: Web, noise: float | None, shown: str | None
) -> None:
    job = add_done_job(web.store)
    evaluated(web.store, 1, noise)
    with web.store.write() as session:
        jobs.set_best(session, job, "e1")
    found = re.findall(r"<dt>Noise of this result</dt><dd>(.*?)</dd>", web.client().get(f"/jobs/{job}").text)
    assert found == ([] if shown is None else [shown])


@pytest.mark.parametrize("status", [JobStatus.DONE, JobStatus.CANCELLED])
@pytest.mark.parametrize("tags", [(), ("tie",), ("noisy",), ("trial",), ("trial", "noisy")])
def test_a_speedup_without_a_rank_is_not_celebrated(web: Web, tags: tuple[str, ...], status: JobStatus) -> None:
    job = add_done_job(web.store)
    evaluated(web.store, 1, 0.0, tags=tags)
    with web.store.write() as session:
        jobs.set_best(session, job, "e1")
        session.execute(update(JobRow).where(JobRow.id == job).values(status=status))
    ranked = tags in ((), ("tie",))
    assert job_view(web.store, job).best_counts is ranked
    [best] = re.findall(r"<dt>Best over eager</dt>(.*?)</div>", web.client().get(f"/jobs/{job}").text, re.DOTALL)
    assert "2.50×" in best
    assert ('class="big"' in best) is ranked
    assert ("no rank" in best) is not ranked
    assert [tag for tag in ("noisy", "trial", "tie") if f">{tag}<" in best] == sorted(set(tags) - {"tie"})
    [line] = re.findall(r'data-label="Best over eager">(.*?)</td>', web.client().get("/jobs").text, re.DOTALL)
    assert ("no rank" in line) is not ranked
