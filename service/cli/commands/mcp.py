"""`kernelwright mcp`."""

from typing import Annotated

import typer

from service.cli.options import Platform, SandboxName


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright mcp --platform cpu")(mcp)


def mcp(
    platform: Platform = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
) -> None:
    """Serve the tools evaluate, profile, task and leaderboard to an agent, by MCP over stdin and stdout.

    Register it with the agent as the command `kernelwright mcp`. It ends when its client closes stdin.
    What a client sends runs in Docker; --sandbox process is for clients that you trust like yourself.
    """
    import sys

    from service.cli.errors import failure_of
    from service.cli.output import note
    from service.mcp.server import serve
    from service.settings import load_settings

    def explain(error: Exception) -> str | None:
        failure = failure_of(error)
        return None if failure.kind == "internal" else failure.message

    settings = load_settings(platform=platform, sandbox=sandbox, image=image)
    if sys.stdin.isatty():
        note("waiting for an MCP client on stdin; agents start this command by themselves (Ctrl-C ends it)")
    serve(settings, explain)
