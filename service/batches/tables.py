"""Tables of a report, as Markdown and as LaTeX with booktabs."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.batches.statistics import Estimate
from service.jobs.export import markdown_table

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "×": r"$\times$",
    "α": r"$\alpha$",
    "–": "--",
    "…": r"\ldots{}",
}
_ROWS_A_PAGE = 40
_NARROW = 5  # columns


@dataclass(frozen=True)
class Cell:
    """A value of a table, with its interval; `best` is set on the best of its column."""

    text: str
    interval: str = ""
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A column: its name, and its name in LaTeX if that is more than the escaped name."""

    name: str
    latex: str = ""


@dataclass(frozen=True)
class Table:
    """A table. The first `labels` columns are texts, the others numbers."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: int = 1


def percent(estimate: Estimate | None) -> Cell:
    """A share in percent."""
    return _cell(estimate, 100, 1)


def times(estimate: Estimate | None) -> Cell:
    """A speedup."""
    return _cell(estimate, 1, 2)


def _cell(estimate: Estimate | None, factor: float, digits: int) -> Cell:
    if estimate is None:
        return Cell("–")
    text = f"{estimate.value * factor:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return Cell(text)
    return Cell(text, f"[{estimate.low * factor:.{digits}f}, {estimate.high * factor:.{digits}f}]")


def markdown(table: Table) -> str:
    """The table with its caption; the best of a column is bold."""
    head = [column.name for column in table.columns]
    body = markdown_table(head, [[_markdown_cell(cell) for cell in row] for row in table.rows])
    return f"{table.caption}\n\n{body}"


def _markdown_cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} {cell.interval}".rstrip()


def latex(table: Table, label: str) -> str:
    """The table for a paper: needs the package booktabs, and longtable for one of many rows."""
    spec = "l" * table.labels + "r" * (len(table.columns) - table.labels)
    head = " & ".join(column.latex or latex_text(column.name) for column in table.columns) + r" \\"
    caption = rf"\caption{{{latex_text(table.caption)}}}"
    rows = [line for row in table.rows for line in _latex_rows(row)]
    if len(table.rows) > _ROWS_A_PAGE:
        lines = [
            rf"\begin{{longtable}}{{{spec}}}",
            rf"{caption} \label{{{label}}} \\",
            *(r"\toprule", head, r"\midrule", r"\endfirsthead"),
            *(r"\toprule", head, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot"),
            *rows,
            r"\end{longtable}",
        ]
    else:
        kind = "table*" if len(table.columns) > _NARROW else "table"  # over both columns of a page
        lines = [
            *(rf"\begin{{{kind}}}[t]", r"\centering", r"\small", r"\setlength{\tabcolsep}{3.5pt}"),
            *(r"\setlength{\belowcaptionskip}{4pt}", caption, rf"\label{{{label}}}"),
            *(rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head, r"\midrule"),
            *rows,
            *(r"\bottomrule", r"\end{tabular}", rf"\end{{{kind}}}"),
        ]
    return "\n".join(lines) + "\n"


def _latex_rows(row: Sequence[Cell]) -> list[str]:
    """A row, and below it the intervals in small print."""
    texts = [rf"\textbf{{{latex_text(cell.text)}}}" if cell.best else latex_text(cell.text) for cell in row]
    lines = [" & ".join(texts) + r" \\"]
    if any(cell.interval for cell in row):
        below = [rf"{{\scriptsize {latex_text(cell.interval)}}}" if cell.interval else "" for cell in row]
        lines.append(" & ".join(below) + r" \\[2pt]")
    return lines


def latex_text(text: str) -> str:
    """A text in which nothing is markup."""
    return "".join(_LATEX.get(char, char) if char.isprintable() else " " for char in text)
