"""The image: its recipe is pinned, what the host contributes stays on the host, and what must be in it is in it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import docker
import pytest

import sandbox.image.base
from evaluator.platforms import PLATFORM_NAMES, load_platform
from sandbox.base import Command, Limits, SandboxUnavailable
from sandbox.docker.sandbox import DockerSandbox
from sandbox.image.base import make_base
from sandbox.image.inputs import debian_mirror, write_apt_settings
from tests.support.cpu_platform import IMAGE
from tests.support.sandboxes import SandboxOf

ROOT = Path(__file__).parents[2]


def pins(*paths: Path) -> dict[str, str]:
    lines = [line.split("#")[0].strip() for path in paths for line in path.read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


@pytest.mark.parametrize("platform", PLATFORM_NAMES)
def test_the_image_has_the_versions_that_the_host_has(platform: str) -> None:
    constraints, pinned = pins(ROOT / "constraints.txt"), pins(*load_platform(platform).image().requirements)
    assert {name: version.removesuffix("+cpu") for name, version in pinned.items()} == {
        name: constraints[name] for name in pinned
    }


def test_the_tag_changes_with_the_recipe_alone(tmp_path: Path) -> None:
    copy = replace(IMAGE, folder=tmp_path / "copy")
    shutil.copytree(IMAGE.folder, copy.folder)
    (copy.folder / "notes.md").write_text("not a part of it")
    assert copy.tag == IMAGE.tag
    assert IMAGE.tag.startswith("kernelwright-cpu:")
    for path in copy.paths:
        before = copy.tag
        path.write_text(path.read_text() + "\n# changed\n")
        assert copy.tag != before


@pytest.mark.parametrize(
    ("release", "sources", "mirror"),
    [
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "deb http://mirror.test/debian bookworm main\n", "http://mirror.test/debian"),
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "deb [arch=amd64] https://m.test/a/debian/ bookworm main\n", "https://m.test/a/debian"),
        ("ID=debian\nVERSION_CODENAME=bookworm\n", "deb http://elsewhere.test/repo stable main\n", None),
        ("ID=ubuntu\nVERSION_CODENAME=noble\n", "deb http://mirror.test/ubuntu noble main\n", None),
    ],
)  # fmt: skip
def test_the_mirror_is_the_hosts_own_where_it_is_a_debian_12(
    tmp_path: Path, release: str, sources: str, mirror: str | None
) -> None:
    (tmp_path / "apt").mkdir()
    (tmp_path / "os-release").write_text(release)
    (tmp_path / "apt" / "sources.list").write_text(sources)
    assert debian_mirror(tmp_path) == mirror


def test_apt_is_told_where_the_certificates_are_mounted(tmp_path: Path) -> None:
    write_apt_settings(tmp_path, has_bundle=True)
    assert 'Acquire::https::CAInfo "/mnt/ca.crt";' in (tmp_path / "apt.conf").read_text()


def test_without_debootstrap_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.image.base.shutil, "which", lambda name, path: None)
    with pytest.raises(SandboxUnavailable, match="debootstrap is not installed") as caught:
        make_base(docker.DockerClient("unix:///nowhere", version="1.41"), "debootstrap", print)
    assert "apt-get install debootstrap" in caught.value.remedy


def test_without_root_debootstrap_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.image.base.shutil, "which", lambda name, path: "/usr/sbin/debootstrap")
    monkeypatch.setattr(sandbox.image.base.os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxUnavailable, match="needs root"):
        make_base(docker.DockerClient("unix:///nowhere", version="1.41"), "debootstrap", print)


PROBE = """
import json, os, shutil, sys
import numpy, torch
programs = {name: shutil.which(name) for name in ("g++", "ninja", "openssl")}
files = [os.path.join(top, name) for top, _, names in os.walk("/usr") for name in names]
setuid = [path for path in files if os.lstat(path).st_mode & 0o6000]
headers = os.path.exists(f"/usr/include/python{sys.version_info[0]}.{sys.version_info[1]}/Python.h")
versions = [torch.__version__, numpy.__version__]
print(json.dumps([*versions, programs, headers, setuid, os.listdir("/mnt"), os.listdir("/tmp")]))
"""


@pytest.mark.docker
def test_the_image_holds_what_it_must_and_nothing_of_its_making(docker_sandbox: DockerSandbox, tmp_path: Path) -> None:
    package = tmp_path / "probe"
    package.mkdir()
    (package / "__main__.py").write_text(PROBE)
    done = docker_sandbox.run(Command(package, limits=Limits(wall_s=60)))
    assert done.exit_code == 0, done.stderr
    torch, numpy, programs, headers, setuid, left_over, scratch = json.loads(done.stdout)
    assert (torch, numpy) == (pins(*IMAGE.requirements)["torch"], pins(*IMAGE.requirements)["numpy"])
    assert None not in programs.values()
    assert headers
    assert setuid == []
    assert left_over == []
    assert sorted(scratch) == ["torchinductor_root"]


RISCV_PROBE = """
import json, os, shutil
programs = {name: shutil.which(name) for name in ("clang-19", "ld.lld-19", "qemu-riscv64", "qemu-aarch64", "g++")}
files = [os.path.join(top, name) for top, _, names in os.walk("/usr") for name in names]
setuid = [path for path in files if os.lstat(path).st_mode & 0o6000]
emulators = sorted(name for name in os.listdir("/usr/bin") if name.startswith("qemu-"))
print(json.dumps([programs, emulators, setuid, os.listdir("/mnt"), os.listdir("/tmp")]))
"""


@pytest.mark.docker
def test_the_image_of_riscv_and_arm64_holds_their_compiler_and_two_emulators(
    sandbox_of: SandboxOf, tmp_path: Path
) -> None:
    package = tmp_path / "probe"
    package.mkdir()
    (package / "__main__.py").write_text(RISCV_PROBE)
    done = sandbox_of("riscv").run(Command(package, limits=Limits(wall_s=60)))
    assert done.exit_code == 0, done.stderr
    programs, emulators, setuid, left_over, scratch = json.loads(done.stdout)
    assert [name for name, path in programs.items() if path is None] == ["g++"]
    assert (emulators, setuid, left_over, scratch) == (["qemu-aarch64", "qemu-riscv64"], [], [], [])


HIP_PROBE = """
import json, os, shutil
files = [os.path.join(top, name) for top, _, names in os.walk("/usr") for name in names]
setuid = [path for path in files if os.lstat(path).st_mode & 0o6000]
there = [bool(shutil.which(name)) for name in ("clang-19", "g++")] + [os.path.isdir("/opt/kernelwright/cuda/thread")]
print(json.dumps([there, setuid, os.listdir("/mnt"), sorted(os.listdir("/tmp"))]))
"""


@pytest.mark.docker
def test_the_image_of_hip_holds_clang_beside_the_emulation(sandbox_of: SandboxOf, tmp_path: Path) -> None:
    package = tmp_path / "probe"
    package.mkdir()
    (package / "__main__.py").write_text(HIP_PROBE)
    done = sandbox_of("hip").run(Command(package, limits=Limits(wall_s=60)))
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == [[True, True, True], [], [], ["torchinductor_root"]]


LOAD_INLINE = """
import subprocess, sys, sysconfig
from torch.utils.cpp_extension import include_paths
places = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
given = ["-DTORCH_EXTENSION_NAME=x", "-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20"]
with open("/tmp/x.cpp", "w") as file:
    file.write("#include <torch/extension.h>\\nint x;")
