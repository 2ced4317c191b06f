"""The compiler behind the built-in model: an op and a set of variations in, a candidate's source out."""

import ast
import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.builtin.analysis.cost import Prediction, estimate_s
from agents.builtin.analysis.inductor_module import read_module
from agents.builtin.candidate_file import HEADER, assemble
from agents.builtin.catalog import InductorOptions, apply, find, known, merged_options
from agents.builtin.draft import Draft
from agents.builtin.errors import BuiltinError, CodegenFailed, NotTranslatable
from agents.builtin.fallback import assemble_fallback
from agents.builtin.generated import Generated, read_generated
from agents.builtin.op_frame import read_frame
from sandbox.base import Command, Limits, Sandbox

CODEGEN = Path(__file__).parent / "codegen"
CODEGEN_LIMITS = Limits(wall_s=120.0, memory_mb=8192, processes=128, output_bytes=32 * 1024 * 1024)
FALLBACK = "torch-compile"
_MAX_CACHED = 256  # generated modules


@dataclass(frozen=True)
class Written:
    """A candidate's source and the variations in it; `reason` says why it is only a fallback, if it is one."""

    source: str
    variations: tuple[str, ...]
    reason: str | None = None


class Compiler:
    """Generates kernels in a sandbox and turns them into candidates. Keeps what the sandbox generated for each op."""

    def __init__(self, sandbox: Sandbox, limits: Limits = CODEGEN_LIMITS) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._generated: dict[str, Generated | CodegenFailed] = {}

    def write(self, reference: str, names: Sequence[str]) -> Written:
        """The candidate for the op `reference` with these variations; those that do not fit it change nothing.

        Where its kernels cannot be had or translated, a candidate that calls torch.compile and says so.

        Raises:
            CodegenFailed: the op itself fails.
            SandboxUnavailable: nothing can run at present.
        """
        names = known(names)
        frame = read_frame(reference)
        try:
            draft = self.draft(reference, names)
            note = _note(names)
            return Written(assemble(frame, draft.generated, draft.module, note=note, flags=draft.flags), names)
        except CodegenFailed as error:
            if error.stage not in ("export", "lower", "codegen"):
                raise
            reason = str(error)
        except NotTranslatable as error:
            reason = str(error)
        return Written(assemble_fallback(frame, _note((FALLBACK,)), reason), (), reason)

    def fallback(self, reference: str, reason: str) -> Written:
        """The candidate that leaves everything to torch.compile, and says why."""
        return Written(assemble_fallback(read_frame(reference), _note((FALLBACK,)), reason), (), reason)

    def draft(self, reference: str, names: Sequence[str]) -> Draft:
        """The candidate's kernels with these variations, before they are written out.

        Raises:
            CodegenFailed: TorchInductor gave no kernels for the op or for these variations.
            NotTranslatable: the generated code has a form that this project does not know.
            SandboxUnavailable: nothing can run at present.
        """
        generated = self._ask(reference, merged_options(names))
        with _readable():
            return apply(Draft(generated, read_module(generated.text)), names)

    def predict(self, reference: str, base: Sequence[str], name: str) -> Prediction | None:
        """What the variation `name` may do to the candidate with the variations `base`, or None where that is no other
        candidate: it does not fit, or its kernels cannot be had.

        Kernels for other options are generated only where the code at hand says that they may be better.

        Raises:
            SandboxUnavailable: nothing can run at present.
        """
        try:
            before = self.draft(reference, base)
            if not find(name).fits(before):
                return None
            after = self.draft(reference, (*base, name))
            if _content(before) == _content(after):
                return None
            with _readable():
                return Prediction(estimate_s(before), estimate_s(after))
        except BuiltinError:
            return None

    def _ask(self, reference: str, options: InductorOptions) -> Generated:
        key = hashlib.sha256(json.dumps([reference, options], sort_keys=True).encode()).hexdigest()
        if key not in self._generated:
            while len(self._generated) >= _MAX_CACHED:
                self._generated.pop(next(iter(self._generated)))
            try:
                self._generated[key] = self._generate(reference, options)
            except CodegenFailed as error:
                self._generated[key] = error
        found = self._generated[key]
        if isinstance(found, CodegenFailed):
            raise found
        return found

    def _generate(self, reference: str, options: InductorOptions) -> Generated:
        request = json.dumps({"source": reference, "options": dict(options)}).encode()
        command = Command(package=CODEGEN, stdin=request, limits=self._limits, label="codegen")
        done = self._sandbox.run(command)
        if done.timed_out:
            raise CodegenFailed("load", f"the op did not finish within {self._limits.wall_s:.0f} s")
        if done.out_of_memory:
            raise CodegenFailed("load", f"the op needs more than {self._limits.memory_mb} MB")
        if done.exit_code != 0 or done.output_truncated or not done.stdout:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no output"]
            raise CodegenFailed("load", f"the op ended the process (exit status {done.exit_code}): {last[0][:300]}")
        return read_generated(done.stdout)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Inside of it, what generated text makes the analysis stumble over is a form that this project does not know.

    The text comes from where the op's own code ran: loops that never step, numbers without end, braces a thousand deep.

    Raises:
        NotTranslatable: it stumbled.
    """
    try:
        yield
    except (ArithmeticError, LookupError, RecursionError, ValueError) as error:
        raise NotTranslatable(f"generated code that cannot be read ({type(error).__name__})") from error


def read_note(source: str) -> tuple[str, ...] | None:
    """The variations that a candidate's header names, or None if the built-in model did not write it."""
    first = source.partition("\n")[0]
    if not first.startswith(HEADER):
        return None
    try:
        names: Any = json.loads(first.removeprefix(HEADER))["variations"]
        return known([str(name) for name in names])
    except (ValueError, TypeError, KeyError):
        return None


def is_fallback(source: str) -> bool:
    """Whether this is the candidate that leaves everything to torch.compile."""
    first = source.partition("\n")[0]
    return first.startswith(HEADER) and f'"{FALLBACK}"' in first


def _note(names: Sequence[str]) -> dict[str, Any]:
    return {"variations": list(names)}


def _content(draft: Draft) -> tuple[object, ...]:
    """What of a draft ends up in its candidate."""
    statements = tuple(ast.unparse(statement) for statement in draft.module.statements)
    return draft.module.kernels, statements, draft.flags, draft.generated.vector_bytes
