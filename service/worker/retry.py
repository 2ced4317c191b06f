"""What must be written is written as soon as the store answers again."""

import logging
from collections.abc import Callable
from typing import TypeVar

from db.errors import StoreError
from service.cancellation import CancelToken

PAUSE_S = 1.0

T = TypeVar("T")
log = logging.getLogger(__name__)


def retry_store(action: Callable[[], T], cancel: CancelToken) -> T:
    """What `action` gives, tried until the store answers.

    Raises:
        StoreError: it does not, and cancellation was requested.
    """
    while True:
        try:
            return action()
        except StoreError as error:
            if cancel.event.wait(PAUSE_S):
                raise
            log.warning("the store does not answer; trying again: %s", error)
