"""What pages and commands say about jobs: why they ended, what to do about it, and the tokens of their models."""

from agents.llm.models import only_builtin
from db.records import JobRecord
from service.jobs.activity import Activity, Waiting
from service.transcripts.render import NO_TOKENS

STOPS = {
    "rounds": "all of its rounds are done",
    "budget": "the budget is spent, or the next call could exceed it",
    "too_little_to_gain": "the other regions of its model have left too little to gain",
    "plateau": "too many rounds brought nothing better",
    "roofline": "the best candidate is within reach of the hardware's limit",
    "shown": "all is shown of the best candidate that can be shown without the device",
    "judge": "the Judge sees nothing left worth trying",
    "submitted": "the Coder handed in what it found best",
    "planned": "only a plan of the model was asked for",
    "proven": "the model with its kernels is proven",
    "nothing_faster": "nothing was found that makes the model faster end to end",
    "not_proven": "the proof refuses the model with its kernels",
    "cancelled": "someone cancelled it",
    "interrupted": "its process was stopped or died",
    "model_unavailable": "the model cannot be used",
    "llm_error": "the model gave no reply",
    "task_invalid": "the task cannot be judged",
    "sandbox_error": "the evaluator could not do its work",
    "sandbox_unavailable": "there was no sandbox to work in",
    "error": "something went wrong in the program itself",
}

REMEDIES = {
    "model_unavailable": "Check the model's name, and that the workers have its provider's key in their environment; "
    "then resume the job. What was paid for is not paid again.",
    "llm_error": "Look at the message; when the provider answers again, resume the job: it goes on where it stopped.",
    "task_invalid": "The op needs a change; `kernelwright tasks check` tells what is wrong with it. Submit it anew.",
    "sandbox_error": "See the log; `kernelwright doctor` on the worker's machine says what it lacks. Resume it then.",
    "sandbox_unavailable": "Run `kernelwright doctor` on the worker's machine, put right what it names, and resume.",
    "error": "Resume the job; if it fails again, report it with the message above.",
}

LIMIT_NAMES = {
    "rounds": "Rounds",
    "budget_usd": "Dollars",
    "budget_tokens": "Tokens",
    "budget_s": "Seconds",
    "budget_evaluations": "Evaluations",
}
"""What pages call the limits of a job."""


def activity_line(activity: Activity) -> str:
    """What a job is doing, for how long and whom it waits for, as one line."""
    place = f"round {activity.round}: " if activity.round else ""
    proof = ", the best candidate once more at full precision" if activity.proof else ""
    usually = f" of usually {activity.usual_s:.0f} s" if activity.usual_s else ""
    return f"{place}{activity.doing}{proof}, {activity.elapsed_s:.0f} s{usually}{_waiting_text(activity.waiting)}"


def _waiting_text(waiting: Waiting | None) -> str:
    if waiting is None:
        return ""
    held = ", ".join(map(str, waiting.held_by))
    has = f"job{'' if len(waiting.held_by) == 1 else 's'} {held} {'has' if len(waiting.held_by) == 1 else 'have'} it"
    parts = [f"{waiting.ahead} before it"]
    if waiting.workers is not None:
        parts.append(f"{waiting.workers} workers alive")
    if waiting.held_by:
        parts.append(f"{has}{f' ({waiting.doing})' if waiting.doing else ''}")
    return f"; {', '.join(parts)}"


def tokens_of_job(job: JobRecord) -> str:
    """The tokens that a job's models used."""
    return NO_TOKENS if only_builtin(job.model, job.options.get("judge_model")) else f"{job.tokens:,}"
