"""docs/agents.md and README.md name commands, options, tools and files that there are."""

import re
from pathlib import Path

import pytest
import typer

from agents.manual.files import KINDS, MAX_REPLY_BYTES, STABLE_S, reply_names
from service.cli.app import build_app
from service.mcp.tools import tool_specs

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / name).read_text() for name in ("README.md", "docs/agents.md")}
COMMANDS = [
    (name, line)
    for name, page in PAGES.items()
    for line in re.findall(r"kernelwright(?: [^`#\n]+)", page)
    if "{" not in line
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_with_its_options_is_there(page, line):
    words = line.split()[1:]
    command = typer.main.get_command(build_app())
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if command.name is None:
        assert not words or not words[0].isalpha(), f"{page}: {line}: no such command"
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_page_names_every_tool_and_every_kind_of_reply():
    page = PAGES["docs/agents.md"]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [tool.name for tool in tool_specs()]
    for name in reply_names("001-write"):
        assert f"| `{name}` |" in page
    assert len(KINDS) == 3
    assert (MAX_REPLY_BYTES, STABLE_S) == (2 * 1024 * 1024, 0.5)  # "at most 2 MiB", "half a second"
