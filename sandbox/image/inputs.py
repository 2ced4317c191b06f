"""What the making of the image takes from this host, as one folder: wheels, how Debian is reached, the CA bundle.

The folder is mounted read-only while the image is made and never becomes part of it, so proxies, mirrors, credentials
and certificates of this host stay on this host.
"""

import re
import shlex
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sandbox.base import SandboxUnavailable
from sandbox.image.recipe import ImageRecipe

PYTHON_VERSION = "3.11"
"""Of Debian 12, and so of the wheels."""

_PIP = "pip==23.2.1"
_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(17, 37)), "manylinux2014_x86_64")
_APT_SETTINGS = re.compile(r"Acquire::(http|https|ftp|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date)\b")
_SYSTEM_CA_BUNDLES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))


def collect_inputs(recipe: ImageRecipe, folder: Path, *, wheels: Path | None, progress: Callable[[str], None]) -> None:
    """Fill `folder` with everything that the recipe's `install.sh` needs.

    Raises:
        SandboxUnavailable: a Python package cannot be had.
    """
    for path in recipe.paths:
        shutil.copy(path, folder)
    for path in recipe.folders:
        shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    progress("downloading the Python packages of the image with this host's pip settings")
    _download_wheels(recipe.requirements, folder / "wheels", wheels)
    bundle = host_ca_bundle()
    if bundle is not None:
        shutil.copy(bundle, folder / "ca.crt")
    _write_proxies(folder / "proxy.env")
    write_apt_settings(folder, has_bundle=bundle is not None)


def host_ca_bundle() -> Path | None:
    """The file of certificates that this host trusts, or None."""
    configured = ssl.get_default_verify_paths().cafile
    for path in (*([Path(configured)] if configured else []), *_SYSTEM_CA_BUNDLES):
        if path.is_file():
            return path
    return None


def _write_proxies(path: Path) -> None:
    proxies = {scheme: url for scheme, url in urllib.request.getproxies().items() if scheme in _PROXY_SCHEMES}
    path.write_text("".join(f"export {scheme}_proxy={shlex.quote(url)}\n" for scheme, url in proxies.items()))


_PROXY_SCHEMES = ("http", "https", "ftp", "no")


def _download_wheels(requirements: Sequence[Path], into: Path, wheels: Path | None) -> None:
    into.mkdir()
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(into)]
    command += ["--python-version", PYTHON_VERSION, "--implementation", "cp", "--abi", "cp311", "--abi", "abi3"]
    command += ["--abi", "none", *(word for platform in _PLATFORMS for word in ("--platform", platform))]
    if wheels is not None:
        command += ["--find-links", str(wheels)]
    command += [*(word for path in requirements for word in ("-r", str(path))), _PIP]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SandboxUnavailable(
            f"pip cannot download the image's packages: {_last_error(done.stderr)}.",
            "Set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU wheels (its install page names it), or put the wheels "
            f"of {' and '.join(path.name for path in requirements)} into a folder and name it with --wheels DIR.",
        )


def _last_error(stderr: str) -> str:
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    return (errors or stderr.splitlines() or ["no message"])[-1].removeprefix("ERROR: ").rstrip(".")


def write_apt_settings(folder: Path, *, has_bundle: bool) -> None:
    """Write `apt.conf`, and `sources/` where this host is a Debian 12 too, so that the build reaches Debian its way."""
    lines = [line for line in _apt_config_dump() if _APT_SETTINGS.match(line) and "CAInfo" not in line]
    if has_bundle:
        lines.append('Acquire::https::CAInfo "/mnt/ca.crt";')
    sources = _debian_12_sources(Path("/etc"))
    if sources:
        target = folder / "sources"
        target.mkdir()
        for source in sources:
            shutil.copy(source, target / source.name)
        lines += ['Dir::Etc::sourcelist "/dev/null";', 'Dir::Etc::sourceparts "/mnt/sources";']
    (folder / "apt.conf").write_text("".join(f"{line}\n" for line in lines))


def _apt_config_dump() -> Iterable[str]:
    if shutil.which("apt-config") is None:
        return ()
    return subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout.splitlines()


def debian_mirror(etc: Path = Path("/etc")) -> str | None:
    """The Debian mirror that this host uses where it is a Debian 12; None leaves the choice to debootstrap."""
    for source in _debian_12_sources(etc):
        found = re.search(r"https?://[^\s\]]+/debian(?=/?\s)", source.read_text())
        if found:
            return found.group(0)
    return None


def _debian_12_sources(etc: Path) -> list[Path]:
    """The host's own files of Debian's sources, empty unless it is a Debian 12. Third parties' files are left out."""
    release = etc / "os-release"
    if not release.is_file() or "VERSION_CODENAME=bookworm" not in release.read_text():
        return []
    if "\nID=debian\n" not in f"\n{release.read_text()}\n":
        return []
    parts = etc / "apt" / "sources.list.d"
    files = [etc / "apt" / "sources.list", *sorted((*parts.glob("*.list"), *parts.glob("*.sources")))]
    return [path for path in files if path.is_file() and re.search(r"/debian(-security)?/?\s", path.read_text())]
