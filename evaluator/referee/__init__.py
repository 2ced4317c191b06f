"""The referee: judges one candidate inside a sandbox.

A self-contained package: it imports the standard library, torch and itself, is shown to the sandbox read-only and
runs as `python3 -m referee`. The folder says on which side of the trust boundary a file runs:

- `runner/` runs in processes that hold foreign code. `fork_server/` runs in the process that those are forked from.
- `protocol/` is read on both sides. It executes nothing foreign and holds no secret.
- Everything else runs in the referee's own process, which never executes foreign code.

`tests/test_layout.py` holds the imports to this.
"""
