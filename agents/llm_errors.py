"""From the many exceptions of LiteLLM and its providers to the few of ours, and whether to try again."""

import email.utils
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import ModuleType

from agents.errors import ContextTooLong, LLMError, LLMFailed, LLMRefused, ModelUnavailable
from agents.scrub import scrub
from sandbox.base import SandboxUnavailable

MAX_TEXT_CHARS = 400

_PREFIX = re.compile(r"^(?:litellm\.)?(?:\w+(?:Error|Exception)\b\s*[:-]\s*)+(?:litellm\.)?")
_NO_KEY = re.compile(
    r"missing (?:credentials|.{0,30}api key)|api_key client option must be set|no api key", re.IGNORECASE
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_REFUSED = re.compile(r"content[ _](?:management|filter|policy)|safety (?:system|filter)|flagged", re.IGNORECASE)
_NO_CONNECTION = re.compile(
    r"connection error|connection refused|all connection attempts failed|name or service not known|"
    r"name resolution|nodename nor servname|cannot connect|no route to host",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fault:
    """A failed attempt: the error it means if it stays, how often to try again, what wait the provider asks for."""

    error: LLMError
    retries: int = 0
    retry_after_s: float | None = None
    no_key: bool = False


def classify(
    litellm: ModuleType, model: str, error: Exception, *, retries: int, api_base: str | None, secrets: Collection[str]
) -> Fault:
    """What an exception of `litellm.completion` means. `retries` is how often a passing fault is tried again."""
    causes = list(_chain(error))
    for cause in causes:
        if isinstance(cause, SandboxUnavailable):
            return Fault(ModelUnavailable(model, cause.problem, cause.remedy))
        if isinstance(cause, LLMError):
            return Fault(cause)
    text = _plain(error, secrets)
    status = getattr(error, "status_code", None)
    kinds = litellm.exceptions
    where = scrub(api_base, secrets) if api_base else f"the provider {model.partition('/')[0]}"
    if isinstance(error, kinds.ContextWindowExceededError):
        return Fault(ContextTooLong(model, f"the prompt is too long: {text}", "Choose a model with a longer context."))
    if isinstance(error, kinds.ContentPolicyViolationError) or (status == 400 and _REFUSED.search(text)):
        return Fault(LLMRefused(model, f"the provider refused the prompt: {text}"))
    if "LLM Provider NOT provided" in text or isinstance(error, kinds.LiteLLMUnknownProvider):
        remedy = "Write provider/model as LiteLLM names it, such as openai/NAME, or builtin/compiler."
        return Fault(ModelUnavailable(model, "no such provider.", remedy))
    if _NO_KEY.search(text):
        return Fault(ModelUnavailable(model, "no key is set.", f"Set {_key_names(litellm, model)}."), no_key=True)
    if status in (401, 403) or isinstance(error, kinds.AuthenticationError | kinds.PermissionDeniedError):
        return Fault(
            ModelUnavailable(model, f"{where} rejected the key: {text}", f"Check {_key_names(litellm, model)}.")
        )
    if status == 404:
        remedy = "Check the model's name" + (
            ", and that --api-base ends as the server expects (often /v1)." if api_base else "."
        )
        return Fault(ModelUnavailable(model, f"{where} does not know it: {text}", remedy))
    if isinstance(error, kinds.Timeout):
        return Fault(LLMFailed(model, "no answer within the time limit."), retries=min(retries, 1))
    if _NO_CONNECTION.search(text) or any(type(cause).__name__ == "ConnectError" for cause in causes):
        remedy = "Start the server, or point --api-base at it." if api_base else "Check the network."
        return Fault(ModelUnavailable(model, f"nobody answers at {where}.", remedy), retries=min(retries, 2))
    if status == 429:
        if _QUOTA.search(text):
            return Fault(
                ModelUnavailable(model, f"the account is used up: {text}", "Top it up, or choose another model.")
            )
        return Fault(LLMFailed(model, f"rate limit: {text}"), retries, _retry_after_s(error))
    if isinstance(status, int) and 400 <= status < 500:
        return Fault(LLMFailed(model, f"the provider rejected the request ({status}): {text}"))
    if isinstance(status, int):
        return Fault(LLMFailed(model, f"the provider failed ({status}): {text}"), retries, _retry_after_s(error))
    return Fault(LLMFailed(model, f"the provider's answer cannot be read: {type(error).__name__}: {text}"), retries)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(16):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _plain(error: Exception, secrets: Collection[str]) -> str:
    """The provider's own words in one printable line, scrubbed and bounded."""
    words = " ".join(scrub(str(error), secrets).split())
    text = "".join(character for character in words if character.isprintable())
    text = _PREFIX.sub("", text)
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"


def _key_names(litellm: ModuleType, model: str) -> str:
    """The environment variables that hold this model's key."""
    try:
        missing = litellm.validate_environment(model)["missing_keys"]
    except Exception:  # a helper of LiteLLM's for a hint; whatever it raises, the hint stays general
        missing = []
    provider = model.partition("/")[0] if "/" in model else "openai"
    return " and ".join(missing) if missing else f"{provider.upper().replace('-', '_')}_API_KEY"


def _retry_after_s(error: Exception) -> float | None:
    """The wait that a Retry-After header asks for, in seconds; None if there is none or it cannot be read."""
    headers = getattr(error, "litellm_response_headers", None)
    if headers is None:
        headers = getattr(getattr(error, "response", None), "headers", None)
    value = headers.get("retry-after") if headers is not None else None
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds == seconds and seconds != float("inf") else None
