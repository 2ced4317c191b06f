"""What of the host's devices a command may use: only what its platform asks for."""

import json
import resource
from pathlib import Path

import pytest

from evaluator.platforms import PLATFORM_NAMES, Platform, load_platform
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.referee.platforms.load import load_platform as load_referee_platform
from evaluator.referee_process import HarnessFailed, prepare_referee, run_referee
from sandbox.base import Command, Devices, Limits, Sandbox, SandboxUnavailable
from sandbox.docker.container import device_options, tool_mounts
from sandbox.process.sandbox import ProcessSandbox
from tests.support.recording_sandbox import RecordingSandbox


class Accelerator(CpuPlatform):
    def sandbox_devices(self, index: int) -> Devices:
        return Devices(nodes=(f"/dev/dri/renderD{128 + index}",), gpus=(str(index),))


def asked(platform: Platform, device: int) -> list[Command]:
    recording = RecordingSandbox()
    sandbox: Sandbox = recording  # type: ignore[assignment]
    prepare_referee("evaluate", platform, device=device, sandbox=sandbox, limits=Limits())
    with pytest.raises(HarnessFailed):
        run_referee("evaluate", platform, {}, device=device, sandbox=sandbox, limits=Limits())
    return recording.commands


def test_a_command_uses_no_device_unless_it_names_it() -> None:
    assert Command(Path("package")).devices == Devices()
    assert device_options(Devices()) == {}


def test_device_files_and_gpus_become_options_of_the_container() -> None:
    assert device_options(Devices(nodes=("/dev/kfd", "/dev/dri/renderD129"))) == {
        "devices": ["/dev/kfd:/dev/kfd:rw", "/dev/dri/renderD129:/dev/dri/renderD129:rw"]
    }
    [request] = device_options(Devices(gpus=("1",)))["device_requests"]
    assert (request["DeviceIDs"], request["Capabilities"], request["Count"]) == (["1"], [["gpu"]], 0)


@pytest.mark.parametrize("node", ["/etc/shadow", "dev/kfd", "/dev/../etc/shadow", "/dev/kfd:/dev/sda"])
def test_only_device_files_are_devices(node: str) -> None:
    with pytest.raises(ValueError, match="not the path of a device file"):
        Devices(nodes=(node,))


def test_the_process_sandbox_refuses_a_command_that_asks_for_a_gpu_without_its_files() -> None:
    sandbox = object.__new__(ProcessSandbox)
    with pytest.raises(SandboxUnavailable, match="whose device files are unknown"):
        sandbox.run(Command(Path("package"), devices=Devices(gpus=("0",))))


@pytest.mark.parametrize("name", PLATFORM_NAMES)
def test_platforms_without_hardware_of_their_own_ask_for_none(name: str) -> None:
    asked = load_platform(name).sandbox_devices(0)
    assert (asked.nodes, asked.gpus) == ((), ())


def test_a_container_shows_the_tools_of_a_device_read_only() -> None:
    """A container that a command of the test runs in would need a daemon; here the options are looked at."""
    with pytest.raises(ValueError, match="tools"):
        Devices(tools=(("cuda", "relative/path"),))
    with pytest.raises(ValueError, match="tools"):
        Devices(tools=(("../harness", "/opt/cuda"),))
    assert device_options(Devices(tools=(("cuda", "/opt/cuda"),))) == {}
    [mount] = tool_mounts(Devices(tools=(("cuda", "/opt/cuda"),)))
    assert (mount["Target"], mount["Source"], mount["ReadOnly"]) == ("/tools/cuda", "/opt/cuda", True)


def test_the_device_reaches_the_sandbox_and_the_referee() -> None:
    ahead, command = asked(Accelerator(), 1)
    assert command.devices == Devices(nodes=("/dev/dri/renderD129",), gpus=("1",)) == ahead.devices
    assert json.loads(command.stdin) == {"platform": "cpu", "device": 1}
    assert asked(Accelerator(), 0)[0] != ahead, "a referee that was started ahead serves one device"


@pytest.mark.parametrize("name", PLATFORM_NAMES)
def test_the_referees_part_knows_its_device(name: str) -> None:
    assert load_referee_platform(name, 3).device == 3


@pytest.mark.parametrize("wanted", [False, True])
def test_programs_of_a_command_reach_each_other_over_loopback_where_it_asks_for_that(
    process_sandbox: ProcessSandbox, tmp_path: Path, wanted: bool
) -> None:
    package = tmp_path / "talking"
    package.mkdir()
    (package / "__main__.py").write_text(
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    print(socket.socket().connect_ex(server.getsockname()) == 0)\n"
    )
    done = process_sandbox.run(Command(package, loopback=wanted))
    assert done.stdout == f"{wanted}\n".encode(), done.stderr


def test_the_process_sandbox_shows_a_command_the_device_files_that_it_names_and_bounds_no_addresses_then(
    process_sandbox: ProcessSandbox, tmp_path: Path
) -> None:
    package = tmp_path / "looking"
    package.mkdir()
    (package / "__main__.py").write_text(
        "import json, os, resource, stat\n"
        "def there(path): return os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode)\n"
        "print(json.dumps([there('/dev/tty'), there('/dev/no-such'), resource.getrlimit(resource.RLIMIT_AS)[0]]))\n"
    )
    seen = []
    for nodes in ((), ("/dev/tty", "/dev/no-such")):
        command = Command(package, devices=Devices(nodes=nodes, gpus=("0",) if nodes else ()))
        done = process_sandbox.run(command)
        assert done.exit_code == 0, done.stderr
        seen.append(json.loads(done.stdout))
    without, with_nodes = seen
    assert without[:2] == [False, False]
    assert with_nodes == [True, False, resource.getrlimit(resource.RLIMIT_AS)[1]]


def test_the_process_sandbox_shows_the_libraries_of_a_driver_and_names_them_to_the_linker(
    process_sandbox: ProcessSandbox, tmp_path: Path
) -> None:
    package, libraries = tmp_path / "looking", tmp_path / "driver"
    package.mkdir()
    libraries.mkdir()
    (libraries / "libdriver.so.1").write_text("")
    (package / "__main__.py").write_text(
        "import json, os, pathlib\n"
        "named = os.environ.get('LD_LIBRARY_PATH')\n"
        "print(json.dumps([named, bool(named) and sorted(os.listdir(named))]))\n"
    )
    for folders, seen in (((), [None, False]), ((str(libraries),), [str(libraries), ["libdriver.so.1"]])):
        done = process_sandbox.run(Command(package, devices=Devices(libraries=folders)))
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout) == seen
