"""The output for a job's or an evaluation's result: a table for people, and a JSON object."""

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from agents.llm.models import is_builtin
from agents.memory import MemoryMode
from evaluator.evaluation import noise_of
from evaluator.referee.protocol.baselines import BASELINES, USUAL, title_of
from service.cancellation import CancelToken
from service.cli.output import job_json, latency, make_console, note, plain, print_json, print_table, ratio
from service.errors import BadRequest, Unavailable
from service.evaluate import repeat_summary
from service.jobs.memory import MEMORY, memory_counts
from service.jobs.run import NOTHING_TO_WORK_WITH, JobReport
from service.views.wording import activity_line, tokens_of_job
from tasks.outcomes import CHECK_RESULTS, GUARDED, RIGHT, TAGS, TRIAL, Clock, Verdict, check_result, clock_of, explain

if TYPE_CHECKING:
    from db.records import JobRecord
    from service.jobs.activity import Activity
    from service.jobs.memory import ToldMemory
    from service.jobs.run import JobReport

WIDTH = 80
INDENT = " " * 11
NOT_AN_LLM = "builtin/compiler (a compiler search, not an LLM)"
_SMALLER = {
    "smaller_inputs": "smaller, because a call on the task's own takes too long here",
    "smaller_in_checks": "smaller still for races, bounds and order",
}
NO_BOUNDARY = "the process sandbox is no security boundary: believe this as far as you believe the code that ran"


def report_json(report: "JobReport") -> dict[str, Any]:
    """The JSON object that `optimize --json` and `jobs resume --json` print."""
    return {
        "schema": "kernelwright.job/1",
        "job": job_json(report.job),
        "stop": {"reason": report.stop_reason, "detail": report.stop_detail},
        "unsettled_usd": report.unsettled_usd,
        "unpriced_calls": report.unpriced_calls,
        "summary": dict(report.summary),
        "best": None if report.best is None else report.best.result,
        "kernel": None if report.exported is None else str(report.exported.kernel),
        "report": None if report.exported is None else str(report.exported.report),
    }


def show_report(report: "JobReport") -> None:
    """Print the result of a job, at the end of `optimize` and `jobs resume`."""
    job = report.job
    _line(f"{job.task.ref} on {job.platform}, job {job.id}: {report.stop_reason}", report.stop_detail)
    if report.best is None:
        _line("No candidate passed.")
    else:
        show_evaluation(report.best.result, last="best candidate")
    show_spent(job, report.unsettled_usd, report.unpriced_calls, report.summary)
    if is_builtin(job.model or ""):
        _line(f"model      {NOT_AN_LLM}")
    if report.exported is not None:
        _verbatim(f"kernel     {report.exported.kernel}")
        _verbatim(f"report     {report.exported.report}")


def show_activity(activity: "Activity | None") -> None:
    """Print what a job is doing; nothing if it has ended."""
    if activity is not None:
        _line(f"now        {activity_line(activity)}")


def show_spent(job: "JobRecord", unsettled_usd: float, unpriced_calls: int, summary: Mapping[str, Any]) -> None:
    """Print the cost of a job, and the figures that its strategy counted."""
    unsettled = f" and at most ${unsettled_usd:.4f} for calls that were cut off" if unsettled_usd else ""
    unpriced = f" and {unpriced_calls} calls of unknown price (--price says it)" if unpriced_calls else ""
    _line(f"spent      {job.rounds_done} rounds, {tokens_of_job(job)} tokens, ${job.cost_usd:.4f}{unpriced}{unsettled}")
    if chances := summary.get("pass_at_k"):
        shown = ", ".join(f"pass@{k} {chance:.2f}" for k, chance in chances.items())
        _line(f"tries      {summary['passed']} of {summary['tries']} passed; {shown}")


def show_results(
    results: Sequence[Mapping[str, Any]], repeat: int, *, profile: bool, platform: str, as_json: bool
) -> None:
    """Print the results of `evaluate`.

    Args:
        results: the results of the evaluations that were done.
        repeat: the number of evaluations that the command asked for.
        profile: whether to print the profile of the first evaluation that passed. The JSON object holds each profile.
        platform: the platform, which formats the profile.
        as_json: whether to print JSON.
    """
    if as_json:
        print_json(repeat_summary(results, repeat) if repeat > 1 else results[0])
        return
    if repeat > 1:
        show_repeated(repeat_summary(results, repeat))
    else:
        show_evaluation(results[0])
    passed = [(number, result) for number, result in enumerate(results, 1) if result["verdict"] in RIGHT]
    if profile and passed:
        number, result = passed[0]
        _verbatim("" if repeat == 1 else f"\nprofile of evaluation {number} of {len(results)}:")
        show_profile(result, platform)


