"""What regions of a model whose jobs have not run could still gain, and the end of a run's jobs where that is little.

Regions of different grains overlap, and only those that share no operator can be in place together. So what is left to
gain is the best choice of regions if each that waits saved what a kernel for it could (`to_gain_ms`), against the best
choice of what was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from db.jobs import batches, jobs, model_runs
from db.records import JobStatus
from db.store import Store
from service.batches.manage import NOT_WORTH_IT
from service.whole_models.plan import WHOLE, Plan
from whole_models.regions import Region, counted_ms, to_gain_ms

LEFT_TO_GAIN = 0.01
"""Regions that together could not make the model faster by this share get no jobs, and their jobs are cancelled."""

MAX_SETS = 20_000
"""The choices that are looked at among places that overlap. If there are more, bounds are given."""

MAX_PLACES = 400
"""Of more places that overlap, no choices are looked at but the first."""


@dataclass(frozen=True)
class Saving:
    """What a region saves of a call's time, at most or by its kernel, in all of its places together."""

    region: Region
    ms: float


def left_to_gain(found: Sequence[Saving], waiting: Sequence[Saving], total_ms: float) -> float:
    """The share of the time of the model with its kernels so far that the regions that wait could still save, at most.

    By Amdahl's law: the model would become 1 / (1 - share) times as fast if their kernels saved that.

    Args:
        found: what kernels save.
        waiting: the most that kernels could save in regions whose jobs have not run.
        total_ms: the time of a call under eager.

    Returns:
        From 0 to 1.
    """
    now_ms, _ = most_saved(found)
    most_ms = min(total_ms, most_saved([*found, *waiting])[1])
    if now_ms >= total_ms:
        return 0.0
    return max(0.0, most_ms - now_ms) / (total_ms - now_ms)


def most_saved(savings: Sequence[Saving]) -> tuple[float, float]:
    """The most that regions which share no operator save together, in ms, as two bounds that are equal as a rule.

    A region may be in some of its places. A kernel for a whole graph stands against all others of that graph.
    """
    wholes = [each for each in savings if each.region.kind == WHOLE]
    places = [
        (frozenset((each.region.graph, node) for node in place.nodes), each.ms / len(each.region.occurrences))
        for each in savings
        if each.region.kind != WHOLE and each.ms > 0
        for place in each.region.occurrences
    ]
    low = high = 0.0
    for graph in {each.region.graph for each in savings}:
        parts = [place for place in places if next(iter(place[0]))[0] == graph]
        bounds = [_best_choice(group) for group in _overlapping(parts)]
        whole = max((each.ms for each in wholes if each.region.graph == graph), default=0.0)
        low += max(whole, sum(bound[0] for bound in bounds))
        high += max(whole, sum(bound[1] for bound in bounds))
    return low, high


Place = tuple[frozenset[tuple[str, str]], float]
"""The operators of a region's place, and what it saves there."""


def _overlapping(places: Sequence[Place]) -> list[list[Place]]:
    """The places in groups: those of different groups share no operator."""
    groups: list[tuple[set[tuple[str, str]], list[Place]]] = []
    for place in places:
        touched = [group for group in groups if not group[0].isdisjoint(place[0])]
        groups = [group for group in groups if group not in touched]
        nodes = set(place[0]).union(*(group[0] for group in touched))
        groups.append((nodes, [each for group in touched for each in group[1]] + [place]))
    return [members for _, members in groups]


def _best_choice(places: Sequence[Place]) -> tuple[float, float]:
    """The most that places which share no operator save together: a lower and an upper bound."""
    ordered = sorted(places, key=lambda place: -place[1])
    rest = [sum(ms for _, ms in ordered[start:]) for start in range(len(ordered) + 1)]
    best, looked = 0.0, 0

    def extend(start: int, taken: frozenset[tuple[str, str]], saved: float) -> None:
        nonlocal best, looked
        looked += 1
        best = max(best, saved)
        for number in range(start, len(ordered)):
            if saved + rest[number] <= best or looked > MAX_SETS:
                return
            nodes, ms = ordered[number]
            if taken.isdisjoint(nodes):
                extend(number + 1, taken | nodes, saved + ms)

    if len(ordered) <= MAX_PLACES:
        extend(0, frozenset(), 0.0)
        if looked <= MAX_SETS:
            return best, best
    else:
        best = ordered[0][1]
    # No choice saves more than each operator does where it saves most.
    most: dict[tuple[str, str], float] = {}
    for nodes, ms in ordered:
        for node in nodes:
            most[node] = max(most.get(node, 0.0), ms / len(nodes))
    return best, max(best, sum(most.values()))


def end_what_is_not_worth_it(store: Store, run_id: int, plan: Plan) -> int:
    """Cancel the queued jobs of a run for a list of inputs if together they could gain too little.

    None are cancelled where the plan's times contradict each other.

    They are not queued again.

    Returns:
        The number of jobs that were cancelled.
    """
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
        if run.batch_id is None:
            return 0
        best = batches.best_evaluations(session, run.batch_id)
        status = {job.id: job.status for job in jobs.list_jobs(session, batch_id=run.batch_id)}
    ended = list[int]()
    for each in plan.every:
        regions = {region.name: region for region in each.chosen}
        found, waiting, waiting_jobs = [], [], []
        for record in run.regions:
            if record.job_id is None or (region := regions.get(record.name)) is None:
                continue
            if status.get(record.job_id) is JobStatus.QUEUED:
                waiting.append(Saving(region, to_gain_ms(each.captured, region)))
                waiting_jobs.append(record.job_id)
            elif (one := best.get(record.job_id)) and one.stands and (one.speedup or 0.0) > 1:
                found.append(Saving(region, record.eager_ms * (1 - 1 / (one.speedup or 1.0))))
        if each.captured.contradicts:  # nothing is known of what a region could gain
            continue
        if waiting and left_to_gain(found, waiting, counted_ms(each.captured)) < LEFT_TO_GAIN:
            ended += dict.fromkeys(waiting_jobs)
    if not ended:
        return 0
    with store.write() as session:
        return batches.cancel_queued(session, run.batch_id, ended, reason=NOT_WORTH_IT)
