"""The report of a run over a whole model, as Markdown, and its figures as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from db.jobs import jobs
from db.records import EvaluationRecord, JobRecord, ModelRunRecord
from db.store import Store
from evaluator.evaluation import shape_group_of
from service.jobs.export import REPORT_MARK, correctness_section, latency_section, markdown_cell, markdown_table
from service.version import program_version
from service.views.evaluation import Ratio
from service.views.models import modes, notes, region_lines, runs_original_code, shape_lines
from tasks.outcomes import clock_of

if TYPE_CHECKING:
    from service.whole_models.run import ModelReport

SCHEMA = "kernelwright.model/1"


def region_rows(store: Store, run: ModelRunRecord) -> list[dict[str, Any]]:
    """What became of each region: its job, its best kernel beside eager and torch.compile, and whether that is kept."""
    return [
        {
            **asdict(line.region),
            "speedup": None if line.best is None else line.best.speedup,
            "speedup_compile": None if line.best is None else line.best.speedup_compile,
            "evaluation": None if line.best is None else line.best.id,
            "kept": line.kept,
            "why": line.why,
        }
        for line in region_lines(store, run)
    ]


def report_json(report: "ModelReport", store: Store) -> dict[str, Any]:
    """The JSON object that `model --json` and `models show --json` print."""
    run = report.run
    values = asdict(run)
    del values["task"], values["regions"]
    return {
        "schema": SCHEMA,
        **values,
        "task": {"id": run.task.id, "ref": run.task.ref, "source_hash": run.task.source_hash},
        "regions": region_rows(store, run),
        "shapes": shape_rows(store, run, report.proof),
        "jobs": [_job_json(job) for job in jobs_of(store, run)],
        "proof": None if report.proof is None else report.proof.result,
        "delivered": None if report.delivered is None else str(report.delivered),
    }


def shape_rows(store: Store, run: ModelRunRecord, proof: EvaluationRecord | None) -> list[dict[str, Any]]:
    """What became of each list of `get_input_groups()` that kernels were looked for, with its proof's figures."""
    return [
        {
            "shape_group": line.shape_group,
            "eager_ms": line.eager_ms,
            "compile_ms": line.compile_ms,
            "kept": line.kept,
            "evaluation": None if line.proof is None else line.proof.id,
            "speedup": None if line.eager is None else asdict(line.eager),
            "speedup_compile": None if line.compile is None else asdict(line.compile),
        }
        for line in shape_lines(store, run, proof)
    ]


def jobs_of(store: Store, run: ModelRunRecord) -> list[JobRecord]:
    """The jobs of a run, in the order in which they were queued."""
    if run.batch_id is None:
        return []
    with store.read() as session:
        return jobs.list_jobs(session, batch_id=run.batch_id)[::-1]


def _job_json(job: JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "task": job.task.ref,
        "status": job.status.value,
        "stop_reason": job.stop_reason,
        "rounds_done": job.rounds_done,
        "cost_usd": job.cost_usd,
        "tokens": job.tokens,
    }


def report_text(report: "ModelReport", store: Store) -> str:
    """The report as Markdown. All that may come from a model, a candidate or an LLM is escaped."""
    run, proof = report.run, report.proof
    assert proof is not None, "a report is of what is delivered, and that has a proof"
    sections = [
        f"{REPORT_MARK}\n# {markdown_cell(run.task.ref)}: a faster model for `{markdown_cell(run.platform)}`\n",
        f"Verdict **{markdown_cell(proof.verdict)}**, tags: {markdown_cell(', '.join(proof.tags)) or 'none'}.\n",
        f"## Latency and speedup of the whole model{_with_inputs(shape_group_of(proof.result))}\n\n"
        + latency_section(proof.result, clock_of(proof.tags)),
        *_shapes(store, run, proof),
        "## Regions\n\n" + _regions(store, run),
        "## How kernels were chosen\n\n" + _trials(run),
        "## Why it is held to be correct\n\n" + correctness_section(proof.result.get("correctness") or {}, proof.tags),
        "## Use\n\n" + USE + _told("Note", notes(run.plan)) + _told("Mode", modes(run.plan)),
        "## Provenance\n\n" + _provenance(run, proof),
    ]
    return "\n".join(sections)