def show_evaluation(result: Mapping[str, Any], *, last: str = "candidate") -> None:
    """Print an evaluation: verdict, latencies, speedups, roofline and tags.

    Args:
        result: the evaluation in the form of `Evaluation.to_json`.
        last: the name of the candidate's row in the table.
    """
    verdict = result["verdict"] if result.get("code") is None else f"{result['verdict']} ({result['code']})"
    if result["verdict"] == Verdict.SCREENED:
        _line(f"verdict    {verdict}, {', '.join(result.get('tags') or ())}", explain(verdict))
        for tag in TAGS.values():
            if tag.name in (result.get("tags") or ()):
                _line(f"  {tag.name}: {tag.text}")
        screening = (result.get("profile") or {}).get("screening") or {}
        for name, why in (screening.get("missing") or {}).items():
            _line(f"  not shown: {name}", str(why)[:300])
        for name, what in _SMALLER.items():
            if smaller := screening.get(name):
                _line(f"inputs     {what}: {', '.join(smaller)}")
    elif result["verdict"] != Verdict.PASSED:
        _line(f"verdict    {verdict}", result.get("message") or "")
        if result.get("detail"):
            _verbatim(str(result["detail"])[:2000].rstrip())
    else:
        tags = result.get("tags") or []
        _latency_table(result, last, clock_of(tags))
        _line(f"verdict    {verdict}, {', '.join(tags) or 'no tags'}")
        for tag in TAGS.values():
            if tag.name in tags and (not tag.ranked or tag.name == clock_of(tags).name):
                _line(f"  {tag.name}: {tag.text}")
    _accuracy_lines(result.get("correctness") or {})
    roofline = result.get("roofline")
    if roofline:
        limit = clock_of(result.get("tags") or ()).latency(roofline["limit_ms"], digits=3)
        _line(f"roofline   {roofline['fraction']:.0%} of what the device allows ({limit}, {roofline['bound']} bound)")
    elif note := (result.get("profile") or {}).get("roofline_note"):
        _line("roofline   not known", str(note))
    noise = noise_of(result.get("profile") or {})
    if noise is not None:
        _line(f"noise      {noise:g} (the load of other programs while calls were timed)")
    provenance = result.get("provenance") or {}
    sandbox = (provenance.get("sandbox") or {}).get("name")
    bounded = provenance.get("security_boundary") and sandbox != "process"
    _line(f"sandbox    {sandbox or 'unknown'}", "" if bounded else NO_BOUNDARY)


def show_told(job: "JobRecord", told: "ToldMemory") -> None:
    """Print what a job was told of earlier ones; nothing if it was to be told nothing."""
    mode = job.options.get(MEMORY)
    if mode in (None, MemoryMode.OFF):
        return
    counts = memory_counts(told.memory.to_json()) if told.memory else "nothing was known when it began"
    _line(f"memory     {mode}: {counts}")
    for line in told.lines:
        _verbatim(fill(plain(line), WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))


def show_profile(result: Mapping[str, Any], platform: str) -> None:
    """Print the profile of a candidate that passed, in the platform's form."""
    from evaluator.platforms import load_platform

    _verbatim(load_platform(platform).profile_text(dict(result["profile"])))


def show_repeated(repeated: Mapping[str, Any]) -> None:
    """Print a row for each of several evaluations of one candidate, and whether they agree."""
    baselines = list(repeated["speedup"])
    clock = clock_of({tag for result in repeated["evaluations"] for tag in result.get("tags") or ()})
    rows = []
    for number, result in enumerate(repeated["evaluations"], 1):
        code = f" ({result['code']})" if result.get("code") else ""
        candidate, speedups = result["latency_ms"].get("candidate"), result.get("speedup") or {}
        given = [speedups.get(name) for name in baselines]
        shown = [ratio(one["value"], one["low"], one["high"]) if one else "-" for one in given]
        rows.append((number, f"{result['verdict']}{code}", latency(candidate and candidate["median"], clock), *shown))
    columns = ("", "verdict", f"latency ({clock.unit})", *(f"over {name} (95 %)" for name in baselines))
    print_table(columns, rows, right=(columns[0], *columns[2:]))
    for name, spread in repeated["speedup"].items():
        _line(f"over {name}: median {spread['median']:.3f}, from {spread['lowest']:.3f} to {spread['highest']:.3f}")
        if len(repeated["evaluations"]) > 1 and (pooled := repeated["pooled"].get(name)):
            _line(f"over {name}: pooled {ratio(pooled['value'], pooled['low'], pooled['high'])}")
    if clock.note:
        _line(clock.note, TAGS[clock.name].text)
    if repeated["agree"] is None:
        _line("one evaluation: nothing to compare it with")
    elif repeated["agree"]:
        _line(f"the {repeated['done']} evaluations agree: one verdict, and intervals that overlap")
    else:
        for difference in repeated["differences"]:
            _line(f"the evaluations disagree: {difference}")


