"""Which tests failed in the last run, for `make test` to ask them again alone.

Tests that run side by side share the processors, so one that waits for something with a limit may fail for lack of
time. Whether it was that shows when it runs alone. Many failures are no matter of load and are not asked again.
"""

import argparse
import json
import sys
from pathlib import Path

MOST = 6
"""Failures that may be for lack of time."""


def failed_tests(cache: Path) -> list[str]:
    """The tests that failed when pytest last ran, by what it kept in its cache; none if it kept nothing."""
    kept = cache / "v" / "cache" / "lastfailed"
    if not kept.exists():
        return []
    return sorted(_without_group(test) for test in json.loads(kept.read_text()))


def _without_group(test: str) -> str:
    """A test's name without the `@group` that xdist appends."""
    name, bracket, _ = test.rpartition("]")
    return name + bracket if bracket else test.partition("@")[0]


def main(argv: list[str] | None = None) -> int:
    """Write the tests that failed into a file, one a line; exit status 1 if there are none or too many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path(".pytest_cache"))
    parser.add_argument("into", type=Path)
    args = parser.parse_args(argv)
    tests = failed_tests(args.cache)
    args.into.write_text("".join(f"{test}\n" for test in tests))
    return 0 if 0 < len(tests) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
