"""The progress of a running job on stderr: a table that is redrawn on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from service.cli.output import make_console, plain, ratio
from tasks.outcomes import DECISION_TEXTS, NO_CANDIDATE, Decision, Verdict, clock_of

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
    started: float = field(default_factory=time.monotonic)

    def apply(self, event: "Event") -> str | None:
        """Update the state by an event.

        Returns:
            A line that tells of the event where there is no table; None if the event needs none.
        """
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
            case "llm_failed" | "llm_fault" | "reply_rejected":
                return plain(data.get("message") or data.get("reason"))[:200]
            case "candidate":
                self.changes[event.round] = plain(data["change"])
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
        self.lines.append(line)
        if data["verdict"] == Verdict.PASSED:
            beside = ""
            if data.get("decision") is not None:
                over = ratio(data["over_champion"], data["over_champion_low"], data["over_champion_high"])
                beside = f"; {over} over the best so far ({DECISION_TEXTS[Decision(data['decision'])]})"
            return clock_of(data.get("tags") or ()).beside(f"passed, {speedup} over eager{beside}")
        return f"{verdict}: {plain(data['message'])[:200]}"

    def _proved(self, number: int, data: Mapping[str, Any]) -> str:
        """What the best candidate was measured to be in the end; it takes the place of its trial's figures."""
        line = self._line(number, data)
        *_, verdict, speedup = line
        self.lines = [line if known[0] == str(number) else known for known in self.lines]
        if data["verdict"] != Verdict.PASSED:
            return f"round {number}, the best so far, is refused: {verdict}: {plain(data['message'])[:160]}"
        self.best = clock_of(data.get("tags") or ()).beside(f"{speedup} over eager in round {number}, proven")
        return f"the best, measured once more: {speedup} over eager"

    def _line(self, number: int, data: Mapping[str, Any]) -> tuple[str, str, str, str]:
        """A round's line of the table: number, change, verdict, speedup over eager."""
        verdict = data["verdict"] if data["code"] is None else f"{data['verdict']} ({data['code']})"
        speedup = ratio(data["speedup"], data["speedup_low"], data["speedup_high"])
        return str(number), self.change(number), plain(verdict), speedup

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
        line = shown.apply(event)
        if line and line != last:
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
        style = "green" if line[2] == "passed" else "red"
        table.add_row(Text(line[0]), Text(line[1]), Text(line[2], style=style), Text(line[3]))
    if shown.round and str(shown.round) not in (line[0] for line in shown.lines):
        table.add_row(Text(str(shown.round)), Text(shown.change(shown.round)), Text("under way", style="dim"), Text(""))
    of = f"round {shown.round} of {shown.rounds}: " if shown.round else ""
    return Group(
        Text(shown.title, style="bold", overflow="fold"),
        *([table] if shown.round else []),
        Spinner("dots", Text(f"{of}{shown.step}", overflow="ellipsis", no_wrap=True)),
        Text(f"best {shown.best} · {shown.elapsed()} · {shown.cost()}", style="dim"),
    )
