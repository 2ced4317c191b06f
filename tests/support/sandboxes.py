"""The type of the fixture `sandbox_of`."""

from collections.abc import Callable

from sandbox.docker.sandbox import DockerSandbox

SandboxOf = Callable[[str], DockerSandbox]
"""Gives the sandbox of the image of a platform, by the platform's name."""
