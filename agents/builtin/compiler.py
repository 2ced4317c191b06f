"""The compiler of the built-in model: it turns an op and a set of variations into the source of a candidate."""

import ast
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agents.builtin.analysis.cost import Prediction, estimate_s
from agents.builtin.analysis.inductor_module import read_module
from agents.builtin.candidate_file import HEADER, write_candidate, write_fallback
from agents.builtin.catalog import (
    VARIATIONS,
    InductorOptions,
    apply_transforms,
    get_variation,
    in_order,
    merged_options,
)
from agents.builtin.compilation_unit import CompilationUnit
from agents.builtin.errors import BuiltinError, CodegenFailed, GenerationCancelled, NotTranslatable
from agents.builtin.generated import Generated, read_generated
from agents.builtin.op_frame import read_frame
from sandbox.base import Command, Limits, Sandbox

CODEGEN = Path(__file__).parent / "codegen"
CODEGEN_LIMITS = Limits(wall_s=120.0, memory_mb=8192, processes=128, output_bytes=32 * 1024 * 1024)
FALLBACK = "torch-compile"
MIN_ESTIMATED_GAIN = 0.8  # below 1, because estimates are rough
MIN_KNOWN_GAIN = 1.02  # of a variation in earlier jobs, to be in a first candidate
NOTHING_KNOWN: Mapping[str, float] = MappingProxyType({})
_MAX_CACHED_MODULES = 256
# What the analysis may raise on text that is not what TorchInductor writes.
_ANALYSIS_ERRORS = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError),
)

Predict = Callable[[tuple[str, ...], str], Prediction | None]
"""`predict(base, name)`: the effect of a variation on the candidate with the variations `base`; None: it has none."""


@dataclass(frozen=True)
class WrittenCandidate:
    """A candidate and its variations. `fallback_reason`: why it only calls torch.compile; None: it has kernels."""

    source: str
    variations: tuple[str, ...]
    fallback_reason: str | None = None


