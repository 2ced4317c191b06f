"""Runs the command line: `python -m web` is `kernelwright`."""

from web.cli import main

main()
