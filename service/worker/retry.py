"""Retries of work on the store, until the store answers."""

import logging
from collections.abc import Callable
from typing import TypeVar

from db.errors import StoreError
from service.cancellation import CancelToken

PAUSE_S = 1.0

T = TypeVar("T")
log = logging.getLogger(__name__)


def retry_store(action: Callable[[], T], cancel: CancelToken) -> T:
    """The result of `action`, retried until the store answers.

    Raises:
        StoreError: the store does not answer, and cancellation was requested.
    """
    while True:
        try:
            return action()
        except StoreError as error:
            if cancel.event.wait(PAUSE_S):
                raise
            log.warning("the store does not answer; trying again: %s", error)
