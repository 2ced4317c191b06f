"""`python -m web` is `kernelwright`, with `serve`."""

from web.cli import main

main()
