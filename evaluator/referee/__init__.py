"""The referee: judges one candidate inside a sandbox (DESIGN §4).

A self-contained package: it imports the standard library, torch and itself, is shown to the sandbox read-only and
runs as `python3 -m referee`. `nursery`, `runner`, `oracle` and `perturb` run in processes that hold foreign code;
everything else runs in the referee's own process and never executes any.
"""
