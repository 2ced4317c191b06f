"""What models said in a job: its calls in order, and the events between them."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.transcripts.pages import transcript_page
from service.transcripts.redaction import known_secrets
from web.api.parameters import Cursor, JobId, Limit
from web.api.schemas.transcripts import TranscriptPage
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.get("/{job_id}/transcript", responses=problems(404))
def show(
    job_id: JobId,
    deps: Deps,
    _: Viewer,
    cursor: Cursor = None,
    limit: Limit = 20,
    messages: Annotated[bool, Query(description="Also all messages of each call, as they were sent.")] = False,
) -> TranscriptPage:
    """The calls of a job's models in order, with what was new in each prompt and what each call led to.

    Between the calls stand events of the job. `limit` counts calls; a page with very long ones has fewer. Whatever
    looks like a key is removed.
    """
    secrets = known_secrets(deps.settings)
    found = transcript_page(deps.store, job_id, after=cursor or 0, limit=limit, messages=messages, secrets=secrets)
    return TranscriptPage.of(found, messages=messages)
