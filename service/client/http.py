"""HTTP requests to a Kernelwright server's API, with the errors that local commands raise."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from service.errors import BadRequest, Unavailable

TIMEOUT = httpx.Timeout(30.0, read=60.0)
SENDING = httpx.Timeout(30.0, read=600.0, write=60.0)
"""For a large file, which the server stores before it answers."""

RETRIES = 8
LONGEST_PAUSE_S = 15.0
PAGE = 200
_API = "/api/v1"


class ApiClient:
    """A connection to one server, for one thread; a context manager that closes it.

    Every method raises BadRequest if the server refuses, and Unavailable if it does not answer or cannot do it.
    """

    def __init__(self, server: str, token: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self.server = server.rstrip("/")
        headers = {"User-Agent": "kernelwright"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        is_local = urlsplit(self.server).hostname in ("localhost", "127.0.0.1", "::1")
        self._client = httpx.Client(
            base_url=self.server + _API,
            headers=headers,
            timeout=TIMEOUT,
            transport=transport,
            trust_env=not is_local,  # no proxy to this machine itself
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def json(self, method: str, path: str, **given: Any) -> Any:
        """The JSON of a response."""
        response = self._send(method, path, **given)
        try:
            return response.json()
        except ValueError as error:
            raise Unavailable(f"{self.server}: does not answer as a Kernelwright server; check --server") from error

    def text(self, path: str) -> str:
        """The text of a response."""
        return self._send("GET", path).text

    def content(self, path: str) -> bytes:
        """The bytes of a response."""
        return self._send("GET", path).content

    def exists(self, path: str) -> bool:
        """Whether the server has something at this path."""
        response = self._request("GET", path)
        if not response.is_success and response.status_code != 404:
            self._raise_problem(response)
        return response.is_success

    def create(self, path: str, body: Mapping[str, Any], *, key: str) -> Any:
        """What the server created for a request. Requests with the same key create one thing."""
        return self.json("POST", path, json=dict(body), headers={"Idempotency-Key": key})

    def pages(
        self, path: str, name: str, query: Mapping[str, Any], *, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """The items of a paginated list, at most `limit`."""
        asked, left = dict(query), limit
        while left is None or left > 0:
            page = self.json("GET", path, params={**asked, "limit": PAGE if left is None else min(left, PAGE)})
            yield from page[name]
            if page["next_cursor"] is None:
                return
            asked["cursor"] = page["next_cursor"]
            left = None if left is None else left - len(page[name])

    def follow(self, job_id: int, *, after: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events of a job until it ends: `message` with an event, `status`, and at last `end`.

        A connection that breaks is opened again where it broke off.
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
                self._raise_problem(response)
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

    def _request(self, method: str, path: str, **given: Any) -> httpx.Response:
        """A response, whatever its status."""
        try:
            return self._client.request(method, path, **given)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _send(self, method: str, path: str, **given: Any) -> httpx.Response:
        response = self._request(method, path, **given)
        if not response.is_success:
            self._raise_problem(response)
        return response

    def _raise_problem(self, response: httpx.Response) -> None:
        """Raise the error that a local command would raise.

        Raises:
            BadRequest: the request is refused.
            Unavailable: the server cannot do it, or asks for a token.
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
