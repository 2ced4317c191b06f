"""What an image of sandboxes is made from: a folder of files that a platform brings."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ImageRecipe:
    """The recipe of a platform's image, on a base of Debian 12 or on another platform's image.

    `install.sh` runs as root in the base, with this folder's files, wheels of the packages and the host's way to Debian
    at `/mnt`. It installs what `requirements.txt` pins and leaves:

    - `/usr/local/bin/kernelwright-start SECONDS PACKAGE ARG...`, which every container runs: it runs the Python package
      that lies in `/harness`, and kills it after so many seconds;
    - the folder `/harness`, and no file with a setuid bit.

    On another image both are there already.

    Attributes:
        name: the image's repository is `kernelwright-NAME`.
        folder: holds the files.
        files: the names of the files that decide what is in the image, `install.sh` and `requirements.txt` among them.
        variables: the environment variables that the image sets besides those of every command.
        base: the recipe of the image that this one is made on; None is Debian 12.
        folders: whole folders of other places that decide what is in the image, too; `/mnt` has each by its name.
    """

    name: str
    folder: Path
    files: tuple[str, ...]
    variables: tuple[str, ...] = ()
    base: "ImageRecipe | None" = None
    folders: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(self.folder / name for name in self.files)

    @property
    def requirements(self) -> tuple[Path, ...]:
        """The files that pin the image's Python packages: those of all, and where there is one, those of baselines."""
        return tuple(path for path in self.paths if path.name in ("requirements.txt", "baselines.txt"))

    @property
    def tag(self) -> str:
        """`kernelwright-NAME:HASH`; the hash covers the files, those of the folders and those of the base."""
        digest = hashlib.sha256(b"" if self.base is None else self.base.tag.encode())
        for path in self.paths:
            digest.update(path.read_bytes())
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                if not path.is_file() or "__pycache__" in path.parts:
                    continue
                digest.update(f"{path.relative_to(folder)}\n".encode())
                digest.update(path.read_bytes())
        return f"kernelwright-{self.name}:{digest.hexdigest()[:12]}"
