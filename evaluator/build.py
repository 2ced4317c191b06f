"""Building a candidate before its evaluation is due: beside other builds and while models answer."""

import threading

from evaluator.cache import BuildCache, candidate_key
from evaluator.evaluate import Effort
from evaluator.harness import HarnessFailed, run_referee
from evaluator.platforms import Platform
from sandbox.base import Sandbox
from tasks.task import Task


def build_ahead(
    task: Task,
    candidate_source: str,
    *,
    sandbox: Sandbox,
    platform: Platform,
    effort: Effort,
    cache: BuildCache,
    cancel: threading.Event | None = None,
) -> bool:
    """Whether the evaluation of this candidate will find it built in `cache`.

    Quick builds are not kept, and what cannot be built is left for the evaluation to say. The candidate sees no inputs.

    Raises:
        SandboxUnavailable: there is no sandbox to run it in.
    """
    key = candidate_key(task, candidate_source, sandbox.describe(), platform.device())
    if cache.get(key):
        return True
    request = {**effort.request(task, candidate_source), "baselines": []}
    try:
        result = run_referee("build", request, sandbox=sandbox, limits=effort.limits(), cancel=cancel)
    except HarnessFailed:
        return False
    packed = str(result.get("build_cache", ""))
    cache.put(key, packed)
    return bool(packed)
