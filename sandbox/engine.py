"""The Docker daemon: how it is reached, and one error with a remedy where it is not."""

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from sandbox.base import SandboxUnavailable

ENGINE_ERRORS = (DockerException, RequestException)
"""What the Docker client raises: its own errors, and the HTTP library's, as when the daemon takes too long."""


def connect(*, timeout_s: int = 30) -> docker.DockerClient:
    """A client of the daemon that the usual Docker settings of this user name, after it has answered once.

    Raises:
        SandboxUnavailable: no daemon answers, or this user may not speak to it.
    """
    try:
        client = docker.from_env(timeout=timeout_s)
        client.ping()
    except (*ENGINE_ERRORS, OSError) as error:
        raise SandboxUnavailable(
            f"The Docker daemon does not answer ({_short(error)}).",
            "Start it (on Debian: apt-get install docker.io, then systemctl start docker, or dockerd &), let this user "
            "into the group docker, or run your own code with --sandbox process.",
        ) from error
    return client


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if "Permission denied" in text:
        return "permission denied on its socket"
    if "FileNotFoundError" in text or "No such file" in text:
        return "its socket does not exist"
    return text[:160]
