"""Judging one answer of a candidate by what the reference and its oracle have said."""

from collections.abc import Sequence

from . import accuracy, input_families
from .accuracy import Comparison, Wrong
from .answers import Answer, input_path
from .calls import InputSet, tensor
from .consult import Expected
from .evidence import Evidence, check
from .verdicts import Finding

_MAX_NAMED = 5


def judge(
    family: str, answer: Answer, want: Expected, inputs: InputSet, evidence: Evidence, *, where: str = ""
) -> Comparison | None:
    """Compare outputs and changed inputs, whose form is right already; the comparison that came nearest to failing.

    Raises:
        Finding: they are wrong.
    """
    worst: Comparison | None = None
    for path, expected in want.values.items():
        found = accuracy.compare(
            path,
            answer.values[path],
            expected,
            want.oracle.get(path),
            evidence.tolerances_for(path),
            want.own.get(path),
            slack=input_families.slack(family),
            nan_for_inf=family == input_families.NON_FINITE,
        )
        if found.wrong is not None:
            refuse(family + where, found.wrong, evidence, found)
        if worst is None or found.severity > worst.severity:
            worst = found
    _inputs_changed_alike(family, answer, want, inputs, evidence, where)
    return worst


def refuse(family: str, wrong: Wrong, evidence: Evidence, found: Comparison | None = None) -> None:
    """Record a failed check and end the trial.

    Raises:
        Finding: always.
    """
    evidence.add(check(family, False, found, wrong.message), float("inf"))
    hint = _hint(evidence) if wrong.code == "values" else ""
    raise Finding("wrong_output", f"{wrong.message} (inputs: {family}){hint}", wrong.code)


def _hint(evidence: Evidence) -> str:
    missing = evidence.names.missing
    if missing:
        return (
            f"; it has no tensor for the reference's {_listed(missing)}: parameters are given new values after "
            "construction"
        )
    if evidence.names.guessed:
        return (
            f"; which of its tensors are the reference's {_listed(evidence.names.guessed)} could only be guessed, for "
            "several hold the same numbers when new: name them as the reference does"
        )
    if evidence.names.own:
        return "; parameters are given new values after construction, so nothing may be derived from them before"
    return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")


def _inputs_changed_alike(
    family: str, answer: Answer, want: Expected, inputs: InputSet, evidence: Evidence, where: str
) -> None:
    for index, content in answer.changed.items():
        if index not in want.inputs_after:
            refuse(family + where, Wrong("input_mutated", f"input tensor {index} was changed by the call"), evidence)
        path = input_path(index)
        found = accuracy.compare(
            path,
            tensor(inputs.tree.tensors[index], content),
            want.inputs_after[index],
            want.oracle.get(path),
            evidence.tolerances_for(path),
            want.own.get(path),
            slack=input_families.slack(family),
            nan_for_inf=family == input_families.NON_FINITE,
        )
        if found.wrong is not None:
            refuse(family + where, found.wrong, evidence, found)
    if missing := set(want.inputs_after) - set(answer.changed):
        text = f"the reference changes input tensor {min(missing)} in place, the candidate does not"
        refuse(family + where, Wrong("input_mutated", text), evidence)
