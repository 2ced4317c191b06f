"""The handler of one HTTP request: it reads the request and sends the scripted answer or fault."""

import contextlib
import http.server
import json
import socket
from collections.abc import Mapping
from typing import Any, Protocol, cast

from service.mock_llm.protocol import Answer, answer_of, error_json, models_json, response_json, stream_events
from service.mock_llm.script import Entry
from service.mock_llm.state import ServerState

MAX_BODY_BYTES = 64 * 1024 * 1024
_HANG_S = 3600.0
_LAST_CHUNK = b"0\r\n\r\n"


class HasState(Protocol):
    """The part of the HTTP server that its handler uses."""

    state: ServerState


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, which carries one request."""

    protocol_version = "HTTP/1.1"  # its chunks distinguish a stream that broke from a stream that ended
    timeout = 60.0  # seconds that a client may be silent

    @property
    def state(self) -> ServerState:
        """The state that all requests share."""
        return cast(HasState, self.server).state

    def do_GET(self) -> None:
        """Answer with the list of models, or with the counts."""
        path = self.path.partition("?")[0].rstrip("/")
        if path == "/stats":
            self._send(200, self.state.stats())
        elif path != "/v1/models":
            self._reject(404, f"no such address: GET {path}", "not_found")
        elif self._has_key():
            self._send(200, models_json(self.state.models()))

    def do_POST(self) -> None:
        """Answer a chat completion."""
        self.state.count_active(1)
        try:
            body = self._body()
            if body is not None and self._has_key():
                self._answer(body)
        finally:
            self.state.count_active(-1)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""

    def _has_key(self) -> bool:
        if self.state.accepts(self.headers.get("Authorization")):
            return True
        self._reject(401, "Incorrect API key provided.", "invalid_api_key")
        return False

    def _body(self) -> dict[str, Any] | None:
        """Read the request's body. If it is not valid, answer with an error and return None."""
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self._reject(413 if length else 411, f"Content-Length must be 0 to {MAX_BODY_BYTES}")
            return None
        raw = self.rfile.read(int(length))
        if self.path.partition("?")[0].rstrip("/") != "/v1/chat/completions":
            self._reject(404, f"no such address: POST {self.path}", "not_found")
            return None
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            self._reject(400, f"the body is no JSON: {error}")
            return None
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not all(isinstance(each, dict) and "role" in each for each in messages):
            self._reject(400, "messages must be a list of objects with a role")
        elif not isinstance(body.get("model"), str) or not messages:
            self._reject(400, "a model and at least one message are needed")
        else:
            return cast(dict[str, Any], body)
        return None

    def _answer(self, body: dict[str, Any]) -> None:
        if not self.state.has_model(body["model"]):
            self._reject(404, f"The model `{body['model']}` does not exist.", "model_not_found")
            return
        entry = self.state.select_entry(body)
        fault = None if entry is None else entry.fault
        if entry is not None and entry.delay_s:
            self.state.pause(entry.delay_s, self.connection)
        if (fault == "no_stream_options" and "stream_options" not in body) or (
            fault == "no_stream" and not body.get("stream")
        ):
            fault = None
        if fault is not None:
            self.state.count_fault(fault)
        if entry is not None and self._fail(entry, fault):
            return
        answer = answer_of(entry, body["messages"])
        if body.get("stream"):
            self._stream(answer, body, fault)
        else:
            self._whole(answer, body, fault)

    def _fail(self, entry: Entry, fault: str | None) -> bool:
        """Send a fault that takes the place of a reply.

        Returns:
            Whether a fault was sent. If not, there is a reply to send.
        """
        wait = {} if entry.retry_after is None else {"Retry-After": f"{entry.retry_after}"}
        match fault:
            case "rate_limit":
                self._reject(429, "Rate limit reached for requests.", "rate_limit_exceeded", wait)
            case "server_error":
                self._reject(500, "The server had an error while processing your request.", "server_error")
            case "overloaded":
                self._reject(503, "The server is overloaded.", "overloaded", wait)
            case "unauthorized":
                self._reject(401, "Incorrect API key provided.", "invalid_api_key")
            case "context":
                text = "This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens."
                self._reject(400, text, "context_length_exceeded")
            case "no_stream_options":
                self._reject(400, "Unrecognized request argument supplied: stream_options", "unknown_parameter")
            case "no_stream":
                self._reject(400, "Streaming is not supported by this server.", "unsupported_value")
            case "garbage":
                self._send_bytes(200, b"<html>Welcome!</html>", "text/html")
            case "timeout":
                self.state.pause(_HANG_S, self.connection)
                self._hang_up()
            case "reset":
                self._hang_up()
            case _:
                return False
        return True

    def _whole(self, answer: Answer, body: Mapping[str, Any], fault: str | None) -> None:
        data = json.dumps(response_json(answer, body["model"])).encode()
        if fault in ("drop", "stall"):
            self._start(200, {"Content-Type": "application/json", "Content-Length": str(len(data))})
            self._write(data[: len(data) // 2])
            if fault == "stall":
                self.state.pause(_HANG_S, self.connection)
            self._hang_up()
            return
        self.state.count_reply(answer)  # before the client has the reply and can read the counts
        if not self._send_bytes(200, data):
            self.state.count_reply(answer, -1)

    def _stream(self, answer: Answer, body: Mapping[str, Any], fault: str | None) -> None:
        options = body.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        events = stream_events(answer, body["model"], with_usage=with_usage)
        self._start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        half = fault in ("drop", "stall")
        pieces = events.pieces[: max(2, len(events.pieces) // 2)] if half else events.pieces
        if not all(self._event(json.dumps(piece)) for piece in pieces):
            return
        if fault == "stall":
            self.state.pause(_HANG_S, self.connection)
        if half:
            self._hang_up()
        elif fault == "no_done":
            self._write(_LAST_CHUNK)
        else:
            self._finish(answer, [events.finish, *([events.usage] if events.usage else [])], late=fault == "drop_late")

    def _finish(self, answer: Answer, events: list[dict[str, Any]], *, late: bool) -> None:
        self.state.count_reply(answer)
        if late:
            self._event(json.dumps(events[0]))
            self._hang_up()
        elif not (
            all(self._event(json.dumps(event)) for event in events)
            and self._event("[DONE]")
            and self._write(_LAST_CHUNK)
        ):
            self.state.count_reply(answer, -1)

    def _reject(
        self, status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self._send(status, error_json(message, kind, code), headers)

    def _send(self, status: int, value: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(value).encode(), headers=headers)

    def _send_bytes(
        self, status: int, data: bytes, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> bool:
        self._start(status, {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})})
        return self._write(data)

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        with contextlib.suppress(OSError):  # the next write reports it
            self.end_headers()

    def _event(self, data: str) -> bool:
        line = f"data: {data}\n\n".encode()
        return self._write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def _write(self, data: bytes) -> bool:
        """Send data. The result is False if the client has gone."""
        try:
            self.wfile.write(data)
            self.wfile.flush()
        except OSError:
            return False
        return True

    def _hang_up(self) -> None:
        """Break the connection off before the answer is complete."""
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has closed it already
            self.connection.shutdown(socket.SHUT_RDWR)
