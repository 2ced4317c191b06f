"""Builds the messages for the Coder and the Judge from templates packaged as data."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from agents.ports import JSON, Message
from agents.rounds import Round, Subject, best_of, history_json
from agents.sections import render

MAX_DETAIL_CHARS = 8_000  # of an evaluation's detail (a compiler may print megabytes)
MAX_PROFILE_CHARS = 12_000
MAX_HISTORY_ROUNDS = 40

# Which exemplar comes nearest: work on single elements, or on rows.
_ELEMENTWISE = frozenset({"activation", "broadcast", "index", "math", "optimizer", "resize"})


@dataclass(frozen=True)
class Brief:
    """What stays the same in all prompts of a job, section by section."""

    task: str
    reference: str
    device: str
    platform: str
    exemplar: str


def load_brief(*, task_id: str, source: str, category: str, dtype: str, platform: str, device: str) -> Brief:
    """The lasting part of a job's prompts.

    Raises:
        ValueError: there are no rules for this platform; names those that exist.
    """
    prompts = files("agents") / "prompts"
    known = sorted(path.name.removesuffix(".md") for path in (prompts / "platforms").iterdir())
    if platform not in known:
        raise ValueError(f"platform {platform!r} has no prompt rules; known: {', '.join(known)}")
    rules = prompts / "platforms" / f"{platform}.md"
    hint = _category_hint(prompts / "categories" / f"{platform}.md", category)
    exemplars = files("agents") / "exemplars" / platform
    name = "activation" if category in _ELEMENTWISE else "normalization"
    return Brief(
        task=json.dumps({"id": task_id, "category": category, "dtype": dtype}),
        reference=source,
        device=device,
        platform=rules.read_text("utf-8").rstrip() + (f"\n\nFor {category} ops\n- {hint}" if hint else ""),
        exemplar=(
            "# The reference of this example\n"
            + (exemplars / f"{name}_task.py").read_text("utf-8")
            + "\n# A correct and fast answer to it\n"
            + (exemplars / f"{name}.py").read_text("utf-8").rstrip()
        ),
    )


def coder_messages(brief: Brief, request: str, subject: Subject | None, rounds: Sequence[Round]) -> list[Message]:
    """The Coder's prompt; `request` is write, improve or repair, `subject` what to change."""
    sections = {"request": request, **_common(brief), "exemplar": brief.exemplar, **_about(subject, rounds)}
    last = rounds[-1] if rounds else None
    if last is not None and last.advice is not None:
        sections["advice"] = _dumps(last.advice.to_json())
    if last is not None and last.repeat_of is not None:
        sections["note"] = (
            f"The file that you gave in round {last.number} is identical to that of round {last.repeat_of}, so it was"
            " not evaluated again. Give a different one."
        )
    elif last is not None and last.source is None:
        sections["note"] = f"Round {last.number} brought no usable file: {last.problem}"
    return [Message("system", _template("coder")), Message("user", render(sections) + "\n\n" + _template(request))]


def judge_messages(brief: Brief, subject: Subject, rounds: Sequence[Round]) -> list[Message]:
    """The Judge's prompt about `subject`: repair mode if it failed, improve mode if it passed."""
    request = judge_request(subject)
    sections = {"request": request, **_common(brief), **_about(subject, rounds)}
    return [Message("system", _template("judge")), Message("user", render(sections) + "\n\n" + _template(request))]


def judge_request(subject: Subject) -> str:
    """`judge-improve` for a candidate that passed, else `judge-repair`."""
    return "judge-improve" if subject.outcome.passed else "judge-repair"


def _common(brief: Brief) -> dict[str, str]:
    return {
        "task": brief.task,
        "device": brief.device,
        "platform": brief.platform,
        "reference": brief.reference,
    }


def _about(subject: Subject | None, rounds: Sequence[Round]) -> dict[str, str]:
    sections: dict[str, str] = {}
    best = best_of(rounds)
    if subject is not None:
        outcome = subject.outcome.to_json()
        profile = str(outcome.pop("profile_text", ""))
        outcome["detail"] = _shorten(subject.outcome.detail, MAX_DETAIL_CHARS)
        sections["candidate"] = subject.source
        sections["evaluation"] = _dumps(outcome)
        if profile:
            sections["profile"] = _shorten(profile, MAX_PROFILE_CHARS)
    if best is not None and best != subject:
        sections["best"] = best.source
    if rounds:
        sections["history"] = _dumps(history_json(rounds[-MAX_HISTORY_ROUNDS:]))
    return sections


def _template(name: str) -> str:
    return (files("agents") / "prompts" / f"{name}.md").read_text("utf-8").rstrip()


def _category_hint(path: Traversable, category: str) -> str:
    if not path.is_file():
        return ""
    for block in path.read_text("utf-8").split("## ")[1:]:
        heading, _, text = block.partition("\n")
        if category in [name.strip() for name in heading.split(",")]:
            return text.strip()
    return ""


def _shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text longer than `limit`: the first and last lines of an error say most."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _dumps(value: Mapping[str, JSON] | Sequence[JSON]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
