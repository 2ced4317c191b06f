"""Types of parameters with their bounds, so that no value reaches the store that the store cannot hold.

What an address has no parameter for is refused.
"""

from typing import Annotated

from fastapi import Header, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import Field

MAX_ID = 2**31 - 1  # PostgreSQL's integer
WORD = r"^[A-Za-z0-9_.-]{1,100}$"
TASK_REF = r"^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$"
MODEL = r"^[!-~]{1,200}$"
HEX_64 = r"^[0-9a-f]{64}$"
REASON = r"\S"

WeightsDigest = Annotated[
    str | None,
    Field(
        default=None,
        pattern=HEX_64,
        description="The digest of weights that the user has sent (`PUT /weights`); null: the constructor draws them.",
    ),
]

JobId = Annotated[int, Path(ge=1, le=MAX_ID, description="The job's number.", examples=[7])]
CandidateHash = Annotated[str, Path(pattern=HEX_64, description="SHA-256 of the candidate's source.")]
EvaluationId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The evaluation's id.")]
Suite = Annotated[str | None, Query(pattern=WORD, description="Only this suite.", examples=["starter"])]
PlatformName = Annotated[str | None, Query(pattern=WORD, description="Only this platform.", examples=["cpu"])]
ModelName = Annotated[str | None, Query(pattern=MODEL, description="Only this model.", examples=["builtin/compiler"])]
TaskRef = Annotated[
    str | None, Query(pattern=TASK_REF, description="Only this task, as suite/name.", examples=["starter/rmsnorm_gelu"])
]
Limit = Annotated[int, Query(ge=1, le=200, description="The number of items, at most.")]
Cursor = Annotated[int | None, Query(ge=0, le=MAX_ID, description="The `next_cursor` of the previous page.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,255}$",
        description="A repeated request with the same key has no second effect. Keys are kept for a week.",
    ),
]
Reason = Annotated[
    str, Field(min_length=1, max_length=2000, pattern=REASON, description="The reason, for the audit log.")
]


async def refuse_unknown(request: Request) -> None:
    """Refuse parameters after the `?` that the address does not have: a misspelt filter would leave nothing out.

    Raises:
        RequestValidationError: there is one.
    """
    if not request.query_params:
        return
    names = sorted(_names(request.scope["route"].dependant))
    there_is = f"there is: {', '.join(names)}" if names else "this address has none"
    unknown = [name for name in request.query_params if name not in names]
    if unknown:
        raise RequestValidationError(
            [
                {
                    "type": "extra_forbidden",
                    "loc": ("query", name),
                    "msg": f"no such parameter; {there_is}",
                    "input": request.query_params[name],
                }
                for name in unknown
            ]
        )


def _names(dependant: Dependant) -> set[str]:
    """The query parameters of a route, with those of what it depends on."""
    found = {field.alias for field in dependant.query_params}
    return found.union(*(_names(each) for each in dependant.dependencies))
