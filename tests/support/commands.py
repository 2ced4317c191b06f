"""What tests of the commands share: an op with candidates of every kind, and an environment that is not the user's."""

import os
import sys
from pathlib import Path

import docker

ROOT = Path(__file__).parents[2]
KERNELWRIGHT = (sys.executable, "-m", "service.cli")
OP = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1
def get_inputs():
    return [torch.randn(128, 128)]
def get_init_inputs():
    return []
"""
GOOD = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).mul_(2).add_(1)
"""
WRONG = GOOD.replace("add_(1)", "add_(2)")
HANG_AT_IMPORT = "\nimport time\ntime.sleep(1000)\n"
HANGS = GOOD + HANG_AT_IMPORT


def data_folder(folder: Path) -> Path:
    """The data folder of commands in `folder`: its own but for what is measured of this machine once for all tests."""
    data = folder / "data"
    shared = Path(os.environ.get("KERNELWRIGHT_DATA_DIR", data)) / "devices"
    if not (data / "devices").exists() and shared.exists():
        data.mkdir(exist_ok=True)
        (data / "devices").symlink_to(shared.resolve())
    return data


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The whole environment of a command whose data, lock and home lie in `folder`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "KERNELWRIGHT_DATA_DIR": str(data_folder(folder)),
        "KERNELWRIGHT_LOCK_DIR": str(folder),
        "KERNELWRIGHT_MEASURE_S": "0.2",  # tests need verdicts, not narrow intervals
        "KERNELWRIGHT_BASELINES": "eager",  # and torch.compile takes seconds
        **more,
    }


def containers_of(pid: int) -> list[dict[str, str]]:
    """The labels of the containers that this process has started and that are still there."""
    client = docker.from_env()
    try:
        labels = [found["Labels"] for found in client.api.containers(all=True, filters={"label": "kernelwright=1"})]
    finally:
        client.close()
    return [label for label in labels if any(value.startswith(f"{pid}:") for value in label.values())]
