"""The tools that a Coder may call: what they are, and what one call with hostile arguments means."""

import json
from dataclasses import dataclass

from agents.prompting.builder import shorten
from agents.prompting.parse import candidate_problem
from agents.protocols import JSON, Outcome, Tool, ToolCall
from tasks.outcomes import Verdict

MAX_RESULT_CHARS = 6_000

_SOURCE: dict[str, JSON] = {
    "type": "object",
    "properties": {"source": {"type": "string", "description": "The whole Python file that defines ModelNew."}},
    "required": ["source"],
}
_NOTHING: dict[str, JSON] = {"type": "object", "properties": {}}

TOOLS = (
    Tool("read_reference", "The source of the op to optimize.", _NOTHING),
    Tool("build", "Build a candidate; says whether it builds and loads, or what the compiler said.", _SOURCE),
    Tool("check", "Check a candidate for correctness; says what is wrong and where.", _SOURCE),
    Tool("time", "Time a correct candidate against eager PyTorch and torch.compile.", _SOURCE),
    Tool("profile", "Where a correct candidate's time goes, and how near it comes to the hardware's limits.", _SOURCE),
    Tool("submit", "Hand in the final candidate. It must be correct; this ends the job.", _SOURCE),
)
_NAMES = tuple(tool.name for tool in TOOLS)


class ToolError(ValueError):
    """A call that cannot be carried out. Its text tells the model what to mend."""


@dataclass(frozen=True)
class Request:
    """What a call asks for; `source` is empty for `read_reference`."""

    tool: str
    source: str = ""


def read_call(call: ToolCall) -> Request:
    """What a model's call asks for.

    Raises:
        ToolError: no such tool, arguments that are not as its schema says, or a file that is no candidate.
    """
    if call.name not in _NAMES:
        raise ToolError(f"there is no tool {call.name[:80]!r}; there are: {', '.join(_NAMES)}")
    if call.name == "read_reference":
        return Request(call.name)
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
    return Request(call.name, source.rstrip() + "\n")


def result_of(tool: str, outcome: Outcome) -> str:
    """What a tool says of an evaluation, as JSON; bounded."""
    built = outcome.verdict != Verdict.BUILD_FAILED
    said: dict[str, JSON]
    if tool == "build" or not built:
        said = {"built": built}
        if not built:
            said |= {"message": outcome.message, "detail": shorten(outcome.detail, MAX_RESULT_CHARS)}
    elif not outcome.passed:
        said = {"verdict": outcome.verdict, "code": outcome.code, "message": outcome.message}
        said["detail"] = shorten(outcome.detail, MAX_RESULT_CHARS)
    elif tool == "profile":
        said = {"roofline_fraction": outcome.roofline_fraction, "roofline_bound": outcome.roofline_bound}
        said |= {"profile": shorten(outcome.profile_text, MAX_RESULT_CHARS)}
    elif tool == "check":
        said = {"verdict": outcome.verdict, "tags": list(outcome.tags)}
    else:
        said = {
            "verdict": outcome.verdict,
            "tags": list(outcome.tags),
            "latency_ms": dict(outcome.latency_ms),
            "speedup_over_eager": outcome.speedup,
            "interval_95": [outcome.speedup_low, outcome.speedup_high],
            "speedup_over_torch_compile": outcome.speedup_compile,
            "roofline_fraction": outcome.roofline_fraction,
        }
    return json.dumps(said, ensure_ascii=False)
