"""What a platform tells the models: rules, a hint for each category, and worked examples."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks.likeness import operators_of

_OPERATORS = "Operators:"


@dataclass(frozen=True)
class Exemplar:
    """A task with a candidate that is correct and fast, both as source text."""

    task: str
    candidate: str


@dataclass(frozen=True)
class Feature:
    """A way to write kernels that is found in sources by rule: a name, what it is in a few words, and its pattern."""

    name: str
    says: str
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class PromptPack:
    """What prompts say about one platform.

    Attributes:
        rules: language, form of a candidate, how to build it, what makes it fast.
        hints: a paragraph for each category that has one.
        exemplars: a worked example for each category that has one.
        default_category: whose exemplar the other categories show.
        operators: the categories of operators, by their names in lower case.
        seeds: names of models that need no language model and write candidates for this platform.
        sources: how concepts of another platform's language are said in this one's, by that platform's name.
        features: what lessons from earlier jobs are about, by name.
    """

    rules: str
    exemplars: Mapping[str, Exemplar]
    default_category: str
    hints: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, Feature] = field(default_factory=dict)

    def category_for(self, category: str, source: str) -> str | None:
        """The category whose exemplar and hint fit an op best; None: none is known to fit.

        Args:
            category: the op's own; it counts if it has an exemplar.
            source: the op. Otherwise the category that most of its operators belong to counts. Of several, the one
                that comes last in `categories.md` does: the first are parts of many ops.
        """
        if category in self.exemplars:
            return category
        used = operators_of(source)
        found = [name for each in used for name in self.operators.get(each, ()) if name in self.exemplars]
        order = list(self.hints)
        return max(set(found), key=lambda name: (found.count(name), order.index(name)), default=None)

    def exemplar(self, category: str | None) -> Exemplar:
        """The worked example for a category, or else that of the default category."""
        return self.exemplars.get(category or "") or self.exemplars[self.default_category]


def read_prompt_pack(
    folder: Path, *, default_category: str, seeds: tuple[str, ...] = (), rules: str = "rules.md"
) -> PromptPack:
    """Read a folder with a file of rules, `categories.md` (may be absent) and `exemplars/CATEGORY[_task].py`.

    `categories.md` has a heading `## category, category` before each hint. A line `Operators: name, name` below the
    heading says which operators belong there. `sources.md` (may be absent, too) has a heading `## platform, platform`
    before each text on how to translate from these platforms' languages. `features.toml` (may be absent) has a table
    for each feature, with what it `says` and a `pattern`.

    Raises:
        OSError: a file is missing.
        ValueError: the default category has no exemplar, or `features.toml` cannot be read.
    """
    exemplars = {
        path.stem.removesuffix("_task"): Exemplar(
            task=path.read_text("utf-8"),
            candidate=path.with_name(path.name.replace("_task.py", ".py")).read_text("utf-8").rstrip(),
        )
        for path in sorted((folder / "exemplars").glob("*_task.py"))
    }
    if default_category not in exemplars:
        raise ValueError(f"{folder}: default category {default_category!r} has no exemplar; has {sorted(exemplars)}")
    categories = _under_headings(folder / "categories.md")
    return PromptPack(
        rules=(folder / rules).read_text("utf-8").rstrip(),
        exemplars=exemplars,
        default_category=default_category,
        hints={name: hint for name, (_, hint) in categories.items()},
        operators={
            used: tuple(name for name, (names, _) in categories.items() if used in names)
            for used in {used for names, _ in categories.values() for used in names}
        },
        seeds=seeds,
        sources={name: text for name, (_, text) in _under_headings(folder / "sources.md").items()},
        features=_features(folder / "features.toml"),
    )


def _features(path: Path) -> dict[str, Feature]:
    """The features in a file; empty if it is absent."""
    tables = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    return {name: Feature(name, str(of["says"]), re.compile(of["pattern"])) for name, of in tables.items()}


def _under_headings(path: Path) -> dict[str, tuple[tuple[str, ...], str]]:
    """Operators and text of each name in the headings of a file; empty if it is absent."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    text = path.read_text("utf-8") if path.exists() else ""
    for block in text.split("## ")[1:]:
        heading, _, hint = block.partition("\n")
        operators: tuple[str, ...] = ()
        if hint.startswith(_OPERATORS):
            first, _, hint = hint.partition("\n")
            operators = tuple(name.strip() for name in first.removeprefix(_OPERATORS).split(","))
        found |= {name.strip(): (operators, hint.strip()) for name in heading.split(",")}
    return found
