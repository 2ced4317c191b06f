"""What goes back into a model: the best kernel of each region, where it pays end to end.

A region's speedup says what its kernel gains alone. Trials of the whole model decide whether it pays there
(docs/timing.md, "Trials and proofs"): each kernel is taken out in turn, and it stays out unless the model is slower
without it. The proof of what the trials have chosen is measured afterwards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from db.records import ModelRunRecord
from db.store import Store
from evaluator.evaluation import Evaluation
from service.jobs.query import show_job
from service.whole_models.plan import WHOLE, Plan
from tasks.outcomes import NOT_JUDGED, Decision, Verdict, candidate_hash
from whole_models.contraction import fit_together
from whole_models.put_back import Chosen, Delivered, Variant, bundle, put_back
from whole_models.regions import Region, shape_group_in

ALL = "all"
"""In place of a region's name: all kernels that are in place."""

MOST_CHOICES = 4
"""How often kernels are chosen while the model is wrong with some of them."""

MAX_SETS = 20_000  # that `disjoint` looks at; the first ones hold what saves most


@dataclass(frozen=True)
class Kernel:
    """The best candidate of a region's job.

    Attributes:
        name: the region's.
        region: the region.
        source: the candidate.
        speedup: over eager, of the region alone.
        saved_ms: what all its occurrences save by that, of the time that they take under eager.
        names: the region's names of weights that have another name in the candidate, with that name.
        error: its largest error in its own task, as a share of what is allowed there.
    """

    name: str
    region: Region
    source: str
    speedup: float
    saved_ms: float
    names: tuple[tuple[str, str], ...] = ()
    error: float = 0.0


def kernels_of(store: Store, run: ModelRunRecord, plan: Plan) -> list[Kernel]:
    """The kernels that the run's jobs have found and that are faster than eager, the one that saves most first.

    Of those for the inputs that the plan is for: it may be one for other inputs than those of `get_inputs()`.
    """
    regions = {region.name: region for region in plan.chosen}
    found = []
    for record in run.regions:
        if record.name not in regions:
            continue
        best = None if record.job_id is None else show_job(store, record.job_id).best
        if (
            best is None
            or best.retracted_at is not None
            or best.measurements.speedup is None
            or best.measurements.speedup <= 1
        ):
            continue
        speedup = best.measurements.speedup
        saved_ms = record.eager_ms * (1 - 1 / speedup)
        names, error = _names(best.result), _error(best.result)
        found.append(Kernel(record.name, regions[record.name], best.source, speedup, saved_ms, names, error))
    return sorted(found, key=lambda kernel: (-kernel.saved_ms, kernel.name))


