"""Downloads of several files: what a run over a whole model delivers, and a batch's report."""

import io
import zipfile
from collections.abc import Mapping, Sequence

from fastapi import Response

from service.batches.manage import show_batch
from service.batches.report import check_ks, report_files
from service.batches.results import Baseline
from service.errors import Conflict
from service.whole_models.local import delivered_files, read_report
from web.dependencies import Dependencies


def model_archive(deps: Dependencies, run_id: int) -> Response:
    """The delivered files with the report, as a .zip archive.

    Raises:
        NotInStore: there is no such run.
        Conflict: it has delivered nothing.
    """
    files = delivered_files(read_report(run_id, settings=deps.settings, store=deps.store), deps.store)
    if not files:
        raise Conflict(f"model run {run_id} has delivered nothing; there is nothing to download")
    return _archive(files, f"kernelwright-model-{run_id}.zip")


def report_archive(deps: Dependencies, batch_id: int, *, over: Baseline, ks: Sequence[int] = ()) -> Response:
    """A batch's report, as a .zip archive.

    Raises:
        NotInStore: there is no such batch.
        Conflict: there is nothing to report yet.
        BadRequest: no task has so many samples.
    """
    files = report_files(show_batch(deps.store, batch_id, over=over), ks=check_ks(ks))
    return _archive(files, f"kernelwright-batch-{batch_id}.zip")


def _archive(files: Mapping[str, str | bytes], name: str) -> Response:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in sorted(files.items()):
            archive.writestr(
                zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED
            )  # no moment in it: equal for equal files
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data.getvalue(), media_type="application/zip", headers=headers)
