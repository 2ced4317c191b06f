"""Checks by `ast` only whether a file is an op that can be optimized, and says in one clear line why it is not.

Three forms are accepted:

- the **KernelBench form**: `class Model(torch.nn.Module)`, `get_inputs()` and `get_init_inputs()`;
- the **function form**: `get_inputs()` and one function that is the op. The op is the function named `op`; where there
  is none, the only public function (its name does not start with `_`) besides the `get_...` ones;
- the **kernel form**: `get_inputs()` and a SOURCE_KERNEL whose source defines `ModelNew`, and no op in PyTorch.
  `get_init_inputs()` may be absent.
"""

import ast
from dataclasses import dataclass

from tasks import syntax
from tasks.categories import category_of
from tasks.declarations import read_declarations
from tasks.metadata import guess_dtype, nearest, read_header
from tasks.parse import Definitions, Function, definitions, parse
from tasks.signature import Parameters, check_counts, check_plain, count_results, read_parameters
from tasks.source_kernel import NAME, REFERENCE_PLATFORMS, SourceKernel, read_source_kernel
from tasks.text import decode_source, task_error

HARNESS_NAMES = frozenset({"get_inputs", "get_init_inputs", "get_input_groups"})
"""Functions that feed an op; never the op itself."""

_ONCE = frozenset({"Model", "ModelNew", "get_inputs", "get_init_inputs", "op"})


@dataclass(frozen=True)
class Op:
    """A valid op, as far as `ast` can tell.

    `function` names the op of the function form and is None for the others; `parameters` are what the op
    takes and `inputs` how many it is given (None: only running get_inputs would tell).
    """

    function: str | None
    parameters: Parameters
    inputs: int | None
    category: str
    dtype: str
    imports_torch: bool
    needs_init_inputs: bool = False  # whether it is of the kernel form and has no get_init_inputs()


def validate(source: str | bytes, where: str) -> Op:
    """Check an op without running any of it.

    `where` names the file in complaints, which read `where:line: what; what to do`.

    Raises:
        TaskError: the first thing that is wrong with it.
    """
    tree = parse(decode_source(source, where), where)
    found = definitions(tree, where, once=_ONCE)
    if "ModelNew" in found.classes:
        what = "defines ModelNew, so it is a candidate and not an op"
        remedy = "give the file that defines Model as the op, and this one as the candidate"
        raise task_error(where, what, remedy, line=found.classes["ModelNew"].lineno)
    header = read_header(tree, where)
    kernel = read_source_kernel(tree, where)
    is_reference = kernel is not None and _is_kernel_form(found)
    if kernel is not None and is_reference:
        function, parameters, inputs = _check_kernel(found, kernel, where)
    elif _is_module_form(found):
        function, parameters, inputs = _check_module(found, where)
    else:
        function, parameters, inputs = _check_function(found, where)
    read_declarations(tree, where, inputs)  # complains
    return Op(
        function=function,
        parameters=parameters,
        inputs=inputs,
        category=header.get("category") or category_of(tree, parameters.names),
        dtype=header.get("dtype") or guess_dtype(tree),
        imports_torch="torch" in found.assigned,
        needs_init_inputs=is_reference and "get_init_inputs" not in found.functions,
    )


def _is_kernel_form(found: Definitions) -> bool:
    """Whether a file with a SOURCE_KERNEL defines nothing that could be an op in PyTorch, nor be meant as one."""
    modules = any(_last_name(base) == "Module" for node in found.classes.values() for base in node.bases)
    return found.line_of("Model") is None and not modules and not _public(found)