def _names(result: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What the task calls weights that have another name in the candidate, with that name."""
    names = ((result.get("correctness") or {}).get("neighbours") or {}).get("names") or {}
    return tuple((str(tasks), str(kernels)) for kernels, tasks in names.items())


def _error(result: Mapping[str, Any]) -> float:
    worst = (result.get("correctness") or {}).get("worst") or {}
    found, allowed = worst.get("max_error"), worst.get("allowed_error")
    return found / allowed if found is not None and allowed else 0.0


def disjoint(kernels: Sequence[Kernel], fit: Callable[[Sequence[Kernel]], bool]) -> list[Kernel]:
    """The kernels that can all be in place and together save most, the one that saves most first.

    Regions of different grains share nodes, so this weighs a kernel for a layer against those for the layer's parts. Of
    two sets that save the same the one found first is taken, which has the larger kernels. Then the others are put
    into those of their places that are left free. Whole graphs are left out.

    Args:
        kernels: the one that saves most first.
        fit: whether kernels whose regions share no node can be put in place together.
    """
    parts = [kernel for kernel in kernels if kernel.region.kind != WHOLE]
    nodes = [{(each.region.graph, node) for place in each.region.occurrences for node in place.nodes} for each in parts]
    left_ms = [sum(each.saved_ms for each in parts[start:]) for start in range(len(parts) + 1)]
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    looked = 0

    def extend(start: int, taken: tuple[int, ...], saved_ms: float) -> None:
        nonlocal best, looked
        looked += 1
        if saved_ms > best[0]:
            best = (saved_ms, taken)
        for place in range(start, len(parts)):
            if saved_ms + left_ms[place] <= best[0] or looked > MAX_SETS:
                return
            free = all(nodes[place].isdisjoint(nodes[each]) for each in taken)
            if free and fit([parts[each] for each in (*taken, place)]):
                extend(place + 1, (*taken, place), saved_ms + parts[place].saved_ms)

    extend(0, (), 0.0)
    found = [parts[each] for each in best[1]]
    for kernel in parts:
        if kernel not in found and (rest := _elsewhere(kernel, found, fit)) is not None:
            found.append(rest)
    return found


def _elsewhere(kernel: Kernel, taken: Sequence[Kernel], fit: Callable[[Sequence[Kernel]], bool]) -> Kernel | None:
    """The kernel in those of its places that others have left free; None: there are none."""
    used = {(each.region.graph, node) for each in taken for place in each.region.occurrences for node in place.nodes}
    places = kernel.region.occurrences
    free = tuple(each for each in places if used.isdisjoint((kernel.region.graph, node) for node in each.nodes))
    if not free:
        return None
    share = len(free) / len(places)
    region = replace(kernel.region, nodes=free[0].nodes, occurrences=free, eager_ms=kernel.region.eager_ms * share)
    rest = replace(kernel, region=region, saved_ms=kernel.saved_ms * share)
    return rest if fit([*taken, rest]) else None


@dataclass(frozen=True)
class Trial:
    """A decision on one kernel.

    Attributes:
        name: the region whose kernel it is about; `ALL` for all that are in place.
        question: `passes`, `without` (is the model better off without it?), `whole` (is one kernel for all of it
            better than those for its parts?), `whole alone` (where there are none: than the model itself?), `proof`
            (does what is to be delivered hold?) or `proof without` (does it hold without this one?).
        candidate, champion: the hashes of the sources that were compared; no champion where there was none.
        decision: `better`, `worse`, `alike` or `open`, of the candidate; a verdict where it did not pass; of a proof
            also `passed`, and `slower` where eager or torch.compile is faster.
        ratio: the candidate's speedup over the champion, of a proof that over eager; None if it was not timed.
        taken_out: whether the kernel is left out because of it.
        kernels: of a proof, those that were in place.
        evaluation: of a proof, the id of the evaluation.
        shape_group: which list of `get_input_groups()` was timed; None: the inputs of `get_inputs()`.
    """

    name: str
    question: str
    candidate: str
    champion: str
    decision: str
    ratio: float | None
    taken_out: bool
    message: str = ""
    kernels: tuple[str, ...] = ()
    evaluation: str | None = None
    shape_group: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**vars(self), "kernels": list(self.kernels)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Trial":
        """The inverse of `to_json`."""
        return cls(**{**stored, "kernels": tuple(stored.get("kernels") or ())})


@dataclass(frozen=True)
class Assembly:
    """What is delivered: the model with kernels, as one source; or nothing (`source` is empty).

    `other` is what passed its trials, too, and was not chosen: kernels of the parts, or one kernel for the whole.
    """

    kernels: tuple[Kernel, ...]
    source: str
    other: "Assembly | None" = None


@dataclass
class Assembler:
    """Decides which kernels stay for one list of inputs. Decisions of an earlier run are not measured again.

    Attributes:
        plan: the plan for these inputs.
        source_of: the model with some kernels, as a candidate.
        evaluate: has a candidate tried for the model with these inputs, beside the champion if there is one.
        known: decisions that were stored.
        record: stores one more.
        on_progress: called with a few words on each trial.
        decided: these decisions, and those of this run.
    """

    plan: Plan
    source_of: Callable[[Sequence[Kernel]], str]
    evaluate: Callable[[str, str | None], Evaluation]
    known: Sequence[Mapping[str, Any]]
    record: Callable[[Trial], None]
    on_progress: Callable[[str], None]
    decided: list[Trial] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the decisions that were stored."""
        self.decided = [Trial.from_json(each) for each in self.known]

    def assemble(self, kernels: Sequence[Kernel]) -> Assembly:
        """Put kernels back and take out again those that do not pay.

        Raises:
            Cancelled: cancellation was requested; what was decided is stored.
            SandboxUnavailable: there is no sandbox to work with.
        """
        kept = self._right(kernels)
        for kernel in sorted(kept, key=lambda each: each.saved_ms):
            rest = [each for each in kept if each is not kernel]
            if self._better_without(kernel, kept, rest):
                kept = rest
        source = self.source_of(kept) if kept else ""
        wholes = [kernel for kernel in kernels if kernel.region.kind == WHOLE]
        if wholes:
            whole = self.source_of(wholes)
            trial = self._ask_for_the_whole(wholes[0].name, whole, source)
            parts = Assembly(tuple(kept), source)
            if not trial.taken_out:
                return Assembly(tuple(wholes), whole, parts if kept else None)
            if trial.decision in set(Decision):
                return replace(parts, other=Assembly(tuple(wholes), whole))
        return Assembly(tuple(kept), source)

    def _fit(self, kernels: Sequence[Kernel]) -> bool:
        """Whether no kernel would have to wait for one that waits for it."""
        graphs = {graph.key: graph for graph in self.plan.captured.graphs}
        sets: dict[str, list[tuple[str, ...]]] = {}
        for kernel in kernels:
            sets.setdefault(kernel.region.graph, []).extend(each.nodes for each in kernel.region.occurrences)
        return all(fit_together(graphs[key], nodes) for key, nodes in sets.items())

    def _right(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """The kernels that save most together and with which the model passes.

        If it fails with those that save most, they are put back one by one. Then the choice is made anew without those
        with which it fails: other kernels may stand for their operators.
        """
        left, best = list(kernels), list[Kernel]()
        for _ in range(MOST_CHOICES):
            chosen = disjoint(left, self._fit)
            if _saved_ms(chosen) <= _saved_ms(best):
                break
            whole = self._passes(chosen[0].name if len(chosen) == 1 else ALL, chosen)
            if not whole.taken_out:
                return chosen
            kept, decisions = list[Kernel](), {whole.decision}
            for kernel in chosen:
                trial = self._passes(kernel.name, [*kept, kernel])
                if trial.taken_out:
                    decisions.add(trial.decision)
                    left = [each for each in left if each.name != kernel.name]
                else:
                    kept.append(kernel)
            best = max(best, kept, key=_saved_ms)
            if decisions <= {Verdict.TIMED_OUT, *NOT_JUDGED}:  # which says nothing of these kernels
                break
        return best

    def _passes(self, name: str, kernels: Sequence[Kernel]) -> Trial:
        source = self.source_of(kernels)
        self.on_progress(f"checking the model with {len(kernels)} kernels")
        return self._decide(name, "passes", source, None, lambda decision, ratio: False)

    def _better_without(self, kernel: Kernel, kept: Sequence[Kernel], rest: Sequence[Kernel]) -> bool:
        self.on_progress(f"does {kernel.name} pay in the model?")
        question = self.source_of(rest), self.source_of(kept)
        return self._decide(kernel.name, "without", *question, _does_not_pay).taken_out

    def _ask_for_the_whole(self, name: str, whole: str, parts: str) -> Trial:
        """Whether one kernel for all of it is better than those for its parts; without such: than the model itself."""
        self.on_progress("is one kernel for all of it better?")
        if parts:
            return self._decide(name, "whole", whole, parts, lambda decision, ratio: decision != Decision.BETTER)
        return self._decide(name, "whole alone", whole, self.source_of([]), _does_not_gain)

    def _decide(
        self,
        name: str,
        question: str,
        candidate: str,
        champion: str | None,
        takes_out: Callable[[str, float | None], bool],
    ) -> Trial:
        hashes = candidate_hash(candidate), candidate_hash(champion) if champion else ""
        found = [each for each in self.decided if (each.question, each.candidate, each.champion) == (question, *hashes)]
        for each in found:
            if each.name == name:
                return each
        if found:  # a trial says the same of each kernel that it is asked for
            trial = replace(found[0], name=name)
            self.decided.append(trial)
            self.record(trial)
            return trial
        evaluation = self.evaluate(candidate, champion)
        decision, ratio = _outcome(evaluation)
        out = takes_out(decision, ratio) if evaluation.passed else question != "without"
        trial = Trial(
            name,
            question,
            *hashes,
            decision,
            ratio,
            out,
            evaluation.message[:500],
            shape_group=self.plan.shape_group,
        )
        self.decided.append(trial)
        self.record(trial)
        return trial


def _saved_ms(kernels: Sequence[Kernel]) -> float:
    return sum(kernel.saved_ms for kernel in kernels)


def source_of(model_source: str, plan: Plan, kernels: Sequence[Kernel]) -> str:
    """A model with these kernels in place, for whichever inputs they are, as the source of one candidate."""
    return bundle(files_with(model_source, plan, kernels))


def files_with(model_source: str, plan: Plan, kernels: Sequence[Kernel]) -> Delivered:
    """A model with these kernels in place as the folder that is delivered."""
    variants = [
        Variant(
            each.captured,
            [
                Chosen(kernel.region, kernel.source, kernel.names)
                for kernel in kernels
                if shape_group_in(kernel.name) == each.shape_group
            ],
        )
        for each in plan.every
    ]
    return put_back(model_source, variants)


def _does_not_pay(decision: str, ratio: float | None) -> bool:
    """Whether the model without a kernel is better, or so near to it that the kernel is not worth its lines."""
    return decision == Decision.BETTER or (decision == Decision.ALIKE and (ratio is None or ratio >= 1))


def _does_not_gain(decision: str, ratio: float | None) -> bool:
    """Whether the model with its one kernel is no better than without, by a trial that could tell."""
    return decision == Decision.WORSE or (decision == Decision.ALIKE and (ratio is None or ratio <= 1))


def _outcome(evaluation: Evaluation) -> tuple[str, float | None]:
    if not evaluation.passed:
        return str(evaluation.verdict), None
    compared = evaluation.champion
    if compared is None:
        return "passed", None
    return str(compared.decision), None if compared.speedup is None else compared.speedup.value
