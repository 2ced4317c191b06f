"""Where an evaluation's result comes from: enough to judge it later, and to repeat it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evaluator.evaluation import noise_of
from evaluator.platforms import Device
from evaluator.referee_process import harness_hash
from tasks.outcomes import candidate_hash
from tasks.task import Task
from tasks.weights_file import Weights

if TYPE_CHECKING:
    from evaluator.evaluate import Effort


def provenance(
    task: Task,
    candidate_source: str,
    *,
    described: Mapping[str, str],
    device: Device,
    facts: Mapping[str, Any],
    effort: "Effort",
    weights: Weights | None = None,
    result: Mapping[str, Any],
) -> dict[str, Any]:
    """The `provenance` object of an evaluation.

    A fact that could not be found out is None and is never left out.

    Args:
        task: the op.
        candidate_source: the candidate.
        described: what the sandbox says of itself.
        device: what the evaluation ran on.
        facts: what the platform adds about the device (`Platform.provenance`).
        effort: the bounds of the evaluation.
        weights: those of the op that were given.
        result: the referee's answer, empty if there was none.
    """
    versions = dict(result.get("versions", {}))
    return {
        "device": {"platform": device.platform, "index": device.index, "name": device.name, **device.facts, **facts},
        "versions": versions,
        "cores_used": versions.get("cores"),
        "others_cores_busy": noise_of(result.get("profile", {})),
        "image": described.get("image"),
        "image_digest": described.get("image_id"),
        "sandbox": dict(described),
        "security_boundary": described.get("security_boundary") != "none",
        "harness": harness_hash(),
        "task": {"id": task.id, "hash": task.source_hash},
        "candidate": candidate_hash(candidate_source),
        **({} if weights is None else {"weights": weights.digest}),
        "settings": asdict(effort),
        "seed": result.get("seed"),  # told only now that the verdict is out
    }