def _check_kernel(found: Definitions, kernel: SourceKernel, where: str) -> tuple[None, Parameters, int | None]:
    line = found.line_of(NAME)
    beside = "write class Model(torch.nn.Module) beside it"

    def refuse(what: str, remedy: str) -> Exception:
        text = f"has no Model, so {NAME} is the reference, but {what}"
        return task_error(where, text, f"{remedy}, or {beside}", line=line)

    if kernel.platform not in REFERENCE_PLATFORMS:
        known = ", ".join(REFERENCE_PLATFORMS)
        raise refuse(f"kernels of platform {kernel.platform} cannot be one", f"bring a kernel of {known}")
    try:
        tree = syntax.parse(kernel.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refuse("its source is not Python", "give it the form of a candidate, with ModelNew") from None
    inside = f'{NAME}["source"]'
    model = definitions(tree, inside, once=frozenset({"ModelNew"})).classes.get("ModelNew")
    if model is None:
        raise refuse("its source defines no class ModelNew", "give it the form of a candidate, with ModelNew")
    inputs = _count_inputs(found, where)
    forward = _methods(model, inside).get("forward")
    if forward is None:
        raise refuse("its ModelNew has no method forward", "define forward(self, ...)")
    check_plain(forward, "ModelNew.forward", inside)
    parameters = read_parameters(forward, "ModelNew.forward", inside, method=True)
    _refuse_no_inputs(parameters, "ModelNew.forward", inside, forward.lineno)
    check_counts(parameters, inputs, ("ModelNew.forward", "get_inputs()"), inside, forward.lineno)
    init_inputs = found.functions.get("get_init_inputs")
    count = 0 if init_inputs is None else count_results(init_inputs, "get_init_inputs", where, may_be_empty=True)
    init = _methods(model, inside).get("__init__")
    if init is not None:
        expected = read_parameters(init, "ModelNew.__init__", inside, method=True)
        check_counts(expected, count, ("ModelNew.__init__", "get_init_inputs()"), inside, init.lineno)
    return None, parameters, inputs


def _is_module_form(found: Definitions) -> bool:
    if "Model" in found.classes or "Model" in found.functions or "get_init_inputs" in found.functions:
        return True
    modules = [name for name, node in found.classes.items() if any(_last_name(base) == "Module" for base in node.bases)]
    return (
        "op" not in found.functions and bool(modules) and (nearest("Model", modules) is not None or not _public(found))
    )


def _check_module(found: Definitions, where: str) -> tuple[None, Parameters, int | None]:
    model = found.classes.get("Model")
    if model is None:
        raise _missing(found, "Model", "class Model(torch.nn.Module)", where)
    if not model.bases:
        remedy = "write `class Model(torch.nn.Module):`"
        raise task_error(where, "Model is not a torch.nn.Module", remedy, line=model.lineno)
    methods = _methods(model, where)
    forward = methods.get("forward")
    inputs = _count_inputs(found, where)
    parameters = Parameters((), 0, True)  # of an inherited forward, whatever is given
    if forward is None and any(_last_name(base) == "Module" for base in model.bases):
        close = nearest("forward", methods)
        line = methods[close].lineno if close else model.lineno
        hint = f"did you mean `{close}`? rename it" if close else "write `def forward(self, ...)` with the op in it"
        raise task_error(where, "Model has no method forward", hint, line=line)
    if forward is not None:
        check_plain(forward, "Model.forward", where)
        parameters = read_parameters(forward, "Model.forward", where, method=True)
        _refuse_no_inputs(parameters, "Model.forward", where, forward.lineno)
        check_counts(parameters, inputs, ("Model.forward", "get_inputs()"), where, forward.lineno)
    init_inputs = found.functions.get("get_init_inputs")
    if init_inputs is None:
        raise _missing(
            found, "get_init_inputs", "get_init_inputs(); where Model takes no arguments, it returns []", where
        )
    count = count_results(init_inputs, "get_init_inputs", where, may_be_empty=True)
    init = methods.get("__init__")
    if init is not None:
        expected = read_parameters(init, "Model.__init__", where, method=True)
        check_counts(expected, count, ("Model.__init__", "get_init_inputs()"), where, init.lineno)
    return None, parameters, inputs


def _check_function(found: Definitions, where: str) -> tuple[str, Parameters, int | None]:
    inputs = _count_inputs(found, where)
    public = _public(found)
    if "op" in found.functions:
        name = "op"
    elif len(public) == 1:
        name = public[0]
    elif not public:
        raise _missing(
            found, "Model", "class Model(torch.nn.Module) and no public function that could be the op", where
        )
    else:
        shown = ", ".join(public[:6]) + (", ..." if len(public) > 6 else "")
        what = f"has {len(public)} public functions ({shown}), so it is unclear which one is the op"
        remedy = "name it `op`, or start the names of the others with _"
        raise task_error(where, what, remedy, line=found.functions[public[1]].lineno)
    function = found.functions[name]
    check_plain(function, name, where)
    parameters = read_parameters(function, name, where)
    _refuse_no_inputs(parameters, name, where, function.lineno)
    check_counts(parameters, inputs, (name, "get_inputs()"), where, function.lineno)
    return name, parameters, inputs


def _count_inputs(found: Definitions, where: str) -> int | None:
    function = found.functions.get("get_inputs")
    if function is None:
        raise _missing(found, "get_inputs", "get_inputs()", where)
    return count_results(function, "get_inputs", where, may_be_empty=False)


def _public(found: Definitions) -> list[str]:
    feeders = HARNESS_NAMES | (
        {nearest("get_inputs", found.functions)} if "get_inputs" not in found.functions else set()
    )
    return [name for name in found.functions if not name.startswith("_") and name not in feeders]


def _methods(model: ast.ClassDef, where: str) -> dict[str, Function]:
    methods: dict[str, Function] = {}
    for statement in model.body:
        if isinstance(statement, Function):
            if statement.name in ("forward", "__init__") and statement.name in methods:
                what = (
                    f"{model.name}.{statement.name} is defined twice (first on line {methods[statement.name].lineno})"
                )
                raise task_error(where, what, "keep one of them", line=statement.lineno)
            methods[statement.name] = statement
    return methods


def _refuse_no_inputs(parameters: Parameters, title: str, where: str, line: int) -> None:
    if not parameters.names and not parameters.variadic:
        raise task_error(where, f"{title} takes no inputs", "pass what it works on from get_inputs()", line=line)


def _missing(found: Definitions, name: str, what: str, where: str) -> Exception:
    line = found.line_of(name)
    if line is not None:
        kind = "class" if name == "Model" else "function"
        return task_error(where, f"{name} is not a {kind}", f"define it as a {kind} at the top level", line=line)
    close = nearest(name, {**found.classes, **found.functions} if name == "Model" else found.functions)
    if close is not None and close not in _ONCE:
        remedy = f"did you mean `{close}`? rename it to {name}"
        return task_error(where, f"has no {what}", remedy, line=found.line_of(close))
    return task_error(where, f"has no {what}", "add it at the top level of the file", line=1)


def _last_name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
