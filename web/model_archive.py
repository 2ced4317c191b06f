"""The download of what a run over a whole model delivers."""

import io
import zipfile

from fastapi import Response

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
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)  # no moment in it: equal for equal runs
    headers = {"Content-Disposition": f'attachment; filename="kernelwright-model-{run_id}.zip"'}
    return Response(data.getvalue(), media_type="application/zip", headers=headers)
