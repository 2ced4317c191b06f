"""Converts the function form to the KernelBench form: a `Model` that calls the op is appended to the source.

The kernel form stays without a `Model`. It gets a `get_init_inputs` if it has none.
"""

from tasks.validate import Op

_MODEL = '''

class Model({base}):
    """The function `{function}` as a module without parameters."""

    def forward(self, {inputs}):
        return {function}({inputs})

'''
_INIT_INPUTS = """

def get_init_inputs():
    return []
"""


def to_kernelbench_form(source: str, op: Op) -> str:
    """Return the source with `Model` and `get_init_inputs` appended; unchanged if it has what its form needs.

    The user's source stays unchanged in front, so its line numbers still hold.
    """
    start = source if source.endswith(("\n", "\r")) else source + "\n"
    if op.needs_init_inputs:
        return start + _INIT_INPUTS
    if op.function is None:
        return source
    names = op.parameters.names if op.inputs is None else op.parameters.names[: op.inputs]
    exact = not op.parameters.variadic and (op.inputs is not None or op.parameters.required == len(names))
    # A parameter called like the op, or `self`, would hide what forward needs.
    inputs = ", ".join(names) if exact and not {"self", op.function} & set(names) else "*inputs"
    imports = "" if op.imports_torch else "\n\nimport torch\n"
    model = _MODEL.format(base="torch.nn.Module", function=op.function, inputs=inputs)
    return start + imports + model.rstrip("\n") + "\n" + _INIT_INPUTS
