"""Builds the prompts of Coder and Judge: templates from `agents/prompts`, and sections with what is known."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from agents.history import EvaluatedCandidate, Round, best_of, history_json, lessons_of
from agents.memory import NO_MEMORY, Memory, kernels_text, lessons_json
from agents.prompting.parse import Advice
from agents.prompting.prompt_pack import PromptPack
from agents.prompting.sections import render
from agents.protocols import JSON, Message, Outcome
from tasks.outcomes import clock_of, remark
from tasks.source_kernel import SourceKernel, reference_kernel_of, source_kernel_of, without_source_kernel

MAX_DETAIL_CHARS = 8_000  # of an evaluation's detail: a compiler may print megabytes
MAX_PROFILE_CHARS = 12_000
MAX_HISTORY_ROUNDS = 40
SIGNIFICANT_DIGITS = 5
_IS_REFERENCE = (
    "The op has no other form: this kernel is the reference. It is run in an emulation of its platform, and your "
    "outputs are compared with its own. Your `ModelNew` takes the same arguments and inputs as the one in it."
)
_NO_MAPPING = "Take its algorithm over, and give it the form that `<platform>` asks for."


@dataclass(frozen=True)
class Brief:
    """The sections that are the same in all prompts of a job.

    `sources` are those of a job that translates a kernel; `kernels` and `lessons`, of what earlier jobs have proven.
    """

    task: str
    reference: str
    device: str
    platform: str
    exemplar: str
    sources: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    lessons: Mapping[str, str] = field(default_factory=dict)

    @property
    def examples(self) -> dict[str, str]:
        """The sections of kernels for other ops, which the Coder alone gets."""
        return {"exemplar": self.exemplar, **self.kernels}


def write_brief(
    *,
    task_id: str,
    source: str,
    category: str,
    dtype: str,
    device: str,
    prompts: PromptPack,
    source_language: str = "",
    memory: Memory = NO_MEMORY,
) -> Brief:
    """The sections that are the same in all prompts of a job.

    Args:
        task_id: `suite/name`.
        source: the source of the op.
        category: chooses the hint and the exemplar; without an exemplar of its own, the op's operators choose.
        dtype: the op's.
        device: the text about the device.
        prompts: the platform's rules, hints and exemplars.
        source_language: what the kernel that the op brings is written in.
        memory: what earlier jobs have proven.

    Raises:
        TaskError: the kernel that the op brings cannot be read.
    """
    kernel = source_kernel_of(source)
    known = prompts.category_for(category, source)
    hints = {name: prompts.hints[name] for name in (category, known) if name is not None and name in prompts.hints}
    exemplar = prompts.exemplar(known)
    return Brief(
        task=json.dumps({"id": task_id, "category": category, "dtype": dtype}),
        reference=without_source_kernel(source),
        device=device,
        platform=prompts.rules + "".join(f"\n\nFor {name} ops\n- {hint}" for name, hint in hints.items()),
        exemplar=(
            "# The reference of this example\n"
            + exemplar.task
            + "\n# A correct and fast answer to it\n"
            + exemplar.candidate
        ),
        sources={} if kernel is None else _source_sections(kernel, source_language, prompts.sources, source),
        kernels={"known_kernels": kernels_text(memory.kernels)} if memory.kernels else {},
        lessons={"known_lessons": _dumps(lessons_json(memory.lessons))} if memory.lessons else {},
    )


def coder_messages(
    brief: Brief,
    request: str,
    candidate: EvaluatedCandidate | None,
    rounds: Sequence[Round],
    *,
    advice: Advice | None = None,
    note: str = "",
    variants: bool = True,
) -> list[Message]:
    """The Coder's prompt.

    Args:
        brief: the job's sections.
        request: write, improve or repair.
        candidate: the candidate to change; None: there is none.
        rounds: the rounds so far.
        advice: the Judge's.
        note: one more remark.
        variants: whether the Coder may hand in several variants of one idea.
    """
    sections = {
        "request": request,
        **_job_sections(brief),
        **brief.examples,
        **_candidate_sections(candidate, rounds),
    }
    last = rounds[-1] if rounds else None
    notes = [note] if note else []
    if advice is not None:
        sections["advice"] = _advice_json(advice)
    if last is not None and last.repeat_of is not None:
        notes.append(
            f"The file that you gave in round {last.number} is identical to that of round {last.repeat_of}, so it was"
            " not evaluated again. Give a different one."
        )
    elif last is not None and last.problem:
        what = "had variants that were not judged" if last.source else "brought no usable file"
        notes.append(f"Round {last.number} {what}: {last.problem}")
    return _coder_prompt(sections, request, notes, variants=variants)


def contrast_messages(brief: Brief, scored: Sequence[EvaluatedCandidate], rounds: Sequence[Round]) -> list[Message]:
    """The Coder's prompt with several correct candidates and their measured speed, the fastest last."""
    shown = [
        f"# Candidate {number} of {len(scored)}: {candidate.outcome.speedup:.3f} times as fast as eager"
        f" ({_latency(candidate)})\n{candidate.source.rstrip()}"
        for number, candidate in enumerate(scored, start=1)
    ]
    sections = {"request": "contrast", **_job_sections(brief), **brief.examples, "scored": "\n\n".join(shown)}
    return _coder_prompt({**sections, **_history_sections(rounds)}, "contrast", [], variants=True)