def _accuracy_lines(correctness: Mapping[str, Any]) -> None:
    """Print declared tolerances, the checks by result, state not compared, and KernelBench's verdict."""
    declared = (correctness.get("tolerance") or {}).get("declared")
    if declared:
        _line(
            "tolerance  declared by the task: " + ", ".join(f"{dtype} {value:g}" for dtype, value in declared.items())
        )
    checks = correctness.get("checks") or ()
    if checks:
        counts = Counter(check_result(check) for check in checks)
        _line("checks     " + ", ".join(f"{counts[name]} {name}" for name in CHECK_RESULTS if counts[name]))
    for check in checks:
        if check_result(check) == "skipped":
            _line(f"inputs     {check['inputs']}: {check['note']}")
    for check in (correctness.get("neighbours") or {}).get("checks") or ():
        if check["result"] in GUARDED:
            _line(f"beside     {check['inputs']}: {check['result']}", check["note"])
    if unknown := (correctness.get("state") or {}).get("not_compared"):
        _line(f"state that could not be compared: {', '.join(unknown)}")
    other = correctness.get("kernelbench")
    if other:
        accepts = "accepts" if other["passed"] else "refuses"
        _line(f"kernelbench's rule {accepts} it on {other['input_sets']} sets of inputs (for comparison only)")


def _latency_table(result: Mapping[str, Any], last: str, clock: Clock) -> None:
    latencies, speedups = result.get("latency_ms") or {}, result.get("speedup") or {}
    rows = []
    asked = ((result.get("provenance") or {}).get("settings") or {}).get("baselines") or ()
    titles = {name: title_of(name) for name in BASELINES if name in (*USUAL, *asked)} | {"candidate": last}
    for name, title in titles.items():
        found, speedup = latencies.get(name), speedups.get(name)
        shown = "" if speedup is None else ratio(speedup["value"], speedup["low"], speedup["high"])
        if name != "candidate" and found is None:
            shown = "not available for this op" if name in asked else "not measured"
            shown = "not measured in a trial" if TRIAL in (result.get("tags") or ()) else shown
        rows.append((title, latency(found and found["median"], clock), shown))
    columns = ("", f"latency ({clock.unit})", "speedup over it (95 %)")
    print_table(columns, rows, right=columns[1:])
    for name, reason in ((result.get("profile") or {}).get("absent") or {}).items():
        if name in asked:
            _line(str(reason))


def _line(text: str, detail: str = "") -> None:
    """Print a sentence. Lines after the first one are indented to its first word."""
    sentence = plain(text) + (f": {plain(detail)}" if detail else "")
    _verbatim(fill(sentence, WIDTH, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False))


def _verbatim(text: str) -> None:
    """Print lines without wrapping: paths, which must stay whole to be copied, and the output of other programs."""
    from rich.text import Text

    make_console().print(Text("\n".join(plain(part) for part in text.splitlines())), soft_wrap=True)


def finish(report: JobReport, cancel: CancelToken, *, as_json: bool) -> int:
    """Print the report of a job that has ended.

    Returns:
        The exit status: 0 if the job did its work, 130 or 143 if a signal stopped it.

    Raises:
        Unavailable: model or sandbox failed before any candidate passed.
        BadRequest: the referee found that the op itself cannot be judged.
    """
    job = report.job
    if report.best is None and report.stop_reason in NOTHING_TO_WORK_WITH:
        raise Unavailable(f"{report.stop_detail} (job {job.id}; then: kernelwright jobs resume {job.id})")
    if report.stop_reason == "task_invalid":
        raise BadRequest(f"{job.task.ref}: {report.stop_detail}")
    if as_json:
        print_json(report_json(report))
    else:
        show_report(report)
    if job.status != "done":
        note(f"go on with: kernelwright jobs resume {job.id}")
    return cancel.exit_status or 0
