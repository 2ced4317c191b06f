"""What differs between the platforms whose kernels run under qemu-user: their instruction set, as data."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InstructionSet:
    """An instruction set, and what compiles for it and runs it.

    Attributes:
        name: of the platform, and of the module that candidates import.
        folder: holds `guest.h`, which `driver.c` includes, and `decode.h`, which `plugin.c` includes.
        target: the compiler's options.
        sysroot: where the C library lies that the package `library` brings.
        library: the name of that package of Debian.
        emulator: the program of qemu-user.
        cpu: the emulator's model of a processor; `{vlen}` stands for the bits of a vector, `{quads}` for 128 of them.
        kinds: of instructions that are counted apart, as `decode.h` numbers them; the first one is all of them.
        trap: how messages name an instruction that leaves the machine for the emulator.
        mapped_by_page: the plugin sees no accesses of vectors. So arrays lie in pages of their own, with pages between
            that the guest has no mapping of, and what no array fills of a page is looked at after the run.
        untranslated: what the message adds where the emulator has ended in an assertion.
    """

    name: str
    folder: Path
    target: tuple[str, ...]
    sysroot: Path
    library: str
    emulator: str
    cpu: str
    kinds: tuple[str, ...]
    trap: str
    mapped_by_page: bool = False
    untranslated: str = ""

    @property
    def programs(self) -> dict[str, str]:
        """The names of compiler, linker and emulator."""
        return {"clang": "clang-19", "linker": "ld.lld-19", "emulator": self.emulator}
