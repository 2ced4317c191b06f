"""A sandbox that runs nothing and keeps what it is asked for."""

from sandbox.base import Command, Completed


class RecordingSandbox:
    """It answers every command with the same output."""

    name = "recording"
    promises: frozenset[object] = frozenset()

    def __init__(self, stdout: bytes = b"", exit_code: int = 1) -> None:
        self.commands: list[Command] = []
        self._completed = Completed(exit_code=exit_code, stdout=stdout, stderr=b"", wall_s=0.0)

    def run(self, command: Command, **_: object) -> Completed:
        self.commands.append(command)
        return self._completed

    def prepare(self, command: Command) -> None:
        self.commands.append(command)

    def describe(self) -> dict[str, str]:
        return {"name": self.name}
