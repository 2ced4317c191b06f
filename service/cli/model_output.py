"""The output for whole models: where time goes and what there is to gain, and what became of a run."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.job_output import show_evaluation
from service.cli.output import latency, note, plain, print_table, ratio
from service.whole_models.plan import Plan, plan_json
from service.whole_models.report import region_rows
from service.whole_models.run import faster_baselines
from tasks.task import Task

if TYPE_CHECKING:
    from db.store import Store
    from service.whole_models.run import ModelReport

_ROWS = 12  # of the tables by module and by kernel


def plan_object(model: Task, plan: Plan) -> dict[str, Any]:
    """The JSON object that `model --plan --json` prints."""
    return {
        "schema": "kernelwright.model_plan/1",
        "model": model.id,
        **plan_json(plan),
        "regions": [
            {
                "name": region.name,
                "kind": region.kind,
                "graph": region.graph,
                "nodes": list(region.nodes),
                "occurrences": [asdict(each) for each in region.occurrences],
                "eager_ms": region.eager_ms,
                "chosen": region.name in plan.tasks,
                "task": None if region.name not in plan.tasks else plan.tasks[region.name].source,
            }
            for region in plan.regions
        ],
    }


def show_plan(model: Task, plan: Plan, tasks: Path | None) -> None:
    """Print where a model's time goes, and its regions."""
    found = plan_json(plan)
    print(f"{plain(model.id)}: {found['operators']} operators, {found['threads']} threads, torch {found['torch']}")
    _show_times(found)
    _show_stays(found)
    modules = [
        (row["name"] or "(all)", _milliseconds(row["eager_ms"]), f"{row['share']:.1%}")
        for row in found["modules"][:_ROWS]
    ]
    if modules:
        print_table(("module", "eager (ms)", "share"), modules, right=("eager (ms)", "share"))
    operators = [
        (row["name"], row["nodes"], _milliseconds(row["eager_ms"]), f"{row['share']:.1%}")
        for row in found["by_operator"][:_ROWS]
    ]
    if operators:
        print_table(("operator", "calls", "eager (ms)", "share"), operators, right=("calls", "eager (ms)", "share"))
    kernels = [(name, _milliseconds(ms)) for name, ms in found["kernels_ms"][:_ROWS]]
    if kernels:
        print_table(("under torch.compile", "ms"), kernels, right=("ms",))
    if not plan.regions:
        print("no regions: nothing here can be put into a kernel")
        return
    rows = [
        (
            gain["region"],
            gain["kind"],
            gain["occurrences"],
            _milliseconds(gain["eager_ms"]),
            f"{gain['share']:.1%}",
            "" if gain["most"] is None else f"{gain['most']:.2f}x",
            "*" if gain["region"] in plan.tasks else "",
        )
        for gain in found["gains"]
    ]
    columns = ("region", "kind", "times", "eager (ms)", "share", "at most", "job")
    print_table(columns, rows, right=("times", "eager (ms)", "share", "at most"))
    print("at most: how much faster the model would be if the region took no time (Amdahl's law)")
    if tasks is not None:
        print(f"tasks      {tasks}: {len(plan.tasks)} files")


def show_run(report: "ModelReport", store: "Store") -> None:
    """Print what became of a run: times, regions, the proof, and where the faster model is."""
    run = report.run
    print(f"{plain(run.task.ref)} on {run.platform}, model run {run.id}: {run.status.value} ({run.stage})")
    if run.error:
        print(plain(run.error))
    if run.plan:
        _show_times(run.plan)
        _show_stays(run.plan)
    rows = [
        (
            row["name"],
            row["occurrences"],
            f"{row['share']:.1%}",
            row["job_id"],
            ratio(row["speedup"]),
            ratio(row["speedup_compile"]),
            row["why"],
        )
        for row in region_rows(store, run)
    ]
    if rows:
        columns = ("region", "times", "share", "job", "over eager", "over compile", "in the model")
        print_table(columns, rows, right=columns[1:6])
    if report.proof is not None:
        show_evaluation(report.proof.result, last="with kernels")
        names = [{"eager": "eager", "compile": "torch.compile"}[name] for name in faster_baselines(report.proof)]
        if names:
            print(f"not delivered: {' and '.join(names)} alone is faster than the model with kernels")
    elif run.stage == "done":
        print("nothing was found that makes the model faster end to end")
    if report.delivered is not None:
        print(f"model      {report.delivered / 'model.py'}")
        print(f"report     {report.delivered / 'report.md'}")
    if run.status.value not in ("done", "running"):
        note(f"go on with: kernelwright models resume {run.id}")


def _show_times(found: Mapping[str, Any]) -> None:
    compiled = found.get("compile_ms")
    if compiled is not None:
        said = f"{_milliseconds(compiled)} ms, after {found['compile_s']:.0f} s"
    else:
        said = f"not measured ({plain(found.get('compile_error') or 'not asked for')})"
    print(f"eager      {_milliseconds(found['eager_ms'])} ms a call")
    print(f"compile    {said}")


def _show_stays(found: Mapping[str, Any]) -> None:
    for each in found.get("stays_eager", ()):
        where = plain(each["path"] or "the model itself")
        print(f"as it is   {where} ({plain(each['module_class'])}): {plain(each['reason'])}")


def _milliseconds(value_ms: float | None) -> str:
    return latency(value_ms)
