"""How long it takes to queue a batch, and how long another writer has to wait meanwhile.

    python -m benchmarks.batch_queue [--samples 500] [--url postgresql+psycopg://…]

18 tasks times so many samples, in a new SQLite file or in an empty database at `--url`.
"""

import argparse
import tempfile
import threading
import time

from sqlalchemy import text

from db.engine import open_store
from db.store import Store
from service.batches.manage import start_batch
from service.batches.spec import make_spec
from service.settings import load_settings


def main() -> None:
    """Queue one batch and print what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--url")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(given.url or f"sqlite:///{folder}/store.db")
        over, waits_s = threading.Event(), [0.0]
        other = threading.Thread(target=_write_on, args=(store, over, waits_s))
        other.start()
        spec = make_spec({"tasks": ["starter"], "models": ["builtin/compiler"], "samples": given.samples})
        began_s = time.perf_counter()
        start_batch(spec, settings=load_settings(model="builtin/compiler"), store=store)
        took_s = time.perf_counter() - began_s
        over.set()
        other.join()
        with store.read() as session:
            queued = session.execute(text("SELECT count(*) FROM jobs")).scalar_one()
        store.close()
    print(f"{queued} jobs queued in {took_s:.2f} s; another writer waited for {max(waits_s):.2f} s at most")


def _write_on(store: Store, over: threading.Event, waits_s: list[float]) -> None:
    while not over.wait(0.01):
        began_s = time.perf_counter()
        with store.write() as session:
            session.execute(text("UPDATE workers SET pid = pid"))
        waits_s.append(time.perf_counter() - began_s)


if __name__ == "__main__":
    main()
