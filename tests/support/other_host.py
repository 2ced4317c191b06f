"""Runs a job in a process that takes itself for one of another host: `python -m tests.support.other_host COMMAND`."""

import json
import socket
import sys

from service.errors import JobLost
from tests.support.killable_jobs import run


def main() -> None:
    socket.gethostname = lambda: "elsewhere"
    try:
        run(json.loads(sys.argv[1]))
    except JobLost as error:
        print(error)
        sys.exit(3)


if __name__ == "__main__":
    main()
