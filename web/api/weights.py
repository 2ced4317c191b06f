"""Weights of models: send, list and remove."""

import contextlib
import tempfile
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from db.records import WeightsRecord
from service.errors import Unavailable
from service.submissions.weights import (
    MAX_FILE_BYTES,
    check_size,
    get_weights_for,
    list_weights_for,
    remove_weights_for,
    send_weights_for,
)
from web.api.parameters import HEX_64
from web.dependencies import Deps
from web.problems import ProblemError, problems
from web.security.identity import Submitter, Viewer
from web.security.request_body import file_bytes, file_chunks

router = APIRouter(prefix="/weights", tags=["weights"])
Digest = Annotated[str, Path(pattern=HEX_64, description="The weights' digest.")]

UPLOADS_AT_ONCE = 4
"""Files that a server takes at the same time, one from each user; each may need 2 GiB on its disk."""


class Uploads:
    """The users whose files are being sent."""

    def __init__(self) -> None:
        self._users: set[str] = set()

    @contextlib.contextmanager
    def taken(self, user: str) -> Iterator[None]:
        """A user's place during the block. Called in the server's event loop alone.

        Raises:
            ProblemError: there is none.
        """
        if user in self._users:
            raise ProblemError(
                429, "a file of yours is being sent; wait until it is there", headers={"Retry-After": "60"}
            )
        if len(self._users) >= UPLOADS_AT_ONCE:
            detail = f"{UPLOADS_AT_ONCE} files are being sent; try again in a minute"
            raise ProblemError(429, detail, headers={"Retry-After": "60"})
        self._users.add(user)
        try:
            yield
        finally:
            self._users.discard(user)


class Weights(BaseModel):
    """The weights of a model that are kept for the user's jobs."""

    digest: str = Field(description="SHA-256 over the tensors' names, dtypes, shapes and bytes: what jobs name.")
    size_bytes: int
    complete: bool = Field(description="False: storing them was interrupted; send the file again, or remove them.")
    created_at: datetime
    used_at: datetime = Field(description="When they were last sent, or read by a job.")

    @classmethod
    def of(cls, record: WeightsRecord) -> Self:
        """Convert weights."""
        return cls(**{name: getattr(record, name) for name in cls.model_fields})


class WeightsList(BaseModel):
    """The user's weights, those that were used last first."""

    weights: list[Weights]


@router.put(
    "",
    status_code=201,
    responses={200: {"model": Weights, "description": "Kept already."}, **problems(409, 411)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def send(request: Request, response: Response, deps: Deps, principal: Submitter) -> Weights:
    """Send a safetensors file of at most 2 GiB, as the body. Runs over models name it by the digest of the answer.

    Weights that no job has read for 7 days, and that no open job works with, are removed when others are sent.
    """
    size_bytes = file_bytes(request.headers, max_bytes=MAX_FILE_BYTES)
    check_size(principal, size_bytes, settings=deps.settings)
    uploads: Uploads = request.app.state.uploads
    with uploads.taken(principal.user):
        try:
            with tempfile.TemporaryFile(dir=deps.settings.data_dir) as file:
                async for chunk in file_chunks(request, size_bytes):
                    await run_in_threadpool(file.write, chunk)
                kept, new = await run_in_threadpool(
                    send_weights_for, principal, file, size_bytes, settings=deps.settings, store=deps.store
                )
        except OSError as error:
            raise Unavailable(
                f"{deps.settings.data_dir}: {error.strerror}; a file with weights needs room there"
            ) from error
    if not new:
        response.status_code = 200
    return Weights.of(kept)


@router.get("", responses=problems())
def list_(deps: Deps, principal: Viewer) -> WeightsList:
    """List the user's weights."""
    return WeightsList(weights=[Weights.of(each) for each in list_weights_for(principal, store=deps.store)])


@router.get("/{digest}", responses=problems(404))
def show(digest: Digest, deps: Deps, principal: Viewer) -> Weights:
    """Show weights of the user: whether they are kept."""
    return Weights.of(get_weights_for(principal, digest, store=deps.store))


@router.delete("/{digest}", status_code=204, responses=problems(404, 409))
def remove(digest: Digest, deps: Deps, principal: Submitter) -> None:
    """Remove weights of the user that no open job works with."""
    remove_weights_for(principal, digest, store=deps.store)