for options in (["-O3"], ["-O2"], ["-O3", "-march=native", "-fopenmp"], []):
    command = ["g++", *given, *places, *options, "-H", "-fsyntax-only", "/tmp/x.cpp"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as compiler:
        for line in compiler.stderr:  # headers as they are opened: `!` precompiled, `x` precompiled and of no use
            if not line.startswith("x "):
                print(line.strip())
                compiler.kill()  # it would read the rest for seconds
                break
"""


@pytest.mark.docker
def test_builds_find_torchs_headers_compiled_for_usual_options(docker_sandbox: DockerSandbox, tmp_path: Path) -> None:
    package = tmp_path / "probe"
    package.mkdir()
    (package / "__main__.py").write_text(LOAD_INLINE)
    done = docker_sandbox.run(Command(package, limits=Limits(wall_s=120)))
    assert done.exit_code == 0, done.stderr
    header = "/opt/kernelwright/include/torch/extension.h"
    served = [f"! {header}.gch/0", f"! {header}.gch/0", f"! {header}.gch/1", f". {header}"]
    assert done.stdout.decode().splitlines() == served


@pytest.mark.docker
def test_the_image_declares_no_volume_and_keeps_no_variable(docker_sandbox: DockerSandbox) -> None:
    client = docker.from_env()
    try:
        config = client.images.get(docker_sandbox.image).attrs["Config"]
    finally:
        client.close()
    assert not config.get("Volumes")
    assert [variable.partition("=")[0] for variable in config["Env"] or []] in ([], ["PATH"])
