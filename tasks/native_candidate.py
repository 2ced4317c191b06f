"""Candidates in C and C++, as HPCTransCompile's benchmarks take them, made into Python that defines `ModelNew`.

Two forms are known:

- a `.cpp` file that exports `forward` (KernelBench_c): for a task whose `Model.forward` takes the function that
  computes as its parameter `fn`, the file's function is given in its place. For a model without parameters, a
  function of the inputs alone will do;
- a `.c` file that defines `default_function_kernel` (HPCTransEval): for a task whose reference is such a kernel
  (`tasks.tvm_kernel`).

Nothing is built or run here.
"""

import ast
from pathlib import Path

from tasks import syntax
from tasks.rename import renamed_text
from tasks.source_kernel import without_source_kernel
from tasks.task import Task
from tasks.text import task_error
from tasks.tvm_kernel import candidate_source

SUFFIXES = (".c", ".cpp")

_PARENT = "Functional"


def python_candidate(task: Task, code: str, path: Path) -> str:
    """The Python of a candidate for a task, whose kernel is this text in C or C++.

    Args:
        task: the task.
        code: the text of the file.
        path: the file, for its suffix and for errors.

    Raises:
        TaskError: the task takes no candidate of that form, or the text holds no such function.
    """
    where = str(path)
    if "\0" in code:
        raise task_error(where, "holds a null byte", "save it as plain text")
    if path.suffix == ".c":
        try:
            made = candidate_source(task.source, code)
        except ValueError as error:
            raise task_error(where, str(error), "define default_function_kernel as the op's C_KERNEL does") from None
        if made is None:
            what = f"is C, and the reference of {task.id} is no kernel in C"
            raise task_error(where, what, "give a .cpp file that exports forward, or a .py file with ModelNew")
        return made
    if "forward" not in code:
        raise task_error(where, "defines no function forward", "export forward(inputs and parameters) by pybind11")
    return f"{_extension(code)}\n\n{_caller(task, where)}"


def _extension(code: str) -> str:
    # A file that declares its own module is built as it is; for another one the binding of `forward` is added.
    functions = None if "PYBIND11_MODULE" in code else ["forward"]
    flags = ["-O3", "-march=native", "-fopenmp"]
    return (
        "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n\n"
        f"extension = load_inline(\n    name='native_candidate',\n    cpp_sources=[{code!r}],\n"
        f"    functions={functions!r},\n    extra_cflags={flags!r},\n    extra_ldflags=['-fopenmp'],\n)\n"
    )


def _caller(task: Task, where: str) -> str:
    """The source of `ModelNew`: the task's own model with `fn=extension.forward`, or the function alone."""
    tree = syntax.parse(task.source)
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    if model is None:
        what = f"is C++, and {task.id} has no class Model"
        raise task_error(where, what, "give a .py file with ModelNew")
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    forward = methods.get("forward")
    if forward is not None and "fn" in {each.arg for each in (*forward.args.args, *forward.args.kwonlyargs)}:
        renamed = renamed_text(without_source_kernel(task.source), {"Model": _PARENT})
        return (
            f"{renamed.rstrip()}\n\n\nclass ModelNew({_PARENT}):\n"
            "    def forward(self, *inputs):\n        return super().forward(*inputs, fn=extension.forward)\n"
        )
    if "__init__" in methods and len(methods["__init__"].args.args) > 1:
        what = f"is C++, and Model.forward of {task.id} takes no function fn that forward could stand for"
        remedy = "write the model with forward(self, ..., fn=module_fn), or give a .py file with ModelNew"
        raise task_error(where, what, remedy)
    return "class ModelNew(nn.Module):\n    def forward(self, *inputs):\n        return extension.forward(*inputs)\n"
