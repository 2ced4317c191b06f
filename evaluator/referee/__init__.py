"""The referee: judges one candidate inside a sandbox (DESIGN §4).

A self-contained package: it imports the standard library, torch and itself, is shown to the sandbox read-only and runs
as `python3 -m referee`. `__main__`, `referee`, `court` and what they import run in the referee's process and never execute
foreign code; `nursery` and `runner` run in the processes that do.
"""