def tools_messages(brief: Brief, seed: EvaluatedCandidate | None, evaluations: int) -> list[Message]:
    """The first prompt of the strategy `tools`; `evaluations` is the most files that are evaluated."""
    sections = {"request": "tools", "task": brief.task, "device": brief.device, "platform": brief.platform}
    sections |= {**brief.sources, **brief.lessons, **brief.examples, **_candidate_sections(seed, ())}
    sections["note"] = f"At most {evaluations} different files are evaluated."
    return [Message("system", _system(sections, "tools-system")), Message("user", _user_text(sections, "tools"))]


def judge_messages(
    brief: Brief, candidate: EvaluatedCandidate, rounds: Sequence[Round], *, note: str = ""
) -> list[Message]:
    """The Judge's prompt about a candidate; `note` is one more remark."""
    request = judge_request(candidate)
    sections = {"request": request, **_job_sections(brief), **_candidate_sections(candidate, rounds)}
    if candidate.outcome.metrics:
        sections["metrics"] = _dumps(candidate.outcome.metrics)
    if note:
        sections["note"] = note
    return [Message("system", _system(sections, "judge")), Message("user", _user_text(sections, request))]


def shorten(text: str, limit: int) -> str:
    """A text with its middle left out if it is longer than `limit`: errors say most in their first and last lines."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def evaluation_text(outcome: Outcome, *, max_detail_chars: int = MAX_DETAIL_CHARS) -> str:
    """What prompts show of an evaluation: JSON with one field a line, without its profile and metrics.

    Fields without a value are left out, and tags that qualify its figures stand with what they mean.
    """
    shown = outcome.to_json()
    for name in ("profile_text", "metrics", "evaluation_id", "took_s", "champion_hash"):
        shown.pop(name, None)
    for name in ("over_champion", "over_champion_low", "over_champion_high"):
        shown[name.replace("over_champion", "over_best_so_far")] = shown.pop(name)
    shown["detail"] = "" if outcome.detail == outcome.message else shorten(outcome.detail, max_detail_chars)
    shown["tags"] = [remark(tag) for tag in outcome.tags]
    if (clock := clock_of(outcome.tags)).note:
        shown["timed"] = clock.name
    return _dumps({name: value for name, value in shown.items() if value not in (None, "", [], {})})


def profile_text(outcome: Outcome) -> str:
    """What prompts show of an outcome's profile."""
    return shorten(outcome.profile_text, MAX_PROFILE_CHARS)


