"""The command line: `kernelwright`."""

import sys


def main() -> None:
    """The entry point of the console script. It ends the process with the command's exit status."""
    from service.cli.app import run

    sys.exit(run(sys.argv[1:]))
