"""docs/platforms.md says what each member of the seam must promise."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "platforms.md").read_text()
SEAMS = (
    "evaluator/platforms/base.py",
    "evaluator/referee/platforms/base.py",
    "evaluator/referee/runner/platforms/base.py",
)


def members(path: str) -> dict[str, set[str]]:
    """The methods and attributes of each Protocol of a file."""
    return {
        node.name: {
            part.name if isinstance(part, ast.FunctionDef) else ast.unparse(part.target)
            for part in node.body
            if isinstance(part, ast.FunctionDef | ast.AnnAssign)
        }
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    }


def test_every_protocol_is_found() -> None:
    found = [name for path in SEAMS for name in members(path)]
    assert found == [
        *("Platform", "InputBuffer", "Account", "InterferenceMeter", "Platform", "PlatformImports", "RunnerPlatform")
    ]


@pytest.mark.parametrize("path", SEAMS)
def test_the_page_names_every_member_of_every_protocol(path: str) -> None:
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE))
    missing = {name: left for name, found in members(path).items() if (left := found - named)}
    assert missing == {}
