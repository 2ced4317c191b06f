"""`python -m service.cli` is `kernelwright`."""

from service.cli import main

main()
