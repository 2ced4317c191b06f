"""The tools that the strategy `tools` offers to the Coder, and how its calls are read and answered."""

import json
from dataclasses import dataclass

from agents.prompting.builder import evaluation_text, shorten
from agents.prompting.parse import candidate_problem
from agents.protocols import JSON, Outcome, Tool, ToolCall

MAX_RESULT_CHARS = 6_000  # of the detail and of the profile in an answer

_SOURCE: dict[str, JSON] = {
    "type": "object",
    "properties": {"source": {"type": "string", "description": "The whole Python file that defines ModelNew."}},
    "required": ["source"],
}
_NO_ARGUMENTS: dict[str, JSON] = {"type": "object", "properties": {}}

TOOLS = (
    Tool("read_reference", "The source of the op to optimize.", _NO_ARGUMENTS),
    Tool(
        "evaluate",
        "Build a candidate, check it for correctness, and time it against eager PyTorch and torch.compile. Says what is"
        " wrong and where, or how fast it is, how near it comes to the hardware's limit, and where its time goes.",
        _SOURCE,
    ),
    Tool("submit", "Hand in the final candidate. It must be correct; this ends the job.", _SOURCE),
)
_NAMES = tuple(tool.name for tool in TOOLS)


class ToolError(ValueError):
    """A call that cannot be carried out. Its text tells the model what to correct."""


@dataclass(frozen=True)
class ToolRequest:
    """A call that was read; `source` is the candidate, empty for `read_reference`."""

    tool: str
    source: str = ""


def parse_call(call: ToolCall) -> ToolRequest:
    """Read a model's call of a tool.

    Raises:
        ToolError: there is no such tool, the arguments break its schema, or the source is no candidate.
    """
    if call.name not in _NAMES:
        raise ToolError(f"there is no tool {call.name[:80]!r}; there are: {', '.join(_NAMES)}")
    if call.name == "read_reference":
        return ToolRequest(call.name)
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the arguments of {call.name} are not valid JSON: {error}") from error
    source = arguments.get("source") if isinstance(arguments, dict) else None
    if not isinstance(source, str):
        raise ToolError(f"{call.name} needs the argument 'source': the whole file as a string")
    problem = candidate_problem(source)
    if problem is not None:
        raise ToolError(f"this is no candidate: {problem}")
    return ToolRequest(call.name, source.rstrip() + "\n")


def evaluation_result(outcome: Outcome) -> str:
    """The answer of `evaluate` and `submit`: the evaluation as prompts show it, and the profile if there is one."""
    text = evaluation_text(outcome, max_detail_chars=MAX_RESULT_CHARS)
    if not outcome.profile_text:
        return text
    return f"{text}\n\nProfile:\n{shorten(outcome.profile_text, MAX_RESULT_CHARS)}"
