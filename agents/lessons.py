"""Distils lessons from verdicts and paired trials: which way to write kernels won, by how much, and which was refused.

Only two candidates of one job that differ in one feature alone are compared. If they differ in several, nobody knows
which of them it was.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agents.memory import KnownLesson
from agents.prompting.prompt_pack import Feature
from tasks.outcomes import Decision, Verdict

MIN_JOBS = 2  # a lesson from one job is an anecdote
MAX_EVIDENCE = 40
AGREE = 2 / 3  # share of the jobs that must say the same
MIN_GAIN = 1.02  # as the trials' own margin: below it two candidates are alike
REFUSED = frozenset(
    {Verdict.BUILD_FAILED, Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.OUT_OF_MEMORY, Verdict.WRONG_OUTPUT}
)
"""Verdicts that a way to write kernels may be the reason of."""

_COMMENT_LINE = re.compile(r"(?m)^[ \t]*(?://|# ).*$")


@dataclass(frozen=True)
class JudgedCandidate:
    """An evaluation of a candidate that still counts.

    Attributes:
        op: identifies the op; that with other sizes is the same.
        features: what its source is found to do.
        bound: what limits the op; None: not known.
        champion_hash, gain, decision: the candidate that it was timed beside in a trial, how many times as fast as that
            it was, and what the trial says of it; None: it was not timed beside another.
        alike: whether the op is similar to that of the job which is to be told.
    """

    evaluation_id: str
    job_id: int
    op: str
    candidate_hash: str
    features: frozenset[str]
    verdict: str
    bound: str | None = None
    champion_hash: str | None = None
    gain: float | None = None
    decision: str | None = None
    alike: bool = False


def features_of(source: str, features: Mapping[str, Feature]) -> frozenset[str]:
    """The features of a platform that a candidate's source has.

    It is hostile: it may name in its text what it does not do, but not in a comment line.
    """
    code = _COMMENT_LINE.sub("", source)
    return frozenset(name for name, feature in features.items() if feature.pattern.search(code))


def distil(judged: Sequence[JudgedCandidate], describe: Callable[[str], str]) -> list[KnownLesson]:
    """The lessons of these evaluations: those of similar ops first, then those of many jobs, then large effects.

    An evaluation that was taken back is not among `judged`, so no lesson rests on it, nor on a candidate that was timed
    beside its own.
    """
    files = {(each.job_id, each.candidate_hash): each for each in judged if each.verdict == Verdict.PASSED}
    found = [*_measured(judged, files, describe), *_refused(judged, files.values(), describe)]

    def rank(lesson: KnownLesson) -> tuple[int, int, float, str, str]:
        effect = abs(math.log(lesson.gain)) if lesson.gain is not None else 0.0
        return (-lesson.alike, -lesson.jobs, -effect, lesson.feature, lesson.bound or "")

    return sorted(found, key=rank)


@dataclass
class _Job:
    """What one job says of one feature."""

    logs: list[float] = field(default_factory=list)
    decided: int = 0  # trials that the feature won, less those that it lost
    evidence: list[str] = field(default_factory=list)
    op: str = ""
    alike: bool = False


def _measured(
    judged: Sequence[JudgedCandidate],
    files: Mapping[tuple[int, str], JudgedCandidate],
    describe: Callable[[str], str],
) -> Iterable[KnownLesson]:
    tried: dict[tuple[str, str | None], dict[int, _Job]] = defaultdict(lambda: defaultdict(_Job))
    for each in judged:
        beside = files.get((each.job_id, each.champion_hash or ""))
        if each.verdict != Verdict.PASSED or beside is None or each.gain is None or not each.gain > 0:
            continue
        differ = each.features ^ beside.features
        if len(differ) != 1 or each.decision not in (Decision.BETTER, Decision.WORSE, Decision.ALIKE):
            continue
        (feature,) = differ
        sign = 1 if feature in each.features else -1
        job = tried[feature, each.bound][each.job_id]
        job.logs.append(sign * math.log(each.gain))
        job.decided += sign * {Decision.BETTER: 1, Decision.WORSE: -1}.get(Decision(each.decision), 0)
        job.evidence.append(each.evaluation_id)
        job.op, job.alike = each.op, each.alike
    for (feature, bound), jobs in tried.items():
        means = [math.fsum(job.logs) / len(job.logs) for job in jobs.values()]
        faster = sum(job.decided > 0 for job in jobs.values())
        slower = sum(job.decided < 0 for job in jobs.values())
        mean = math.fsum(means) / len(means)
        won, lost, even = (count >= AGREE * len(jobs) for count in (faster, slower, len(jobs) - faster - slower))
        agree = (won and mean >= math.log(MIN_GAIN)) or (lost and mean <= -math.log(MIN_GAIN))
        if len(jobs) < MIN_JOBS or not (agree or (even and abs(mean) < math.log(MIN_GAIN))):
            continue
        yield KnownLesson(
            feature=feature,
            says=describe(feature),
            bound=bound,
            gain=math.exp(mean),
            lowest=math.exp(min(means)),
            highest=math.exp(max(means)),
            verdict=None,
            jobs=len(jobs),
            faster=faster,
            slower=slower,
            alike=sum(job.alike for job in jobs.values()),
            ops=len({job.op for job in jobs.values()}),
            evidence=tuple(id_ for job in jobs.values() for id_ in job.evidence)[:MAX_EVIDENCE],
        )


def _refused(
    judged: Sequence[JudgedCandidate], passed: Iterable[JudgedCandidate], describe: Callable[[str], str]
) -> Iterable[KnownLesson]:
    """Features that candidates were refused with which, without them, were right in the same job.

    Where any candidate of a job was right with a feature, that job accuses it of nothing.
    """
    right: dict[int, set[frozenset[str]]] = defaultdict(set)
    for each in passed:
        right[each.job_id].add(each.features)
    refused: dict[str, dict[int, JudgedCandidate]] = defaultdict(dict)
    for each in judged:
        if each.verdict in REFUSED:
            for feature in each.features:
                own = right[each.job_id]
                if each.features - {feature} in own and not any(feature in features for features in own):
                    refused[feature].setdefault(each.job_id, each)
    for feature, jobs in refused.items():
        held = {
            job_id
            for job_id, sets in right.items()
            if any(feature in own and own - {feature} in sets for own in sets) and job_id not in jobs
        }
        if len(jobs) < MIN_JOBS or len(jobs) < AGREE * (len(jobs) + len(held)):
            continue
        verdict, _ = Counter(each.verdict for each in jobs.values()).most_common(1)[0]
        yield KnownLesson(
            feature=feature,
            says=describe(feature),
            bound=None,
            gain=None,
            lowest=None,
            highest=None,
            verdict=verdict,
            jobs=len(jobs) + len(held),
            faster=0,
            slower=len(jobs),
            alike=sum(each.alike for each in jobs.values()),
            ops=len({each.op for each in jobs.values()}),
            evidence=tuple(each.evaluation_id for each in jobs.values())[:MAX_EVIDENCE],
        )
