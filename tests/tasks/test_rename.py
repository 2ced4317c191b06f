"""Names replaced in a source: everywhere where they are used, and nowhere else."""

import ast

import pytest

from tasks.rename import renamed_text, renamed_tree


def test_comments_layout_and_other_words_stay():
    source = (
        '"""Model."""\n'
        "class  Model ( Base ):  # Model\n"
        "    Model_2 = 'Model'\n"
        "    def f(self, é=Model, *, Model_3: Model = None):\n"
        "        é = é or  Model ; return super(Model, self).Model(Model=é)\n"
    )
    assert renamed_text(source, {"Model": "_Model"}) == (
        '"""Model."""\n'
        "class  _Model ( Base ):  # Model\n"
        "    Model_2 = 'Model'\n"
        "    def f(self, é=_Model, *, Model_3: _Model = None):\n"
        "        é = é or  _Model ; return super(_Model, self).Model(Model=é)\n"
    )


@pytest.mark.parametrize(
    ("source", "renamed"),
    [
        ("def f():\n    global Model\n    Model = 1\n", "def f():\n    global Other\n    Other = 1\n"),
        ("x = f'{Model!r} {{Model}} {Model.y:{Model}}'\n", "x = f'{Other!r} {{Model}} {Other.y:{Other}}'\n"),
        ("x = f'''\n{ Model }\n  {Model}'''\n", "x = f'\\n{Other}\\n  {Other}'\n"),
        ("class \\\n  Model: pass\n", "class Other:\n    pass\n"),
        ("𝐌odel = Model\n", "Other = Other\n"),
        ("x = Model\r\ny = Model\r", "x = Other\ny = Other\n"),
        ("a = '\u2028'; b = Model\x0c\nModel\n", "a = '\u2028'; b = Other\nOther\n"),
    ],
    ids=["global", "f-string", "f-string over lines", "continued line", "unicode", "line ends", "line separators"],
)
def test_names_that_are_hard_to_find_are_found(source, renamed):
    """Comments and layout may be lost there, the meaning is not."""
    assert ast.dump(ast.parse(renamed_text(source, {"Model": "Other"}))) == ast.dump(ast.parse(renamed))


def test_several_names_at_once_are_not_renamed_twice():
    assert renamed_text("a, b = b, a\n", {"a": "b", "b": "a"}) == "b, a = a, b\n"


def test_a_tree_stays_as_it_was():
    (node,) = ast.parse("class Model(Model): pass").body
    assert ast.unparse(renamed_tree(node, {"Model": "New"})).startswith("class New(New):")
    assert ast.unparse(node).startswith("class Model(Model):")


def test_what_is_no_python_is_refused():
    with pytest.raises(SyntaxError):
        renamed_text("class Model(:", {"Model": "Other"})