class Compiler:
    """Generates kernels in a sandbox and writes candidates with them. Generated modules are cached.

    Args:
        sandbox: where ops run and TorchInductor generates code.
        limits: of one run in the sandbox.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = CODEGEN_LIMITS) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._cache: dict[str, Generated | CodegenFailed] = {}

    def write(self, reference: str, names: Sequence[str]) -> WrittenCandidate:
        """The candidate for an op with these variations. A variation that does not fit the op changes nothing.

        If the op's kernels cannot be generated or translated, the candidate calls torch.compile and says so.

        Raises:
            CodegenFailed: the op itself fails.
            SandboxUnavailable: no sandbox is available.
            GenerationCancelled: the job was cancelled.
        """
        names = in_order(names)
        frame = read_frame(reference)
        try:
            unit = self.make_unit(reference, names)
            with _untrusted_text():
                source = write_candidate(frame, unit.generated, unit.module, header=_header(names), flags=unit.flags)
            return WrittenCandidate(source, names)
        except CodegenFailed as error:
            if error.stage not in ("export", "lower", "codegen"):
                raise
            return self.write_fallback(reference, str(error))
        except NotTranslatable as error:
            return self.write_fallback(reference, str(error))

    def write_first(self, reference: str, known: Mapping[str, float] = NOTHING_KNOWN) -> WrittenCandidate:
        """The first candidate for an op: with those variations of `first_names`.

        Args:
            reference: the op.
            known: what variations gained in earlier jobs.

        Raises:
            CodegenFailed: the op itself fails.
            SandboxUnavailable: no sandbox is available.
            GenerationCancelled: the job was cancelled.
        """
        return self.write(reference, first_names(lambda base, name: self.predict(reference, base, name), known))

    def write_fallback(self, reference: str, reason: str) -> WrittenCandidate:
        """The candidate that only calls torch.compile; its docstring gives the reason."""
        source = write_fallback(read_frame(reference), _header((FALLBACK,)), reason)
        return WrittenCandidate(source, (), reason)

    def make_unit(self, reference: str, names: Sequence[str]) -> CompilationUnit:
        """The kernels of an op's candidate with these variations.

        Raises:
            CodegenFailed: TorchInductor generated no kernels for the op or for these variations.
            NotTranslatable: the generated code has an unknown form.
            SandboxUnavailable: no sandbox is available.
            GenerationCancelled: the job was cancelled.
        """
        generated = self._generate_cached(reference, merged_options(names))
        with _untrusted_text():
            return apply_transforms(CompilationUnit(generated, read_module(generated.text)), names)

    def predict(self, reference: str, base: Sequence[str], name: str) -> Prediction | None:
        """The estimated effect of one more variation on the candidate with the variations `base`.

        Kernels for other options are generated only if the code at hand says that they may be better.

        Returns:
            The estimate; None: the variation leads to the same candidate, or to none.

        Raises:
            SandboxUnavailable: no sandbox is available.
            GenerationCancelled: the job was cancelled.
        """
        try:
            before = self.make_unit(reference, base)
            with _untrusted_text():
                if not get_variation(name).may_help(before):
                    return None
            after = self.make_unit(reference, (*base, name))
            if _candidate_content(before) == _candidate_content(after):
                return None
            with _untrusted_text():
                return Prediction(estimate_s(before), estimate_s(after))
        except BuiltinError:
            return None

    def _generate_cached(self, reference: str, options: InductorOptions) -> Generated:
        key = hashlib.sha256(json.dumps([reference, options], sort_keys=True).encode()).hexdigest()
        if key not in self._cache:
            while len(self._cache) >= _MAX_CACHED_MODULES:
                self._cache.pop(next(iter(self._cache)))
            try:
                self._cache[key] = self._generate(reference, options)
            except CodegenFailed as error:
                self._cache[key] = error
        found = self._cache[key]
        if isinstance(found, CodegenFailed):
            raise found
        return found

    def _generate(self, reference: str, options: InductorOptions) -> Generated:
        request = json.dumps({"source": reference, "options": dict(options)}).encode()
        command = Command(package=CODEGEN, stdin=request, limits=self._limits, label="codegen")
        done = self._sandbox.run(command)
        if done.cancelled:
            raise GenerationCancelled
        if done.timed_out:
            raise CodegenFailed("load", f"the op did not finish within {self._limits.wall_s:.0f} s")
        if done.out_of_memory:
            raise CodegenFailed("load", f"the op needs more than {self._limits.memory_mb} MB")
        if done.exit_code != 0 or done.output_truncated or not done.stdout:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no output"]
            raise CodegenFailed("load", f"the op ended the process (exit status {done.exit_code}): {last[0][:300]}")
        return read_generated(done.stdout)


@contextlib.contextmanager
def _untrusted_text() -> Iterator[None]:
    """Report an error of the analysis as code that cannot be translated.

    Generated text comes from a process that ran the op's code. It may hold loops that never step, numbers without end,
    or braces a thousand levels deep.

    Raises:
        NotTranslatable: the analysis failed.
    """
    try:
        yield
    except _ANALYSIS_ERRORS as error:
        raise NotTranslatable(f"generated code that cannot be read ({type(error).__name__})") from error


def first_names(predict: Predict, known: Mapping[str, float] = NOTHING_KNOWN) -> tuple[str, ...]:
    """The variations of an op's first candidate: those that fit it and should make it faster.

    By the estimate, those that are for first candidates; and those that made kernels faster in earlier jobs, unless the
    estimate clearly contradicts that.

    Args:
        predict: estimates a variation's effect.
        known: what variations gained in earlier jobs, as factors.
    """
    chosen: list[str] = []
    for each in VARIATIONS:
        won = known.get(each.name, 1.0) >= MIN_KNOWN_GAIN and not each.for_short_calls
        effect = predict((), each.name) if each.from_the_start or won else None
        if effect is not None and effect.gain() > (MIN_ESTIMATED_GAIN if won else 1):
            chosen.append(each.name)
    return tuple(chosen)


def read_variations(source: str) -> tuple[str, ...] | None:
    """The variations in the header of a candidate; None: the built-in model did not write it."""
    first = source.partition("\n")[0]
    if not first.startswith(HEADER):
        return None
    try:
        names: Any = json.loads(first.removeprefix(HEADER))["variations"]
        return in_order([str(name) for name in names])
    except (ValueError, TypeError, KeyError):
        return None


def features_of_candidate(source: str) -> frozenset[str]:
    """What a candidate of the built-in model has, by its header: its variations, or `torch-compile` for a fallback.

    Its source holds a runtime in which nearly every feature of kernels would be found.
    """
    return frozenset({FALLBACK} if is_fallback(source) else read_variations(source) or ())


def describe_feature(name: str) -> str:
    """What a variation is, in a few words; other names stand for themselves."""
    found = next((each for each in VARIATIONS if each.name == name), None)
    return name if found is None else f"builtin/compiler's {name} ({found.description})"


def is_fallback(source: str) -> bool:
    """Whether a candidate is one that only calls torch.compile."""
    first = source.partition("\n")[0]
    return first.startswith(HEADER) and f'"{FALLBACK}"' in first


def _header(names: Sequence[str]) -> dict[str, Any]:
    return {"variations": list(names)}


def _candidate_content(unit: CompilationUnit) -> tuple[object, ...]:
    """All of a unit that its candidate depends on."""
    statements = tuple(ast.unparse(statement) for statement in unit.module.statements)
    return unit.module.kernels, statements, unit.flags, unit.generated.vector_bytes
