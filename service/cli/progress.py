"""The progress of a running job on stderr: a table that is redrawn on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evaluator.phases import doing
from service.cli.output import make_console, plain, ratio
from tasks.outcomes import (
    DECISION_TEXTS,
    NO_CANDIDATE,
    RIGHT,
    UNDER_WAY,
    Decision,
    Verdict,
    clock_of,
    shown_untimed,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from agents.protocols import Event
    from service.jobs.journal import Observer


ACTIVITIES = {
    "write": "the Coder writes",
    "improve": "the Coder improves",
    "repair": "the Coder repairs",
    "contrast": "the Coder contrasts candidates",
    "tools": "the Coder works with tools",
    "judge-improve": "the Judge looks at it",
    "judge-repair": "the Judge looks at it",
}
"""By request: the text that is shown until it is answered."""

_GOES_ON = frozenset({"job_started", "round_started", "llm_started", "llm_fault", "llm_call", "reply_rejected"})
"""Kinds of events of a job that asks its models on."""


@dataclass
class ProgressState:
    """The state of the progress display."""

    title: str
    rounds: int = 0
    round: int = 0
    step: str = "starting"
    cost_usd: float = 0.0
    cost_known: bool = True
    best: str = "none yet"
    lines: list[tuple[str, str, str, str]] = field(default_factory=list)
    changes: dict[int, str] = field(default_factory=dict)
    labels: dict[tuple[int, str], str] = field(default_factory=dict)  # of variants, by round and hash
    places: dict[tuple[int, str], int] = field(default_factory=dict)  # in `lines`, by round and hash
    started: float = field(default_factory=time.monotonic)
    over: bool = False
    failure: str = ""  # of the last call, until the job goes on; if it ended the job, the report says so

    def apply(self, event: "Event") -> str | None:
        """Update the state by an event.

        Returns:
            Lines that tell of the event where there is no table; None if the event needs none.
        """
        if event.kind == "llm_failed":
            self.failure = plain(event.data.get("message"))[:200]
            return None
        told = self._apply(event)
        if event.kind not in _GOES_ON:
            self.over = self.over or event.kind == "job_stopped"
            return told
        failure, self.failure, self.over = self.failure, "", False
        return "\n".join(line for line in (failure, told) if line) or None

    def _apply(self, event: "Event") -> str | None:
        data: Mapping[str, Any] = event.data
        self.round = event.round or self.round
        match event.kind:
            case "job_started":
                self.rounds = data["rounds"]
                self.step = "starting"
                return None
            case "step":
                self.step = plain(data["text"])
                return self.step
            case "phase":  # of a server's job; one of this machine gives its steps
                self.step = doing(plain(data["phase"]))
                return self.step
            case "round_started":
                self.step = ACTIVITIES.get(data["request"], data["request"])
                return self.step
            case "llm_started":
                self.step = ACTIVITIES.get(data["purpose"], data["purpose"])
                return None
            case "llm_call":
                self.cost_usd += data["cost_usd"] or 0.0
                self.cost_known = self.cost_known and data["cost_usd"] is not None
                return None
            case "llm_fault" | "reply_rejected":
                return plain(data.get("message") or data.get("reason"))[:200]
            case "candidate":
                self.changes[event.round] = plain(data["change"])
                if data.get("label"):
                    self.labels[event.round, data["hash"]] = plain(data["label"])
                self.step = "evaluating"
                return None
            case "evaluated":
                return self._evaluated(event.round, data)
            case "proof_started":
                self.step = "measuring the best candidate once more, at full precision"
                return self.step
            case "proved":
                return self._proved(event.round, data)
            case "round_done":
                if data["verdict"] == NO_CANDIDATE:
                    self.lines.append((str(event.round), self.change(event.round), "no candidate", "-"))
                    return "no candidate"
                return None
            case "advice":
                self.changes.setdefault(event.round + 1, plain(data.get("change")))
                return f"the Judge: {plain(data.get('change'))[:160]}"
            case "best":
                if data["speedup"] is None:  # screened
                    self.best = f"round {event.round}: {shown_untimed(data.get('tags') or ())}"
                    return f"best so far: {self.best}"
                over_eager = clock_of(data.get("tags") or ()).beside(f"{data['speedup']:.2f}x over eager")
                self.best = f"{over_eager} in round {event.round}"
                return f"best so far: {self.best}"
            case _:
                return None

    def elapsed(self) -> str:
        """The time since the start, as minutes and seconds."""
        seconds = int(time.monotonic() - self.started)
        return f"{seconds // 60}:{seconds % 60:02}"

    def cost(self) -> str:
        """The cost so far in dollars."""
        return f"${self.cost_usd:.4f}" if self.cost_known else f"${self.cost_usd:.4f} + calls of unknown price"

    def _evaluated(self, number: int, data: Mapping[str, Any]) -> str:
        line = self._line(number, data)
        *_, verdict, speedup = line
        self.places[number, data["candidate_hash"]] = len(self.lines)
        self.lines.append(line)
        if data["verdict"] == Verdict.PASSED:
            beside = ""
            if data.get("decision") is not None:
                over = ratio(data["over_champion"], data["over_champion_low"], data["over_champion_high"])
                beside = f"; {over} over the best so far ({DECISION_TEXTS[Decision(data['decision'])]})"
            return clock_of(data.get("tags") or ()).beside(f"passed, {speedup} over eager{beside}")
        if data["verdict"] == Verdict.SCREENED:
            return f"{verdict}: {shown_untimed(data.get('tags') or ())}"
        return f"{verdict}: {plain(data['message'])[:200]}"

    def _proved(self, number: int, data: Mapping[str, Any]) -> str:
        """What the best candidate was measured to be in the end; it takes the place of its trial's figures."""
        line = self._line(number, data)
        *_, verdict, speedup = line
        place = self.places.get((number, data["candidate_hash"]))
        if place is not None:
            self.lines[place] = line
        if data["verdict"] != Verdict.PASSED:
            return f"round {number}, the best so far, is refused: {verdict}: {plain(data['message'])[:160]}"
        self.best = clock_of(data.get("tags") or ()).beside(f"{speedup} over eager in round {number}, proven")
        return f"the best, measured once more: {speedup} over eager"

    def _line(self, number: int, data: Mapping[str, Any]) -> tuple[str, str, str, str]:
        """A candidate's line of the table: round, change or what sets a variant apart, verdict, speedup over eager."""
        verdict = data["verdict"] if data["code"] is None else f"{data['verdict']} ({data['code']})"
        speedup = ratio(data["speedup"], data["speedup_low"], data["speedup_high"])
        label = self.labels.get((number, data["candidate_hash"]))
        return str(number), label or self.change(number), plain(verdict), speedup

    def change(self, number: int) -> str:
        """The change that the candidate of this round is meant to make."""
        return self.changes.get(number, "first candidate" if number <= 1 else "")


