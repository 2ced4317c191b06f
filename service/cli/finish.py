"""The end of `optimize` and `jobs resume`: show what there is, and choose the exit status."""

from service.cli.output import note, print_json
from service.cli.result import report_json, show_report
from service.cli.signals import exit_status
from service.errors import BadRequest, Unavailable
from service.run import JobReport
from service.stopping import Stop

_NOTHING_TO_WORK_WITH = ("model_unavailable", "sandbox_unavailable", "sandbox_error", "llm_error")


def finish(report: JobReport, stop: Stop, *, as_json: bool) -> int:
    """Show the report; 0 when the job did its work, 130 or 143 when a signal stopped it.

    Raises:
        Unavailable: model or sandbox failed before any candidate passed.
        BadRequest: the referee found that the op itself cannot be judged.
    """
    job = report.job
    if report.best is None and report.stop_reason in _NOTHING_TO_WORK_WITH:
        raise Unavailable(f"{report.stop_detail} (job {job.id}; then: kernelwright jobs resume {job.id})")
    if report.stop_reason == "task_invalid":
        raise BadRequest(f"{job.task.ref}: {report.stop_detail}")
    if as_json:
        print_json(report_json(report))
    else:
        show_report(report)
    if job.status != "done":
        note(f"go on with: kernelwright jobs resume {job.id}")
    return exit_status(stop) or 0
