"""What a platform tells the models: rules, a hint for each category, and worked examples."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_OPERATORS = "Operators:"


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
        operators: the categories of operators, by their names in lower case.
        seeds: names of models that need no language model and write candidates for this platform.
        sources: how concepts of another platform's language are said in this one's, by that platform's name.
    """

    rules: str
    exemplars: Mapping[str, Exemplar]
    default_category: str
    hints: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def category_for(self, category: str, source: str) -> str | None:
        """The category whose exemplar and hint fit an op best; None: none is known to fit.

        Args:
            category: the op's own; it counts if it has an exemplar.
            source: the op. Otherwise the category that most of its operators belong to counts. Of several, the one
                that comes last in `categories.md` does: the first are parts of many ops.
        """
        if category in self.exemplars:
            return category
        found = [name for used in _operators(source) for name in self.operators.get(used, ()) if name in self.exemplars]
        order = list(self.hints)
        return max(set(found), key=lambda name: (found.count(name), order.index(name)), default=None)

    def exemplar(self, category: str | None) -> Exemplar:
        """The worked example for a category, or else that of the default category."""
        return self.exemplars.get(category or "") or self.exemplars[self.default_category]


def read_prompt_pack(folder: Path, *, default_category: str, seeds: tuple[str, ...] = ()) -> PromptPack:
    """Read a folder with `rules.md`, `categories.md` (may be absent) and `exemplars/CATEGORY[_task].py`.

    `categories.md` has a heading `## category, category` before each hint. A line `Operators: name, name` below the
    heading says which operators belong there. `sources.md` (may be absent, too) has a heading `## platform, platform`
    before each text on how to translate from these platforms' languages.

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
    categories = _under_headings(folder / "categories.md")
    return PromptPack(
        rules=(folder / "rules.md").read_text("utf-8").rstrip(),
        exemplars=exemplars,
        default_category=default_category,
        hints={name: hint for name, (_, hint) in categories.items()},
        operators={
            used: tuple(name for name, (names, _) in categories.items() if used in names)
            for used in {used for names, _ in categories.values() for used in names}
        },
        seeds=seeds,
        sources={name: text for name, (_, text) in _under_headings(folder / "sources.md").items()},
    )


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


def _operators(source: str) -> set[str]:
    """The names of the operators and modules that an op calls, in lower case. `x[index]` counts as `getitem`.

    A function of torch may end in an underscore (`scatter_`), which is left out.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found = set()
    for model in (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)):
        if model.name in ("get_inputs", "get_init_inputs", "get_input_groups"):
            continue
        given = {argument.arg for node in ast.walk(model) if isinstance(node, ast.arguments) for argument in node.args}
        for node in ast.walk(model):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found.add(name.lower().rstrip("_"))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                found.add("matmul")
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id in given:
                found.add("getitem")
    return found
