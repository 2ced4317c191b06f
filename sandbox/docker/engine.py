"""The connection to the Docker daemon, with an error and a remedy if there is none."""

import socket

import docker
from docker.errors import DockerException
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException

from sandbox.base import SandboxUnavailable

ENGINE_ERRORS = (DockerException, RequestException)
"""What the Docker client raises: its own errors, and the HTTP library's, as when the daemon takes too long."""

_DEFAULT_SOCKET = "unix:///var/run/docker.sock"


def connect(*, timeout_s: int = 30) -> docker.DockerClient:
    """A client of the daemon that the usual Docker settings of this user name, after it has answered once.

    Raises:
        SandboxUnavailable: no daemon answers, or this user may not speak to it.
    """
    try:
        _try_socket(kwargs_from_env().get("base_url", _DEFAULT_SOCKET))
        client = docker.from_env(timeout=timeout_s)
    except (*ENGINE_ERRORS, OSError) as error:
        raise _unavailable(error) from error
    try:
        client.ping()
    except (*ENGINE_ERRORS, OSError) as error:
        client.close()
        raise _unavailable(error) from error
    return client


def _try_socket(url: str) -> None:
    """Fail early with the system's own error: the client leaks a socket when it meets one that does not answer."""
    scheme, _, path = url.partition("://")
    if scheme in ("unix", "http+unix"):
        with socket.socket(socket.AF_UNIX) as trial:
            trial.connect(path)


def _unavailable(error: BaseException) -> SandboxUnavailable:
    why = getattr(error, "strerror", None) or " ".join(str(error).split())[:160]
    return SandboxUnavailable(
        f"The Docker daemon does not answer ({why}).",
        "Start it (on Debian: apt-get install docker.io, then systemctl start docker, or dockerd &), let this user "
        "into the group docker, or run your own code with --sandbox process.",
    )
