"""Requests that arrive slowly, never, or from nobody: over real connections."""

import contextlib
import socket
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.support.web_application import OP, listening, opened
from web.pages.render.assets import PLOTLY, assets
from web.security import request_body, timeouts
from web.security.rate_limit import RateLimits

JSON = "Content-Type: application/json"


@pytest.fixture
def web(tmp_path):
    with opened(tmp_path, login=True) as web:
        yield web


@pytest.fixture
def address(web, monkeypatch):
    monkeypatch.setattr(timeouts, "REQUEST_TIMEOUT_S", 1.5)
    monkeypatch.setattr(timeouts, "READ_TIMEOUT_S", 1.5)
    monkeypatch.setattr(request_body, "BODY_TIMEOUT_S", 1.5)
    with listening(web) as address:
        yield address


@contextlib.contextmanager
def connected(address):
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        yield connection


def head(*lines, method="POST", path="/api/v1/jobs"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def everything(connection):
    """What comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found.decode()


def dripping(connection, over):
    def drip():
        with contextlib.suppress(OSError):
            while not over.wait(0.1):
                connection.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "who",
    [
        (),
        ("Authorization: Bearer kw_nobody",),
        ("Authorization: Basic YTpi",),
        ("Cookie: kernelwright_session=1.99999999999.x.y",),
    ],
)
@pytest.mark.parametrize("length", ["Content-Length: 2000000", "Transfer-Encoding: chunked"])
def test_nothing_of_a_body_is_waited_for_from_who_is_not_known(address, who, length):
    with connected(address) as connection:
        connection.sendall(head(JSON, length, "Expect: 100-continue", *who))
        answer = everything(connection)
    assert answer.startswith("HTTP/1.1 401 "), answer
    assert "connection: close" in answer.lower()
    assert "www-authenticate: bearer" in answer.lower()


def test_on_every_path_a_body_of_nobody_is_refused(address):
    for method, path in (("POST", "/submit"), ("POST", "/logout"), ("GET", "/api/v1/health/live"), ("PUT", "/none")):
        with connected(address) as connection:
            connection.sendall(head("Content-Length: 9", method=method, path=path))
            assert everything(connection).startswith("HTTP/1.1 401 "), path


def test_who_logs_in_sends_little(address):
    with connected(address) as connection:
        form = "Content-Type: application/x-www-form-urlencoded"
        connection.sendall(head(form, "Content-Length: 20000", path="/login"))
        assert everything(connection).startswith("HTTP/1.1 413 ")


def test_who_is_known_is_let_in_and_counted_once(web, address):
    web.app.state.rate_limits = RateLimits(1)
    token = web.token("submitter")
    body = f'{{"source": {OP!r}}}'.replace("'", '"').encode()
    with connected(address) as connection:
        connection.sendall(
            head(JSON, f"Content-Length: {len(body)}", f"Authorization: Bearer {token}", "Connection: close") + body
        )
        answer = everything(connection)
    assert answer.startswith("HTTP/1.1 201 "), answer


def test_a_body_that_comes_a_byte_at_a_time_is_given_up(web, address):
    over = threading.Event()
    with connected(address) as connection:
        connection.sendall(head(JSON, "Content-Length: 2000000", f"Authorization: Bearer {web.token()}"))
        began_s, thread = time.monotonic(), dripping(connection, over)
        answer = everything(connection)
        took_s = time.monotonic() - began_s
    over.set()
    thread.join()
    assert answer.startswith("HTTP/1.1 408 "), answer
    assert took_s < 5


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_a_request_that_does_not_come_to_its_end_is_given_up(address, begun):
    over = threading.Event()
    with connected(address) as connection:
        connection.sendall(begun)
        began_s = time.monotonic()
        thread = dripping(connection, over) if begun.endswith(b" ") else None
        assert everything(connection) == ""
        took_s = time.monotonic() - began_s
    over.set()
    if thread is not None:
        thread.join()
    assert 1 < took_s < 5


def test_a_client_that_does_not_read_its_answer_is_given_up(web, address):
    with connected(address) as connection:
        script = f"/assets/{assets().plotly_digest}/{PLOTLY}"
        request = head(f"Authorization: Bearer {web.token()}", method="GET", path=script)
        connection.sendall(request * 4)
        time.sleep(4)
        found = everything(connection)
    assert found.startswith("HTTP/1.1 200 ")
    assert found.count("HTTP/1.1 200 ") < 4


def test_a_connection_is_used_for_many_requests_as_long_as_each_is_in_time(web, address):
    headers = {"Authorization": f"Bearer {web.token()}"}
    with contextlib.closing(HTTPConnection(urlsplit(address).netloc)) as connection:
        connection.connect()
        first = connection.sock
        for _ in range(4):
            connection.request("GET", "/api/v1/me", headers=headers)
            response = connection.getresponse()
            assert response.status == 200
            response.read()
            assert connection.sock is first
            time.sleep(0.5)
