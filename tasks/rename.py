"""Renames variables and classes in hostile Python source. The source is never executed."""

import ast
import copy
import re
from collections.abc import Mapping

from tasks import syntax


def renamed_tree(node: ast.stmt, names: Mapping[str, str]) -> ast.stmt:
    """A copy of a statement in which these names are replaced, where they are used and where a class has them."""
    renamed = _Rename(names).visit(copy.deepcopy(node))
    assert isinstance(renamed, ast.stmt)
    return renamed


def renamed_text(source: str, names: Mapping[str, str]) -> str:
    """The same for a whole source, whose comments and layout stay as they are.

    Comments and layout are lost where a name has no position of its own: in an f-string, a `global` statement, or
    written in another form of Unicode.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `syntax.parse`.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    tree = syntax.parse(source)
    wanted = ast.Module([renamed_tree(node, names) for node in tree.body], [])
    edited = _edited(source, tree, names)
    try:
        if ast.dump(syntax.parse(edited)) == ast.dump(wanted):
            return edited
    except (SyntaxError, ValueError):
        pass
    return ast.unparse(ast.fix_missing_locations(wanted)) + "\n"


def _edited(source: str, tree: ast.Module, names: Mapping[str, str]) -> str:
    lines = [line.encode() for line in source.split("\n")]
    edits: set[tuple[int, int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            edits.add((node.lineno - 1, node.col_offset, node.id))
        elif isinstance(node, ast.ClassDef) and node.name in names:
            found = re.compile(rb"class\s+").match(lines[node.lineno - 1], node.col_offset)
            if found:
                edits.add((node.lineno - 1, found.end(), node.name))
    for line, column, name in sorted(edits, reverse=True):
        old = name.encode()
        text = lines[line]
        if text[column : column + len(old)] == old:
            lines[line] = text[:column] + names[name].encode() + text[column + len(old) :]
    return "\n".join(line.decode() for line in lines)


class _Rename(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.name = self.names.get(node.name, node.name)
        self.generic_visit(node)
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        node.names = [self.names.get(name, name) for name in node.names]
        return node
