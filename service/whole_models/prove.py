"""The proof of what is delivered; where it refuses that, the kernels that it is proven without.

Trials ask less than a proof (docs/timing.md, "Trials and proofs"): inputs are drawn anew, calls are timed longer, and
torch.compile is timed beside. So a proof may refuse what passed its trials. Kernels are then taken out one at a time,
the most suspect first, and what is left is proven in the same way. Each proof is stored, and no source is proven twice
with the same inputs.

A model with several lists of inputs has a proof for each of those that have kernels. First each is proven with its own
kernels alone, then with those of the others in place, which is what is delivered.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from db.records import EvaluationRecord
from evaluator.referee.protocol.baselines import BASELINES, title_of
from service.whole_models.assemble import ALL, Assembly, Kernel, Trial
from tasks.outcomes import NOT_JUDGED, Verdict, candidate_hash

SUSPECTS = 4
"""The most kernels of one assembly that are suspected. With n of them there are at most 2n proofs of it."""

SLOWER = "slower"
"""The decision of a proof that passed and showed eager or torch.compile to be faster."""

ASKED_AGAIN = (Verdict.SANDBOX_ERROR, Verdict.TIMED_OUT)
"""Verdicts that a busy machine may be the reason for: a run that is resumed asks again."""


@dataclass
class Prover:
    """Proves what is delivered, with one list of inputs.

    Attributes:
        shape_group: which list of `get_input_groups()` it is; None: that of `get_inputs()`.
        source_of: the model with some kernels, as a candidate.
        known: decisions that were stored.
        evaluate: evaluates a candidate at full precision with these inputs, and stores that.
        read: the stored evaluation with this id.
        record: stores a decision.
        on_progress: called with a few words on each proof.
        made: the proofs of this run, by the candidate's hash.
    """

    shape_group: int | None
    source_of: Callable[[Sequence[Kernel]], str]
    known: Sequence[Mapping[str, object]]
    evaluate: Callable[[str], EvaluationRecord]
    read: Callable[[str], EvaluationRecord]
    record: Callable[[Trial], None]
    on_progress: Callable[[str], None]
    made: dict[str, EvaluationRecord] = field(default_factory=dict)

    def prove(self, assembly: Assembly) -> tuple[Assembly, EvaluationRecord]:
        """Prove an assembly, or the first that holds of those with fewer kernels and of the other one.

        Returns:
            What holds, with its proof. Where nothing does: what was given, with the proof that refuses it.

        Raises:
            Cancelled: cancellation was requested; proofs that were made are stored.
            SandboxUnavailable: there is no sandbox to work with.
        """
        given = self._proof(assembly, ALL)
        if outcome(given) in {Verdict.PASSED, *NOT_JUDGED}:
            return assembly, given
        search = [self._with_fewer(assembly, given), self._other(assembly)]
        if outcome(given) == SLOWER:  # fewer kernels that pay are seldom faster; another assembly may be
            search.reverse()
        for attempts in search:
            for attempt, proof in attempts:
                if outcome(proof) == Verdict.PASSED:
                    return attempt, proof
        return assembly, given

    def _other(self, assembly: Assembly) -> Iterator[tuple[Assembly, EvaluationRecord]]:
        if assembly.other is not None:
            yield assembly.other, self._proof(assembly.other, assembly.kernels[-1].name)

    def _with_fewer(self, assembly: Assembly, given: EvaluationRecord) -> Iterator[tuple[Assembly, EvaluationRecord]]:
        """The assembly without each suspect, and then without the first two, three and so on."""
        suspects = suspected(assembly.kernels, given)[:SUSPECTS]
        outs = [[each] for each in suspects]
        if outcome(given) != SLOWER:
            outs += [suspects[:count] for count in range(2, len(suspects) + 1)]
        for out in outs:
            kernels = tuple(each for each in assembly.kernels if each not in out)
            if not kernels:
                return
            fewer = Assembly(kernels, self.source_of(kernels))
            proof = self._proof(fewer, out[-1].name)
            yield fewer, proof
            if outcome(proof) == SLOWER != outcome(given):
                return  # the cause is out, and fewer kernels would be slower still

    def _proof(self, assembly: Assembly, out: str) -> EvaluationRecord:
        """The proof of an assembly. `out` names the kernel that was taken out last."""
        digest = candidate_hash(assembly.source)
        if digest in self.made:
            return self.made[digest]
        for each in self.known:
            same = each.get("candidate") == digest and each.get("shape_group") == self.shape_group
            if same and each.get("evaluation"):
                return self.read(str(each["evaluation"]))
        without = "" if out == ALL else f" without {out}"
        shapes = "" if self.shape_group is None else f" with the inputs of get_input_groups()[{self.shape_group}]"
        self.on_progress(f"measuring what is delivered{without}{shapes}, at full precision")
        proof = self.made[digest] = self.evaluate(assembly.source)
        found = outcome(proof)
        if found not in NOT_JUDGED:
            self.record(
                Trial(
                    name=out,
                    question="proof" if out == ALL else "proof without",
                    candidate=digest,
                    champion="",
                    decision=found,
                    ratio=proof.measurements.speedup,
                    taken_out=out != ALL and found == Verdict.PASSED,
                    message=_message(proof),
                    kernels=tuple(each.name for each in assembly.kernels),
                    evaluation=proof.id,
                    shape_group=self.shape_group,
                )
            )
        return proof


@dataclass(frozen=True)
class Proven:
    """What is delivered for one list of inputs, and its proof, which may refuse it.

    Attributes:
        shape_group: which list of `get_input_groups()` it is; None: that of `get_inputs()`.
        kernels: those for these inputs.
        proof: an evaluation of all that is delivered.
    """

    shape_group: int | None
    kernels: tuple[Kernel, ...]
    proof: EvaluationRecord


def prove_each(
    provers: Sequence[Prover], assemblies: Sequence[Assembly], *, late: Collection[tuple[int | None, object]] = ()
) -> list[Proven]:
    """Prove what is delivered with each list of inputs that has kernels.

    Kernels of a list that do not hold alone, or not with those of the lists before it in place, are left out.

    Args:
        provers: one for each list of inputs, that of `get_inputs()` first.
        assemblies: what was chosen for each; some may be without kernels.
        late: lists and hashes of candidates whose proofs were not judged in earlier runs. What is not judged again is
            left out, but for the kernels of `get_inputs()` alone.

    Returns:
        What holds. Where nothing does: what was refused first; where one was not judged: that one, for it is asked
        again. Nothing if there is no kernel.

    Raises:
        Cancelled, SandboxUnavailable: as `Prover.prove`.
    """

    def to_be_asked_again(found: Proven, *, alone: bool) -> bool:
        known = (found.shape_group, found.proof.candidate_hash) in late
        return outcome(found.proof) in ASKED_AGAIN and not (known and not (alone and found.shape_group is None))

    alone, refused = list[tuple[Prover, Proven]](), list[Proven]()
    for prover, assembly in zip(provers, assemblies, strict=True):
        if assembly.source:
            held, proof = prover.prove(assembly)
            found = Proven(prover.shape_group, held.kernels, proof)
            if to_be_asked_again(found, alone=True):
                return [found]
            if outcome(proof) == Verdict.PASSED:
                alone.append((prover, found))
            else:
                refused.append(found)
    if not alone:
        return refused[:1]

    def together(some: Sequence[tuple[Prover, Proven]]) -> list[Proven]:
        """The proofs with the kernels of some lists in place, up to the first that refuses them."""
        kernels = tuple(kernel for _, each in some for kernel in each.kernels)
        whole = Assembly(kernels, provers[0].source_of(kernels))
        proofs = []
        for prover, each in some:
            proofs.append(Proven(each.shape_group, each.kernels, prover._proof(whole, ALL)))
            if outcome(proofs[-1].proof) != Verdict.PASSED:
                break
        return proofs

    every = [each for _, each in alone] if len(alone) == 1 else together(alone)
    if outcome(every[-1].proof) == Verdict.PASSED:
        return every
    if to_be_asked_again(every[-1], alone=False):
        return every[-1:]
    kept, proven = alone[:1], [alone[0][1]]
    for each in alone[1:]:
        proofs = together([*kept, each])
        if to_be_asked_again(proofs[-1], alone=False):
            return proofs[-1:]
        if outcome(proofs[-1].proof) == Verdict.PASSED:
            kept.append(each)
            proven = proofs
    return proven


def outcome(proof: EvaluationRecord) -> str:
    """`passed`, `slower` than eager or torch.compile, or another verdict."""
    if proof.verdict == Verdict.PASSED and faster_baselines(proof.result):
        return SLOWER
    return str(proof.verdict)


def suspected(kernels: Sequence[Kernel], refused: EvaluationRecord) -> list[Kernel]:
    """The kernels, the one first that is the cause most likely.

    A message may name a kernel. A wrong result comes most likely of the kernel with the largest error in its own task.
    A model that is slower has the least to lose by the kernel that saves least.
    """
    if outcome(refused) == SLOWER:
        return sorted(kernels, key=lambda each: (each.saved_ms, each.name))
    return sorted(kernels, key=lambda each: (each.name not in refused.message, -each.error, each.name))


def faster_baselines(result: Mapping[str, Any]) -> list[str]:
    """The baselines that are faster than what was proven with this result: it is not delivered."""
    speedup = result.get("speedup") or {}
    return [name for name in BASELINES if name in speedup and speedup[name]["high"] < 1]


def _message(proof: EvaluationRecord) -> str:
    if outcome(proof) == SLOWER:
        return f"faster without any kernel: {' and '.join(map(title_of, faster_baselines(proof.result)))}"
    return proof.message[:500]
