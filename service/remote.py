"""A Kernelwright server as the command line uses it: the same things as on this machine, over HTTP."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import httpx

from db.leaderboard import Entry, Filters, Sort
from db.records import JobRecord
from service.errors import BadRequest, Unavailable
from service.jobs import End, JobDetails
from service.remote_json import entry_of, evaluation_of, job_of, round_of
from service.settings import Settings

TIMEOUT = httpx.Timeout(30.0, read=60.0)
RETRIES = 8
LONGEST_PAUSE_S = 15.0
MAX_PAGE = 1000
_API = "/api/v1"


class Remote:
    """One server. Safe to use from one thread."""

    def __init__(self, server: str, token: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self.server = server.rstrip("/")
        headers = {"User-Agent": "kernelwright"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        own = urlsplit(self.server).hostname in ("localhost", "127.0.0.1", "::1")
        self._client = httpx.Client(
            base_url=self.server + _API,
            headers=headers,
            timeout=TIMEOUT,
            transport=transport,
            trust_env=not own,  # no proxy stands between us and this machine
        )

    def close(self) -> None:
        """Give back the connections."""
        self._client.close()

    def submit(self, body: Mapping[str, Any], *, key: str) -> JobRecord:
        """Queue a job; with the same key, once.

        Raises:
            BadRequest, Unavailable: as every method here: the server refuses, or does not answer.
        """
        return job_of(self._json("POST", "/jobs", json=dict(body), headers={"Idempotency-Key": key}))

    def show_job(self, job_id: int) -> JobDetails:
        """A job with its rounds."""
        whole = self._json("GET", f"/jobs/{job_id}")
        job = job_of(whole["job"])
        best = None
        if job.best_evaluation_id is not None:
            best = evaluation_of(self._json("GET", f"/evaluations/{job.best_evaluation_id}"))
        rounds = tuple(round_of(line) for line in whole["rounds"])
        return JobDetails(job, rounds, best, End(whole["unsettled_usd"], whole["summary"], whole["unpriced_calls"]))

    def list_jobs(self, *, everything: bool, limit: int) -> list[JobRecord]:
        """Jobs, newest first."""
        found: list[JobRecord] = []
        query: dict[str, Any] = {} if everything else {"kind": "optimize"}
        while len(found) < limit:
            page = self._json("GET", "/jobs", params={**query, "limit": min(limit - len(found), 200)})
            found += [job_of(job) for job in page["jobs"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        return found

    def cancel(self, job_id: int) -> JobRecord:
        """Stop a job."""
        return job_of(self._json("POST", f"/jobs/{job_id}/cancel"))

    def resume(self, job_id: int) -> JobRecord:
        """Put a job back in line."""
        return job_of(self._json("POST", f"/jobs/{job_id}/resume"))

    def export(self, job_id: int) -> tuple[str, str]:
        """The best candidate's kernel and its report."""
        return self._send("GET", f"/jobs/{job_id}/export").text, self._send("GET", f"/jobs/{job_id}/report").text

    def leaderboard(
        self, filters: Filters, *, sort: Sort, descending: bool | None, limit: int | None
    ) -> tuple[list[Entry], int]:
        """Entries, and how many there are with these filters."""
        wanted = {name: value for name, value in asdict(filters).items() if value is not None} | {"sort": sort.value}
        if descending is not None:
            wanted["order"] = "desc" if descending else "asc"
        found: list[Entry] = []
        while True:
            size = MAX_PAGE if limit is None else min(limit - len(found), MAX_PAGE)
            page = self._json("GET", "/leaderboard", params={**wanted, "limit": size, "offset": len(found)})
            found += [entry_of(entry) for entry in page["entries"]]
            total = int(page["total"])
            if not page["entries"] or len(found) >= (total if limit is None else min(limit, total)):
                return found, total

    def follow(self, job_id: int, *, after: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens in a job until it ends: `message` with an event, `status`, and at last `end`.

        A connection that breaks is made again where it broke off.
        """
        last, failures = after, 0
        while True:
            try:
                for name, event in self._events(job_id, last):
                    failures = 0
                    last = int(event.get("id", last))
                    yield name, event
                    if name == "end":
                        return
            except httpx.TransportError as error:
                failures += 1
                if failures > RETRIES:
                    raise self._unreachable(error) from error
            time.sleep(min(2.0 ** max(failures - 1, 0), LONGEST_PAUSE_S))

    def _events(self, job_id: int, last: int) -> Iterator[tuple[str, dict[str, Any]]]:
        headers = {"Last-Event-ID": str(last), "Accept": "text/event-stream"}
        with self._client.stream("GET", f"/jobs/{job_id}/events", headers=headers) as response:
            if response.status_code != 200:
                response.read()
                self._refuse(response)
            name, data = "message", ""
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data += line.removeprefix("data: ")
                elif not line:
                    if data:
                        yield name, json.loads(data)
                    name, data = "message", ""

    def _json(self, method: str, path: str, **given: Any) -> Any:
        response = self._send(method, path, **given)
        try:
            return response.json()
        except ValueError as error:
            raise Unavailable(f"{self.server}: does not answer as a Kernelwright server; check --server") from error

    def _send(self, method: str, path: str, **given: Any) -> httpx.Response:
        try:
            response = self._client.request(method, path, **given)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            self._refuse(response)
        return response

    def _refuse(self, response: httpx.Response) -> None:
        """Turn a problem into the error that the same thing has on this machine.

        Raises:
            BadRequest: what was asked for cannot be done.
            Unavailable: the server cannot do it, or wants to know who asks.
        """
        try:
            detail = str(response.json()["detail"])
        except (ValueError, KeyError, TypeError):
            raise Unavailable(
                f"{self.server}: answers {response.status_code}, not as a Kernelwright server would; check --server"
            ) from None
        if response.status_code == 401:
            raise Unavailable(f"{self.server}: {detail}; set KERNELWRIGHT_TOKEN")
        if response.status_code >= 500 or response.status_code == 429:
            raise Unavailable(f"{self.server}: {detail}")
        raise BadRequest(detail)

    def _unreachable(self, error: httpx.TransportError) -> Unavailable:
        return Unavailable(f"{self.server}: does not answer ({type(error).__name__}: {error}); is it running?")


def open_remote(settings: Settings) -> Remote:
    """The server that the settings name.

    Raises:
        BadRequest: they name none, or not by an http address.
    """
    parsed = urlsplit(settings.server or "")
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise BadRequest(
            f"--server {(settings.server or '')[:80]}: give an address such as https://kernels.example.com"
        )
    token = None if settings.token is None else settings.token.get_secret_value()
    if token is not None and not (token.isascii() and token.isprintable()):
        raise BadRequest("KERNELWRIGHT_TOKEN=...: holds what no token holds; copy it again")
    return Remote(settings.server or "", token)
