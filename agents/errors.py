"""What can go wrong between the agents and a model."""


class LLMError(RuntimeError):
    """No usable reply from a model. Its text is safe to show: it names the model and holds no key."""

    def __init__(self, model: str, problem: str, remedy: str = "") -> None:
        super().__init__(f"{model}: {problem}" + (f" {remedy}" if remedy else ""))
        self.model = model
        self.problem = problem
        self.remedy = remedy


class ModelUnavailable(LLMError):
    """No model to work with: no key, a wrong key, an unknown name, nobody listening. `remedy` says what to set."""


class LLMRefused(LLMError):
    """The model or its provider declined to answer this prompt; asking again would not help."""


class ContextTooLong(LLMError):
    """The prompt does not fit the model's context window."""


class LLMFailed(LLMError):
    """The provider failed (rate limit, server error, time limit, unreadable answer) and retries did not help."""


class ReplyLost(LLMFailed):
    """The request was sent and its reply did not arrive whole (time limit, dropped stream, unreadable answer).

    It may have been paid for, so nobody asks again before the budget has been looked at again.
    """


class LLMCancelled(LLMError):
    """The job was told to stop while it waited for the model.

    `sent`: a request was under way, which may be billed. Not so between attempts, or before the first.
    """

    def __init__(self, model: str, problem: str, remedy: str = "", *, sent: bool = True) -> None:
        super().__init__(model, problem, remedy)
        self.sent = sent


class BudgetTooSmall(LLMError):
    """What is left of the budget does not bear the worst case of the next step; nothing was sent."""


class PriceUnknown(LLMError):
    """There is a budget in dollars, but no price is known for this model, so it could not be kept; nothing was sent."""
