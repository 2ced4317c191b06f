"""The beats of a worker, or of a command that runs a job: in a thread of their own, so that others do not take it for
dead whatever it waits for.
"""

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from db.errors import StoreError
from db.store import Store

BEAT_S = 2.0
LOST_AFTER_S = 15.0
"""Who is silent for so long is given up."""

_GAP_S = 3 * BEAT_S

log = logging.getLogger(__name__)


class Heart:
    """Beats from `start` on until `stop`.

    `beat` writes one, and says whether we still count as alive; once we do not, `given_up` is set and `on_given_up`
    called.
    """

    def __init__(
        self, store: Store, beat: Callable[[Session], bool], on_given_up: Callable[[], None] = lambda: None
    ) -> None:
        self.given_up = threading.Event()
        self._store = store
        self._beat = beat
        self._on_given_up = on_given_up
        self._over = threading.Event()
        self._last = self._since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._over.set()

    def beats(self) -> bool:
        """Whether its thread is there."""
        return self._thread.is_alive()

    def steady_s(self) -> float:
        """For how long our own beats have come through without a gap, in seconds; 0 while they do not.

        Who cannot write to the store, or was paused, knows nothing of the silence of others.
        """
        last, since = self._last, self._since
        return 0.0 if time.monotonic() - last > _GAP_S else time.monotonic() - since

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with self._store.write() as session:
                    heard = self._beat(session)
                if not heard:
                    self.given_up.set()
                    self._on_given_up()
                    return
                now = time.monotonic()
                if now - self._last > _GAP_S:
                    self._since = now
                self._last = now
            except StoreError as error:
                log.error("store: %s", error)
            except Exception:  # whatever it was, a worker that works must be heard of
                log.exception("a beat failed")
            self._over.wait(BEAT_S)
