"""Platform `cuda` in a runner: candidates in the field's form are built for the host, and their launches recorded."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ....protocol.framing import Message
from ... import model_state
from ..gpu import seeming
from ..gpu.memory import span_bytes
from . import building, checking
from .source import Remark

if TYPE_CHECKING:
    from ...main import Runner

_RECORD_BYTES = 256 << 20  # of one record of launches
_PLAIN_SHARED_BYTES = 48 * 1024  # of dynamic shared memory, without being asked for


class NotEmulated(RuntimeError):
    """The source uses what the emulation has nothing for."""


class Kernel:
    """A kernel of `torch.cuda._compile_kernel`, launched on the host; its arguments are those of torch's own class."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._launch = library.cuh_launch
        self._launch.restype = ctypes.c_char_p
        self._launch.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_void_p)
        self._shared_bytes = 0

    def __call__(
        self,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        args: Sequence[Any] | None = None,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch it.

        Raises:
            TypeError: an argument is neither a tensor, nor an int, nor a float.
            RuntimeError: a GPU would refuse the launch, or an argument is passed as another type than it takes; or the
                kernel is at fault.
        """
        if shared_mem >= _PLAIN_SHARED_BYTES and shared_mem > self._shared_bytes:
            raise RuntimeError(
                f"Kernel requires {shared_mem} bytes of shared memory (>= 48KB): call set_shared_memory_config before"
            )
        kinds = ""
        held: list[ctypes._SimpleCData[Any]] = []
        for each in args or ():
            if isinstance(each, torch.Tensor):
                kinds += "p"
                held.append(ctypes.c_void_p(each.data_ptr()))
            elif isinstance(each, int):
                kinds += "i"
                held.append(ctypes.c_int(each))
            elif isinstance(each, float):
                kinds += "d"
                held.append(ctypes.c_double(each))
            else:
                raise TypeError(f"Unsupported argument type: {type(each)}")
        given = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        size = (ctypes.c_uint * 6)(*grid[:3], *block[:3])
        wrong = self._launch(size, shared_mem, kinds.encode(), given)
        if wrong is not None:
            raise RuntimeError(wrong.decode("utf-8", "replace"))

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Allow launches with so much dynamic shared memory.

        Raises:
            RuntimeError: no GPU has as much.
        """
        if self._library.cuh_allow_shared(int(shared_mem_bytes)):
            raise RuntimeError(f"Requested shared memory ({shared_mem_bytes} bytes) exceeds device limit")
        self._shared_bytes = int(shared_mem_bytes)


class CudaRunner:
    """See `base.RunnerPlatform`. It serves other dialects that the emulation runs, too."""

    def __init__(
        self,
        dialect: building.Dialect = building.CUDA,
        compiler: checking.Compiler = checking.by_nvrtc,
        device: seeming.Properties = seeming.A100,
    ) -> None:
        self._dialect, self._compiler, self._device = dialect, compiler, device
        self._folder: Path | None = None  # where a candidate's extensions are built; None: there is no candidate
        self._given: list[building.Sources] = []
        self._library: ctypes.CDLL | None = None

    def modules(self) -> Mapping[str, ModuleType]:
        """None: candidates import torch."""
        return {}

    def commands(self, runner: "Runner") -> Mapping[str, Callable[[Message], Message]]:
        """`recorded_call` records the launches of a call, `check_launches` makes them again, elsewhere."""
        return {
            "recorded_call": lambda message: self._recorded_call(runner, message),
            "check_launches": lambda message: checking.check(runner, message, self._dialect, self._compiler),
            "given_sources": lambda _: {"sources": self._sources()},
            "compile_only": lambda message: checking.compile_only(message, self._compiler),
        }

    def keep_builds(self, folder: Path) -> None:
        """Have `load_inline` build for the host, and torch.cuda say that there is a GPU."""
        self._folder = folder / self._dialect.name
        seeming.pretend(self._device)
        from torch.utils import cpp_extension

        setattr(cpp_extension, "load_inline", self._load_inline)  # noqa: B010 - a function of theirs
        setattr(cpp_extension, "load", self._load)  # noqa: B010
        setattr(torch.cuda, "_compile_kernel", self._compile_kernel)  # noqa: B010

    def foreign_code(self) -> AbstractContextManager[None]:
        """To a candidate tensors seem to lie on a GPU."""
        return contextlib.nullcontext() if self._folder is None else _seeming()

    def settle(self) -> None:
        """Nothing is timed."""

    def give_way(self) -> None:
        """Nothing is timed."""

    def beside_calls(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return contextlib.nullcontext()

    def measure_peaks(self, points: Sequence[str]) -> dict[str, float]:
        """Nothing is measured."""
        return {}

    def _sources(self) -> list[list[Any]]:
        """Each source once: of one text several kernels may have been compiled."""
        once = {(given.cuda, given.plain): given.name for given in self._given if given.cuda}
        return [[name, list(cuda), plain] for (cuda, plain), name in once.items()]

    def _compile_kernel(self, kernel_source: str, kernel_name: str, *_: Any, **__: Any) -> Kernel:
        """In place of torch's: the same arguments, of which options of the compiler are left out."""
        if not self._dialect.plain_kernels:
            raise NotEmulated(
                f"kernels that Python compiles ({kernel_name}) are none of platform {self._dialect.name}'s"
            )
        given = building.Sources(str(kernel_name), (), (str(kernel_source),), {}, plain=True)
        self._note(given)
        assert self._folder is not None
        with _plainly():
            return Kernel(self._watch(building.build_plain(given, self._folder)))

    def _load_inline(
        self, name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None, *_: Any, **__: Any
    ) -> ModuleType:
        """In place of torch's: the same arguments, of which options of compilers are left out."""
        return self._build(building.sources_of(name, cpp_sources, cuda_sources, functions))

    def _load(self, name: str, sources: Any, *_: Any, **__: Any) -> ModuleType:
        """In place of torch's: files of the candidate's own."""
        texts = {path: Path(path).read_text() for path in ((sources,) if isinstance(sources, str) else sources)}
        cuda = [text for path, text in texts.items() if str(path).endswith((".cu", ".cuh"))]
        cpp = [text for path, text in texts.items() if not str(path).endswith((".cu", ".cuh"))]
        return self._build(building.sources_of(name, cpp, cuda))

    def _build(self, given: building.Sources) -> ModuleType:
        assert self._folder is not None
        self._note(given)
        with _plainly():
            module, _ = building.build_extension(given, self._folder, self._dialect)
        self._watch(ctypes.CDLL(str(module.__file__)))
        return module

    def _note(self, given: building.Sources) -> None:
        """Keep what a candidate gave.

        Raises:
            NotEmulated: it uses what the emulation has nothing for.
        """
        self._given.append(given)
        remarks = building.not_emulated(given, self._dialect)
        if remarks:
            raise NotEmulated("the emulation cannot run " + _listed(remarks))

    def _watch(self, library: ctypes.CDLL) -> ctypes.CDLL:
        """Record launches through a library; all of a process share what records them."""
        library.cuh_record.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64)
        library.cuh_region.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
        self._library = library
        return library

    def _recorded_call(self, runner: "Runner", message: Message) -> Message:
        """One call of the model; its outputs, the record of its launches, and the sources that they are of."""
        inputs = runner.decoded(message["tree"])
        sources = self._sources()
        if self._library is None:
            return {"tree": runner.reveal(None)["tree"], "record": runner.reveal(torch.empty(0))["tree"], "sources": []}
        for value in (*model_state.tensors_in(inputs), *model_state.all_tensors(runner.model).values()):
            self._library.cuh_region(value.data_ptr(), span_bytes(value))
        path = Path.cwd() / "record"
        self._library.cuh_record(str(path).encode(), int(message["run"]), _RECORD_BYTES)
        try:
            torch.default_generator.manual_seed(message["seed"])
            with torch.no_grad(), self.foreign_code():
                value = runner.model(*inputs)
        finally:
            self._library.cuh_record(None, 0, 0)
        outputs = runner.reveal(value)["tree"]
        record = path.read_bytes()
        path.unlink()
        told = torch.frombuffer(bytearray(record), dtype=torch.uint8) if record else torch.empty(0, dtype=torch.uint8)
        return {"tree": outputs, "record": runner.reveal(told)["tree"], "sources": sources}


def _listed(remarks: Sequence[Remark]) -> str:
    text = "; ".join(f"line {remark.line}: {remark.text}" for remark in remarks[:4])
    return text + (" …" if len(remarks) > 4 else "")


@contextlib.contextmanager
def _seeming() -> Iterator[None]:
    with seeming.SeemingCuda():
        yield


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Leave what candidates see for a while: building looks at no tensor, but torch's own tools may."""
    with torch._C.DisableTorchFunctionSubclass():
        yield
