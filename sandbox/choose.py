"""Which sandbox to use."""

from sandbox.base import Sandbox, SandboxUnavailable
from sandbox.docker.sandbox import DockerSandbox, sweep_orphans
from sandbox.process.sandbox import ProcessSandbox

SANDBOX_NAMES = ("docker", "process")


def choose_sandbox(name: str | None, *, own_code_only: bool, image: str) -> Sandbox:
    """The sandbox called `name`, or the best there is: Docker, else `process` if all code to be run is the user's own.

    `image` is the tag of the image that the Docker sandbox uses.

    Containers left by processes that have died are removed on the way.

    Raises:
        ValueError: no sandbox has this name.
        SandboxUnavailable: the named one cannot be used, or none can; says what to do.
    """
    if name is not None and name not in SANDBOX_NAMES:
        raise ValueError(f"no sandbox is called {name!r}; there are {' and '.join(SANDBOX_NAMES)}")
    if name == "process":
        return ProcessSandbox()
    try:
        docker = DockerSandbox(image)
    except SandboxUnavailable as error:
        if name == "docker":
            raise
        if own_code_only:
            return ProcessSandbox()
        raise SandboxUnavailable(
            f"{error.problem} Code that is not your own runs in Docker only.",
            f"{error.remedy} If you trust the code as you trust your own, --sandbox process runs it without Docker.",
        ) from error
    sweep_orphans()
    return docker
