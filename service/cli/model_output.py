"""The output for whole models: where time goes and what there is to gain, and what became of a run."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.records import PLAN_ONLY, RESUMABLE
from evaluator.referee.protocol.baselines import title_of
from service.cli.job_output import show_evaluation
from service.cli.output import latency, note, plain, print_table, ratio
from service.whole_models.plan import Plan, plan_json
from service.whole_models.prove import faster_baselines
from tasks.task import Task

if TYPE_CHECKING:
    from db.records import JobRecord
    from service.jobs.journal import Observer
    from service.whole_models.local import Watching

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
                "shape_group": each.shape_group,
                "nodes": list(region.nodes),
                "occurrences": [asdict(place) for place in region.occurrences],
                "eager_ms": region.eager_ms,
                "chosen": region.name in each.tasks,
                "task": None if region.name not in each.tasks else each.tasks[region.name].source,
            }
            for each in plan.every
            for region in each.regions
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
    tasked = plan.every_task
    _show_gains(found, tasked)
    for group in found["groups"]:
        print(f"\nwith the inputs of get_input_groups()[{group['shape_group']}]")
        _show_times(group)
        _show_gains(group, tasked)
    if found["gains"] or found["groups"]:
        print("at most: how much faster the model would be if the region took no time (Amdahl's law)")
    if tasks is not None and tasked:
        print(f"tasks      {tasks}: {len(tasked)} files")


def _show_gains(found: Mapping[str, Any], tasked: Collection[str]) -> None:
    """Print the table of regions of a plan for one list of inputs. `tasked` are those that have a task."""
    if not found["gains"]:
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
            "*" if gain["region"] in tasked else "",
        )
        for gain in found["gains"]
    ]
    columns = ("region", "kind", "times", "eager (ms)", "share", "at most", "job")
    print_table(columns, rows, right=("times", "eager (ms)", "share", "at most"))


@contextlib.contextmanager
def watched(title: str, begun: Callable[[int], object]) -> Iterator["Watching"]:
    """A progress display for each job of a run over a model, and for what lies between.

    Args:
        title: what is done, for the display until the first job.
        begun: called with the run's number.
    """
    from agents.protocols import Event
    from service.cli.progress import show_progress
    from service.whole_models.local import Watching

    with contextlib.ExitStack() as shown:
        between: list[Observer] = []  # the display that shows steps, if it is the one that is open

        def told(run_id: int) -> None:
            begun(run_id)
            step(f"model run {run_id}")

        def job(record: "JobRecord", number: int, total: int) -> "Observer":
            shown.close()
            between.clear()
            return shown.enter_context(show_progress(f"{number}/{total} {record.task.ref} with {record.model}"))

        def step(text: str) -> None:
            if not between:
                shown.close()
                between.append(shown.enter_context(show_progress(title)))
            between[0](Event("step", 0, {"text": text}))

        yield Watching(told, step, job)


def show_run(found: Mapping[str, Any]) -> None:
    """Print what became of a run, an object as of `report_json`: times, regions, proof, and where the result is."""
    run_id, status = found["id"], found["status"]
    print(f"{plain(found['task']['ref'])} on {found['platform']}, model run {run_id}: {status} ({found['stage']})")
    if found["error"]:
        print(plain(found["error"]))
    if found["plan"]:
        _show_times(found["plan"])
        _show_stays(found["plan"])
    rows = [
        (
            row["name"],
            row["occurrences"],
            f"{row['share']:.1%}",
            row["job_id"],
            ratio(_value(row["speedup"])),
            ratio(_value(row["speedup_compile"])),
            row["why"],
        )
        for row in found["regions"]
    ]
    if rows:
        columns = ("region", "times", "share", "job", "over eager", "over compile", "in the model")
        print_table(columns, rows, right=columns[1:6])
    proof = found["proof"]
    if proof is not None:
        show_evaluation(proof, last="with kernels")
        names = [title_of(name) for name in faster_baselines(proof)]
        if names:
            print(f"not delivered: {' and '.join(names)} alone is faster than the model with kernels")
    _show_shapes(found.get("shapes") or ())
    if proof is None and found["stage"] == "done" and not found["options"].get(PLAN_ONLY):
        print("nothing was found that makes the model faster end to end")
    if found.get("delivered"):
        print(f"model      {Path(found['delivered']) / 'model.py'}")
        print(f"report     {Path(found['delivered']) / 'report.md'}")
    if status in RESUMABLE:
        note(f"go on with: kernelwright models resume {run_id}")


def _show_shapes(shapes: Sequence[Mapping[str, Any]]) -> None:
    """Print what the model gains with other lists of inputs, each by a proof of its own."""
    rows = [
        (
            f"get_input_groups()[{each['shape_group']}]",
            _milliseconds(each["eager_ms"]),
            each["kept"] or 0,
            ratio(_value(each["speedup"])),
            ratio(_value(each["speedup_compile"])),
        )
        for each in shapes
    ]
    if rows:
        columns = ("other inputs", "eager (ms)", "kernels", "over eager", "over compile")
        print_table(columns, rows, right=columns[1:])


def _value(speedup: float | Mapping[str, float] | None) -> float | None:
    """A speedup that the API gives with its interval."""
    return speedup["value"] if isinstance(speedup, Mapping) else speedup


def _show_times(found: Mapping[str, Any]) -> None:
    compiled = found.get("compile_ms")
    if compiled is not None:
        said = f"{_milliseconds(compiled)} ms, after {found['compile_s']:.0f} s"
    else:
        said = f"not measured ({plain(found.get('compile_error') or 'not asked for')})"
    print(f"eager      {_milliseconds(found['eager_ms'])} ms a call")
    print(f"compile    {said}")
    if found.get("noisy"):
        why = f"threads waited {found['waited_share']:.0%} of their time to run: other programs ran."
        if found.get("contradicts"):
            why = "the model and its operators were seen to take times that do not fit each other."
        print(f"noisy      {why} Times and the order of regions are uncertain; plan again when the machine is quiet")


def _show_stays(found: Mapping[str, Any]) -> None:
    if found.get("too_slow"):
        print(f"too slow   {found['too_slow']}")
    for each in found.get("notes") or ():
        print(f"note       {plain(str(each))}")
    for each in found.get("modes") or ():
        print(f"mode       {plain(str(each))}")
    for each in found.get("as_it_is") or ():
        print(f"as it is   inputs of {plain(str(each))}")
    for each in found.get("stays_eager", ()):
        where = plain(each["path"] or "the model itself")
        print(f"as it is   {where} ({plain(each['module_class'])}): {plain(each['reason'])}")


def _milliseconds(value_ms: float | None) -> str:
    return latency(value_ms)