@contextlib.contextmanager
def show_progress(title: str) -> Iterator["Observer"]:
    """Show progress while the block runs. The block passes the job's events to the observer that it gets."""
    shown = ProgressState(title)
    if sys.stderr.isatty():
        with _live_table(shown) as observe:
            yield observe
        return
    last = ""

    def tell(event: "Event") -> None:
        nonlocal last
        for line in (shown.apply(event) or "").splitlines():
            if line != last:
                last = line
                place = f"round {shown.round}/{shown.rounds}: " if shown.round else ""
                print(f"[{shown.elapsed():>5}] {place}{line}", file=sys.stderr, flush=True)

    print(title, file=sys.stderr, flush=True)
    yield tell


@contextlib.contextmanager
def _live_table(shown: ProgressState) -> Iterator["Observer"]:
    from rich.live import Live

    console = make_console(stderr=True)
    with Live(console=console, refresh_per_second=4, get_renderable=lambda: _render(shown), transient=True):

        def tell(event: "Event") -> None:
            shown.apply(event)

        yield tell


def _render(shown: ProgressState) -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=False)
    table.add_column("round", justify="right")
    table.add_column("change", overflow="ellipsis", no_wrap=True, max_width=30)
    table.add_column("verdict")
    table.add_column("over eager", justify="right", no_wrap=True)
    for line in shown.lines[-12:]:
        style = "green" if line[2] in RIGHT else "red"
        table.add_row(Text(line[0]), Text(line[1]), Text(line[2], style=style), Text(line[3]))
    if shown.round and not shown.over and str(shown.round) not in (line[0] for line in shown.lines):
        table.add_row(Text(str(shown.round)), Text(shown.change(shown.round)), Text(UNDER_WAY, style="dim"), Text(""))
    of = f"round {shown.round} of {shown.rounds}: " if shown.round else ""
    return Group(
        Text(shown.title, style="bold", overflow="fold"),
        *([table] if shown.round else []),
        Spinner("dots", Text(f"{of}{shown.step}", overflow="ellipsis", no_wrap=True)),
        Text(f"best {shown.best} · {shown.elapsed()} · {shown.cost()}", style="dim"),
    )
