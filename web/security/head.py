"""HEAD requests: every address that answers GET answers HEAD with the same status and headers, and no body."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Answered(Exception):
    """Ends the making of a body that goes on, such as a stream's: nobody will read it."""


class HeadMiddleware:
    """Has HEAD requests answered as GET requests, and sends all but the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        asked: Scope = {**scope, "method": "GET"}  # the server itself must go on seeing HEAD
        ended = False

        async def send_without_body(message: Message) -> None:
            nonlocal ended
            if message["type"] != "http.response.body":
                await send(message)
                return
            if not ended:
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            if message.get("more_body", False):
                raise _Answered

        try:
            await self._app(asked, receive, send_without_body)
        except _Answered:
            pass
        finally:
            if "route" in asked:
                scope["route"] = asked["route"]  # for the log
