"""The baselines that a candidate may be timed against, by name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Baseline:
    """One way to run the reference.

    Attributes:
        name: as settings, results and tables of columns have it.
        title: for people.
        modules: the Python modules that it needs beside torch.
    """

    name: str
    title: str
    modules: tuple[str, ...] = ()


EAGER = "eager"
BASELINES = {
    each.name: each
    for each in (
        Baseline(EAGER, "eager"),
        Baseline("compile", "torch.compile"),
        Baseline("compile-max-autotune", "torch.compile (max-autotune)"),
        Baseline("onnxruntime", "ONNX Runtime", ("onnx", "onnxscript", "onnxruntime")),
        Baseline("openvino", "OpenVINO", ("onnx", "onnxscript", "openvino")),
    )
}
"""All of them, in the order in which they are shown."""

OTHERS = tuple(name for name in BASELINES if name != EAGER)
"""Those that are compiled or exported first, in processes of their own, and judged before they are timed."""

SOURCE_KERNEL = "source_kernel"
"""The name among baselines' builds of what a kernel that is the reference was built to."""

USUAL = (EAGER, "compile")
"""Those that candidates are timed against unless others are asked for."""

PACKAGES = "/opt/kernelwright/baselines"
"""Where an image has the modules of baselines. Only the processes of baselines may read it."""

PACKAGES_GROUP = 20000
"""The group that may read `PACKAGES`. No runner has it as its own: theirs begin above."""


def title_of(name: str) -> str:
    """What people call a baseline; a name that is not known stays as it is."""
    return BASELINES[name].title if name in BASELINES else name
