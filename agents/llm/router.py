"""Every model behind one `LLM`: `manual/DIR` through files, all others wherever they are."""

from collections.abc import Callable, Sequence
from typing import Any

from agents.manual.model import PREFIX
from agents.protocols import LLM, Message, Price, Reply


class Models:
    """`agents.protocols.LLM` that hands each call on to whoever answers for the model."""

    def __init__(self, others: LLM, manual: LLM) -> None:
        self._others = others
        self._manual = manual

    def complete(
        self, model: str, messages: Sequence[Message], *, should_stop: Callable[[], bool], **options: Any
    ) -> Reply:
        """As `LLM.complete`."""
        return self._for(model).complete(model, messages, should_stop=should_stop, **options)

    def price(self, model: str) -> Price | None:
        """As `LLM.price`."""
        return self._for(model).price(model)

    def reply_limit(self, model: str) -> int:
        """As `LLM.reply_limit`."""
        return self._for(model).reply_limit(model)

    def _for(self, model: str) -> LLM:
        return self._manual if model.startswith(PREFIX) else self._others
