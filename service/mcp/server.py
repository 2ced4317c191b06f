"""An MCP server over stdin and stdout, on the protocol's own SDK.

Each tool call runs in a thread of its own. When the client cancels a call or leaves, the server cancels the call's
token and waits for its end, so that no sandbox outlives the call. stdout carries nothing but the protocol: while the
server runs, the SDK redirects all other output to stderr.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError

from service.cancellation import Cancelled, CancelToken
from service.mcp.tools import ToolSpec, bounded, tool_specs
from service.settings import Settings
from service.version import program_version

AT_ONCE = 8  # calls under way; further calls wait and use none of the threads that the protocol needs
STOP_S = 10.0  # for calls to end after a signal
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

INSTRUCTIONS = (
    "Kernelwright says what a kernel is worth. Write a candidate (class ModelNew, drop-in for the op's Model) and call"
    " `evaluate`: it checks the candidate against a float64 oracle and measures it against eager PyTorch and"
    " torch.compile in a sandbox that candidates cannot fool. `task` lists ops to work on and shows their source,"
    " `profile` says where a candidate's time goes, `leaderboard` what others have reached."
)

Explain = Callable[[Exception], str | None]
"""The line that tells a client why a call failed; None for a fault of the server, of which it learns no details."""


def serve(settings: Settings, explain: Explain) -> None:
    """Serve one client until it closes stdin. A signal ends the process with status 128 plus the signal's number."""
    with contextlib.suppress(BrokenPipeError):
        try:
            anyio.run(_McpServer(settings, explain).run)
        except BaseExceptionGroup as group:  # a broken pipe: the client has closed stdout and left
            if group.split(BrokenPipeError)[1] is not None:
                raise


class _McpServer:
    """One server for one client."""

    def __init__(self, settings: Settings, explain: Explain) -> None:
        self._settings = settings
        self._explain = explain
        self._tools = {tool.name: tool for tool in tool_specs()}
        self._under_way: set[CancelToken] = set()
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(self) -> None:
        server = Server(
            "kernelwright",
            version=program_version(),
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_on_signal)
            async with stdio_server() as (read_stream, write_stream):
                await server.run(read_stream, write_stream, server.create_initialization_options())
            group.cancel_scope.cancel()

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def _call_tool(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            return _failed(f"tool {params.name[:80]!r} is unknown; there are: {', '.join(self._tools)}")
        try:
            arguments = tool.arguments.model_validate(params.arguments or {})
        except ValidationError as error:
            return _failed(_first_problem(error))
        result = await self._in_thread(tool, arguments, context)
        if isinstance(result, Cancelled):
            return _failed("stopped before there was a result")
        if isinstance(result, Exception):
            return _failed(self._line(result))
        value = bounded(result)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=value)

    async def _in_thread(
        self, tool: ToolSpec, arguments: Any, context: ServerRequestContext[Any]
    ) -> Mapping[str, Any] | Exception:
        """Run a tool in a thread and return its result or its exception.

        If this coroutine is cancelled, it cancels the tool's token and waits for the tool's end.
        """
        cancel = CancelToken()
        loop = asyncio.get_running_loop()
        send, receive = anyio.create_memory_object_stream[str](16)

        def on_progress(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_offer, send, text)

        def work() -> Mapping[str, Any] | Exception:
            try:
                if cancel.requested():
                    raise Cancelled
                return tool.run(self._settings, arguments, on_progress, cancel)
            except Exception as error:
                return error

        self._under_way.add(cancel)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_with_scope, cancel)
                group.start_soon(_report, receive, context)
                result = await anyio.to_thread.run_sync(work, limiter=self._limiter)
                group.cancel_scope.cancel()
        finally:
            self._under_way.discard(cancel)
            send.close()
            receive.close()
        return result

    def _line(self, error: Exception) -> str:
        known = self._explain(error)
        if known is not None:
            return known[:2000]
        traceback.print_exception(error, file=sys.stderr)
        return f"internal error ({type(error).__name__}); the server's stderr says more"

    async def _end_on_signal(self) -> None:
        """End the process on a signal: on the first after the calls under way, on the second at once.

        It ends with `os._exit`, because the thread that reads stdin cannot be woken.
        """
        heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*heard) as signals:
            async with anyio.create_task_group() as group:
                seen = 0
                async for number in signals:
                    seen += 1
                    if seen > 1:
                        os._exit(128 + number)
                    group.start_soon(self._end, 128 + number)

    async def _end(self, status: int) -> None:
        deadline = anyio.current_time() + STOP_S
        while True:
            for cancel in list(self._under_way):
                cancel.request("interrupted")
            if not self._under_way or anyio.current_time() > deadline:
                os._exit(status)
            await anyio.sleep(0.05)


async def _cancel_with_scope(cancel: CancelToken) -> None:
    """Cancel the token when the call's scope is cancelled. This has no effect once the call is over."""
    try:
        await anyio.sleep_forever()
    finally:
        cancel.request("cancelled")


async def _report(steps: MemoryObjectReceiveStream[str], context: ServerRequestContext[Any]) -> None:
    """Send each step to the client as a progress notification, if the client asked for notifications."""
    count = 0
    async for text in steps:
        count += 1
        await context.session.report_progress(count, None, text[:300])


def _offer(steps: MemoryObjectSendStream[str], text: str) -> None:
    """Queue a step for the client. A client that reads too slowly misses some steps."""
    with contextlib.suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
        steps.send_nowait(text)


def _described(tool: ToolSpec) -> Tool:
    hints = ToolAnnotations(
        read_only_hint=tool.read_only, destructive_hint=False, idempotent_hint=tool.read_only, open_world_hint=False
    )
    schema = tool.arguments.model_json_schema()
    return Tool(name=tool.name, description=tool.description, input_schema=schema, annotations=hints)


def _failed(line: str) -> CallToolResult:
    clean = "".join(char if char.isprintable() else " " for char in line)
    return CallToolResult(content=[TextContent(type="text", text=clean)], is_error=True)


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])[:80] or "arguments"
    return f"{where}: {first['msg'][:1].lower()}{first['msg'][1:300]}"