def _told(word: str, texts: Sequence[str]) -> str:
    return "".join(f"\n{word}: {markdown_cell(each)}.\n" for each in texts)


USE = """`from model import Model` stands in for the model's own class: the same constructor, the same `forward`, the
same state dict. `apply(model)` makes a module that exists already run the kernels, and `remove(model)` undoes that.
Kernels give no gradients. The original code runs for inputs of other shapes, dtypes or strides than these, for a module
whose attributes or submodules are others, for one in another mode if something in it computes something else there (a
warning says so), and under autocast or torch.compile.

`candidate.py` is all of it in one file, as it was evaluated. `kernelwright evaluate MODEL.py candidate.py` measures it
again.
"""


def _shapes(store: Store, run: ModelRunRecord, proof: EvaluationRecord) -> list[str]:
    """A section on other lists of inputs; none if the model has none."""
    lines = shape_lines(store, run, proof)
    if not lines:
        return []
    rows = [
        (
            f"get_input_groups()[{line.shape_group}]",
            line.kept or 0,
            _with_interval(line.eager),
            _with_interval(line.compile),
            "the original code runs" if line.proof is None else line.proof.id,
        )
        for line in lines
    ]
    table = markdown_table(("inputs", "kernels", "over eager", "over torch.compile", "evaluation"), rows)
    about = (
        "\nEach evaluation is a proof of the same files. Names of regions of `get_input_groups()[N]` begin with `gN_`."
        " `kernelwright evaluate MODEL.py candidate.py --shape-group N` measures it again.\n"
    )
    return ["## Other inputs\n\n" + table + about]


def _with_interval(found: Ratio | None) -> str:
    if found is None:
        return ""
    return _ratio(found.value) + ("" if found.low is None else f" ({found.low:.3f}-{found.high:.3f})")


def _regions(store: Store, run: ModelRunRecord) -> str:
    rows = [
        (
            row["name"],
            row["kind"],
            row["occurrences"],
            f"{row['share']:.1%}",
            "" if row["job_id"] is None else row["job_id"],
            _ratio(row["speedup"]),
            _ratio(row["speedup_compile"]),
            row["why"],
        )
        for row in region_rows(store, run)
    ]
    columns = ("region", "kind", "times", "share of eager", "job", "over eager", "over torch.compile", "in the model")
    stays = "".join(
        f"- The code of {markdown_cell(each['module_class'])} at {markdown_cell(each['path']) or 'the root'}"
        f" stays as it is: {markdown_cell(each['reason'])}\n"
        for each in run.plan.get("stays_eager", ())
    )
    for each in runs_original_code(run.plan):
        stays += f"- Original code runs for {markdown_cell(each)}\n"
    return markdown_table(columns, rows) + ("\n" + stays if stays else "")


def _trials(run: ModelRunRecord) -> str:
    if not run.trials:
        return "There was nothing to choose from.\n"
    several = any(trial.get("shape_group") is not None for trial in run.trials)
    rows = [
        (
            trial["name"],
            trial["question"],
            trial["decision"],
            _ratio(trial["ratio"]),
            "yes" if trial["taken_out"] else "no",
            *([_with_inputs(trial.get("shape_group")).removeprefix(" with ")] if several else []),
        )
        for trial in run.trials
    ]
    columns = ("kernel", "question", "decision", "ratio", "taken out", *(["inputs"] if several else []))
    note = "\nA trial of the whole model decided each, and proofs came last; the figures above are those of proofs.\n"
    return markdown_table(columns, rows) + note


def _with_inputs(shape_group: int | None) -> str:
    return "" if shape_group is None else f" with get_input_groups()[{shape_group}]"


def _provenance(run: ModelRunRecord, proof: EvaluationRecord) -> str:
    provenance = proof.result.get("provenance") or {}
    rows = [
        ("Kernelwright", program_version()),
        ("model run", run.id),
        ("kernels by", run.model),
        ("task SHA-256", run.task.source_hash),
        ("evaluation", proof.id),
        ("evaluated", f"{proof.created_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("device", proof.device),
        ("sandbox", proof.sandbox),
        ("harness", str(provenance.get("harness", "unknown"))),
    ]
    if provenance.get("weights"):
        rows.append(("SHA-256 of the weights", str(provenance["weights"])))
    return markdown_table(("what", "value"), rows)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
