"""Several calls of models at the same time, and their results in the order in which they were asked for."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from agents.errors import LLMError

Result = TypeVar("Result")

AT_ONCE = 4  # requests to a provider at the same time


def all_of(calls: Sequence[Callable[[], Result]]) -> list[Result | LLMError]:
    """The result of every call, or the LLMError that it raised; all have ended when this returns.

    Raises:
        BaseException: what a call raised that is no LLMError; the first of them, once all have ended.
    """
    if len(calls) <= 1:
        return [_caught(call) for call in calls]
    with ThreadPoolExecutor(min(AT_ONCE, len(calls)), thread_name_prefix="branch") as pool:
        futures = [pool.submit(_caught, call) for call in calls]
    return [future.result() for future in futures]


def _caught(call: Callable[[], Result]) -> Result | LLMError:
    try:
        return call()
    except LLMError as error:
        return error
