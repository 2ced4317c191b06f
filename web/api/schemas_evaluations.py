"""What the API takes for an evaluation: a candidate, and the op that it is for."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from web.api.fields import TASK_REF
from web.api.schemas import MAX_SOURCE_CHARS, OP_EXAMPLE, OpName, Platform, Source, kind_of

_CANDIDATE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, w):\n"
_CANDIDATE += "        return torch.nn.functional.gelu(x * w)\n"
_FOR_TASK: dict[str, JsonValue] = {"task": "starter/gelu_tanh", "candidate": _CANDIDATE, "profile": True}
_FOR_SOURCE: dict[str, JsonValue] = {"source": OP_EXAMPLE, "name": "scaled_gelu", "candidate": _CANDIDATE}


class _Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    candidate: Annotated[str, Field(max_length=MAX_SOURCE_CHARS, description="Python source that defines ModelNew.")]
    platform: Platform | None = None
    profile: bool = Field(default=False, description="Also find out where a passed candidate's time goes.")
    cold: bool = Field(default=False, description="Scrub the caches before each timed call; such results get no rank.")
    tolerance: Literal["kernelbench"] | None = Field(
        default=None, description="Also report what this accuracy rule would say; the verdict stays ours."
    )


class EvaluationOfTask(_Wanted):
    """An evaluation for a task of a suite."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FOR_TASK]})

    task: Annotated[str, Field(pattern=TASK_REF, description="suite/name of a task.")]


class EvaluationOfSource(_Wanted):
    """An evaluation for an op of one's own."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FOR_SOURCE]})

    source: Source
    name: OpName = "op"


EvaluationRequest = Annotated[
    Annotated[EvaluationOfTask, Tag("of_task")] | Annotated[EvaluationOfSource, Tag("of_source")],
    Discriminator(kind_of),
]