def judge_request(candidate: EvaluatedCandidate) -> str:
    """What the Judge is asked for: `judge-improve` if the candidate is correct, else `judge-repair`."""
    return "judge-improve" if candidate.outcome.right else "judge-repair"


def _job_sections(brief: Brief) -> dict[str, str]:
    return {
        "task": brief.task,
        "device": brief.device,
        "platform": brief.platform,
        "reference": brief.reference,
        **brief.sources,
        **brief.lessons,
    }


def _source_sections(kernel: SourceKernel, language: str, texts: Mapping[str, str], task_source: str) -> dict[str, str]:
    """The kernel to translate from, and how. What the task says of it is data like the kernel itself."""
    about = [f"Entry: {kernel.entry}"] if kernel.entry else []
    about += [f"Notes: {kernel.notes}"] if kernel.notes else []
    written = kernel.platform + (f": {language}" if language else "")
    said = f"`<source_kernel>` is in the language of platform {written}."
    if reference_kernel_of(task_source) is not None:
        said = f"{said} {_IS_REFERENCE}"
    return {
        "source_kernel": "\n".join((*about, kernel.source.rstrip())),
        "translation": f"{said}\n{texts.get(kernel.platform, _NO_MAPPING)}",
    }


def _candidate_sections(candidate: EvaluatedCandidate | None, rounds: Sequence[Round]) -> dict[str, str]:
    sections: dict[str, str] = {}
    best = best_of(rounds)
    if candidate is not None:
        sections["candidate"] = candidate.source
        sections["evaluation"] = evaluation_text(candidate.outcome)
        if candidate.outcome.profile_text:
            sections["profile"] = profile_text(candidate.outcome)
    if best is not None and (candidate is None or best.source != candidate.source):
        sections["best"] = best.source
    return {**sections, **_history_sections(rounds)}


def _history_sections(rounds: Sequence[Round]) -> dict[str, str]:
    """The history of a job, and the lessons from it."""
    sections: dict[str, str] = {}
    if lessons := lessons_of(rounds):
        sections["lessons"] = "\n".join(f"- {lesson.kind}: {lesson.text}" for lesson in lessons)
    if rounds:
        sections["history"] = _dumps(history_json(rounds[-MAX_HISTORY_ROUNDS:]))
    return sections


def _coder_prompt(sections: dict[str, str], request: str, notes: Sequence[str], *, variants: bool) -> list[Message]:
    if notes:
        sections["note"] = "\n".join(notes)
    system = _system(sections, "coder", *(["variants"] if variants else []))
    return [Message("system", system), Message("user", _user_text(sections, request))]


def _system(sections: Mapping[str, str], *names: str) -> str:
    """A system message of these templates; others say what the sections are that only some jobs have."""
    parts = ["\n".join(_template(name) for name in names)]
    parts += [_template("source-kernel")] * ("source_kernel" in sections)
    return "\n\n".join(parts + [_template("memory")] * ("known_kernels" in sections or "known_lessons" in sections))


def _user_text(sections: Mapping[str, str], request: str) -> str:
    return render(sections) + "\n\n" + _template(request)


def _advice_json(advice: Advice) -> str:
    """The advice without its lessons, which have a section of their own."""
    return _dumps({key: value for key, value in advice.to_json().items() if key != "lessons"})


def _latency(candidate: EvaluatedCandidate) -> str:
    latency = candidate.outcome.latency_ms.get("candidate")
    clock = clock_of(candidate.outcome.tags)
    return clock.beside("latency not known" if latency is None else clock.latency(latency))


def _template(name: str) -> str:
    return (files("agents") / "prompts" / f"{name}.md").read_text("utf-8").rstrip()


def _dumps(value: Mapping[str, JSON] | Sequence[JSON]) -> str:
    return json.dumps(_rounded(value), ensure_ascii=False, indent=1)


def _rounded(value: JSON) -> JSON:
    """The value with its floating-point numbers cut to the digits that a measurement can have."""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(inner) for inner in value]
    return value
