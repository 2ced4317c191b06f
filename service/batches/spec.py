"""The specification of a batch, from a TOML file, flags or a request. It is checked before anything is stored."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from service.errors import BadRequest
from service.settings import Settings, override

MAX_FILE_BYTES = 1024 * 1024
MAX_JOBS = 20_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelChoice(_Strict):
    """A model, with its address, key and price if they differ from the settings'."""

    name: str = Field(min_length=1, max_length=200)
    judge_model: str | None = Field(default=None, min_length=1, max_length=200)
    price: str | None = Field(default=None, max_length=40)
    api_base: str | None = Field(default=None, max_length=1000)
    api_key_file: Path | None = None


class JobOptions(_Strict):
    """Options of each job, those of `kernelwright optimize`. An option that is not given is taken from the settings.

    The exception is `memory`, which is off unless it is given: what a model finds alone is what batches compare.
    """

    strategy: str | None = Field(default=None, max_length=64)
    rounds: int | None = Field(default=None, ge=1, le=1000)
    seed: Literal["compiler"] | None = None
    judge_model: str | None = Field(default=None, min_length=1, max_length=200)
    budget_usd: float | None = Field(default=None, ge=0)
    budget_tokens: int | None = Field(default=None, ge=0)
    budget_s: float | None = Field(default=None, ge=0)
    budget_evaluations: int | None = Field(default=None, ge=0)
    price: str | None = Field(default=None, max_length=40)
    plateau_rounds: int | None = Field(default=None, ge=0, le=1000)
    roofline_target: float | None = Field(default=None, gt=0, le=1)
    memory: Literal["off", "similar", "all"] | None = None
    baselines: str | None = Field(default=None, max_length=200)
    api_base: str | None = Field(default=None, max_length=1000)
    api_key_file: Path | None = None
    image: str | None = Field(default=None, max_length=255)


class BatchSpec(_Strict):
    """The combinations of tasks, models, platforms and samples. Money is in US dollars.

    `tasks` holds suites, tasks as suite/name, patterns over both (`*`, `?`), or .py files. With `whole_models` each is
    a whole model, and each job finds what is hot in it, optimizes that and proves the whole. `domain` restricts the
    inputs that candidates must be right on (`tasks.restrict`). `translate_from` names the platform whose kernels jobs
    translate, which the tasks must bring (`tasks.source_kernel`). `weights` holds for whole models, by their names in
    `tasks`, a safetensors file of this machine, or the digest of weights that are kept for the user.
    `budget_usd` is for all jobs together; `job.budget_usd`, for each job.
    """

    name: str = Field(default="", max_length=200)
    tasks: tuple[str, ...] = Field(min_length=1, max_length=MAX_JOBS)
    models: tuple[str | ModelChoice, ...] = Field(default=("builtin/compiler",), min_length=1, max_length=100)
    platforms: tuple[str, ...] = Field(default=("cpu",), min_length=1, max_length=20)
    whole_models: bool = False
    domain: Literal["finite"] | None = None
    translate_from: str | None = Field(default=None, min_length=1, max_length=64)
    weights: dict[str, str] = Field(default={}, max_length=MAX_JOBS)
    samples: int = Field(default=1, ge=1, le=1000)
    budget_usd: float | None = Field(default=None, ge=0)
    priority: Literal["low", "normal", "high"] = "normal"
    job: JobOptions = JobOptions()

    @field_validator("weights")
    @classmethod
    def _of_models(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if value and not info.data.get("whole_models"):
            raise ValueError("are for whole models; say whole_models = true, or leave them out")
        for ref in value:
            if ref not in info.data.get("tasks", ()):
                raise ValueError(f"{ref[:200]} is not among tasks; name the model as it is named there")
        return value

    @property
    def choices(self) -> tuple[ModelChoice, ...]:
        """The models, each in its long form."""
        return tuple(ModelChoice(name=model) if isinstance(model, str) else model for model in self.models)


def read_spec(path: Path, **flags: object) -> BatchSpec:
    """Read the spec in a TOML file. `flags` that are not None take precedence.

    Raises:
        BadRequest: the file cannot be read, is no TOML, or holds an invalid value. The text names the key.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BadRequest(f"{path}: larger than 1 MiB; name suites or patterns instead of each task")
        values = tomllib.loads(data.decode())
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read ({error.strerror}); name a batch's .toml file") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadRequest(f"{path}: is not TOML ({error}); docs/batches.md shows an example") from error
    return make_spec(values, where=str(path), **flags)


def make_spec(values: dict[str, Any], *, where: str = "batch", **flags: object) -> BatchSpec:
    """Make a spec of values. Flags named `job_…` stand for options of each job.

    Raises:
        BadRequest: a key is unknown or its value is not valid. The text names the key.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    of_jobs = {name.removeprefix("job_"): value for name, value in given.items() if name.startswith("job_")}
    whole = {name: value for name, value in given.items() if not name.startswith("job_")}
    job = values.get("job", {})
    merged = {**values, **whole, "job": {**job, **of_jobs} if isinstance(job, dict) else job}
    try:
        return BatchSpec.model_validate(merged)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("str", "ModelChoice"))
        if first["type"] == "extra_forbidden":
            known = (
                JobOptions if first["loc"][0] == "job" else ModelChoice if first["loc"][0] == "models" else BatchSpec
            )
            said = f"unknown key; there is: {', '.join(known.model_fields)}"
        elif first["type"] == "missing" and place == "tasks":
            said = 'missing; name suites, tasks or patterns, such as tasks = ["starter"]'
        else:
            said = first["msg"].removeprefix("Value error, ")
            said = said[:1].lower() + said[1:]
        raise BadRequest(f"{where}: {place}: {said}") from error


def with_kept_weights(spec: BatchSpec, keep: Callable[[Path], str]) -> BatchSpec:
    """The spec with digests in the place of files with weights. `keep` keeps a file's for the user; its digest."""
    found = {ref: named if _DIGEST.fullmatch(named) else keep(Path(named)) for ref, named in spec.weights.items()}
    return spec.model_copy(update={"weights": found})


def settings_for(spec: BatchSpec, choice: ModelChoice, platform: str, settings: Settings) -> Settings:
    """The settings of this batch's jobs with this model on this platform.

    Raises:
        BadRequest: a value is not valid.
    """
    particular = {name: value for name, value in dict(choice).items() if name != "name" and value is not None}
    common = {"memory": "off"} | {name: value for name, value in dict(spec.job).items() if value is not None}
    return override(settings, **(common | particular | {"model": choice.name, "platform": platform}))
