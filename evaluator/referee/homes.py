"""Where a runner lives and builds."""

import contextlib
import os


def choose(scratch: str, role: str) -> tuple[str, str]:
    """A runner's home, which nobody can foresee, and the path under which it builds.

    A candidate builds under a path that stays the same from one of its runners to the next, a link into its home: what
    was built under one path is built again under another.
    """
    home = f"{scratch}/{role}-{os.urandom(4).hex()}"
    if role != "candidate":
        return home, f"{home}/built"
    link = f"{scratch}/{role}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)  # noqa: PTH108
    os.symlink(f"{home}/built", link)  # noqa: PTH211
    return home, link
