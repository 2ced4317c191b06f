"""What a platform tells the models: rules, a hint for each category, and worked examples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Exemplar:
    """A task with a candidate that is correct and fast, both as source text."""

    task: str
    candidate: str


@dataclass(frozen=True)
class PromptPack:
    """What prompts say about one platform.

    Attributes:
        rules: language, form of a candidate, how to build it, what makes it fast.
        hints: a paragraph for each category that has one.
        exemplars: a worked example for each category that has one.
        default_category: whose exemplar the other categories show.
        seeds: names of models that need no language model and write candidates for this platform.
    """

    rules: str
    exemplars: Mapping[str, Exemplar]
    default_category: str
    hints: Mapping[str, str] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()

    def exemplar(self, category: str) -> Exemplar:
        """The worked example for a category."""
        return self.exemplars.get(category) or self.exemplars[self.default_category]


def read_prompt_pack(folder: Path, *, default_category: str, seeds: tuple[str, ...] = ()) -> PromptPack:
    """Read a folder with `rules.md`, `categories.md` (may be absent) and `exemplars/CATEGORY[_task].py`.

    `categories.md` has a heading `## category, category` before each hint.

    Raises:
        OSError: a file is missing.
        ValueError: the default category has no exemplar.
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
    categories = folder / "categories.md"
    return PromptPack(
        rules=(folder / "rules.md").read_text("utf-8").rstrip(),
        exemplars=exemplars,
        default_category=default_category,
        hints=_hints(categories.read_text("utf-8")) if categories.exists() else {},
        seeds=seeds,
    )


def _hints(text: str) -> dict[str, str]:
    hints: dict[str, str] = {}
    for block in text.split("## ")[1:]:
        heading, _, hint = block.partition("\n")
        hints |= {name.strip(): hint.strip() for name in heading.split(",")}
    return hints
