"""From the many exceptions of LiteLLM and its providers to the few of ours, and whether to try again."""

import contextlib
import email.utils
import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType

from agents.errors import ContextTooLong, LLMError, LLMFailed, LLMRefused, ModelUnavailable, ReplyLost
from agents.llm.names import provider_of
from agents.llm.redact import scrub
from sandbox.base import SandboxUnavailable

MAX_TEXT_CHARS = 400
MAX_READ_CHARS = 20_000
MIN_REPLY_TOKENS = 1024  # fewer cannot hold a candidate
SPARE_TOKENS = 64  # servers count a template's tokens or not

# What LiteLLM puts around a provider's words.
_PREFIX = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception)\b\s*[:-]\s*)+(?:litellm\.)?")
_SUFFIX = re.compile(r"\.?\s*(?:Original exception: |Handle with `litellm).*$")
_JSON_MESSAGE = re.compile(r'"message":\s*("(?:[^"\\]|\\.)*")')
_NO_KEY = re.compile(
    r"missing (?:credentials|.{0,30}api key)|api_key client option must be set|no api key", re.IGNORECASE
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_REFUSED = re.compile(r"content[ _](?:management|filter|policy)|safety (?:system|filter)|flagged", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context_length_exceeded|context (?:length|window|size)|maximum context|prompt is too long", re.IGNORECASE
)
# Of servers that count the reply asked for too: vLLM's words, and those of OpenAI's older models.
_CONTEXT_TOKENS = re.compile(r"maximum context length is (\d+)", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(r"(\d+) (?:input tokens|in the messages)", re.IGNORECASE)
_NO_CONNECTION = re.compile(
    r"connection refused|all connection attempts failed|name or service not known|"
    r"name resolution|nodename nor servname|cannot connect|no route to host",
    re.IGNORECASE,
)
_NO_STREAM_OPTIONS = re.compile(r"stream_options|include_usage")
_NO_STREAM = re.compile(r"\bstream(?:ing|ed)?\b", re.IGNORECASE)
_REJECTIONS = frozenset({400, 405, 415, 422, 501})  # of what a request asks for

# Exceptions of httpx after which nothing was sent.
_NOT_CONNECTED = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})
_BAD_ADDRESS = frozenset({"UnsupportedProtocol", "InvalidURL"})
# What parsers raise, LiteLLM's of streams among them; a provider's own errors and those of connections are others.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
_WAITED_FOR = frozenset({408, 504, 524})  # statuses of a gateway that gave up while the model may have gone on


class Shape(IntEnum):
    """How a reply is asked for; a server that does not know the one gets the next."""

    FULL = 0  # as a stream, with the usage at its end
    NO_OPTIONS = 1  # as a stream, without `stream_options`
    WHOLE = 2  # not as a stream


@dataclass(frozen=True)
class Fault:
    """A failed attempt: the error it means if it stays, how often to try again, what wait the provider asks for.

    `shape` is set where the server rejected the one it was asked in, or its stream cannot be read, to the one to use
    from then on; `fitting_tokens` where prompt
    and reply together are too long, to the reply tokens that would fit.
    """

    error: LLMError
    retries: int = 0
    retry_after_s: float | None = None
    no_key: bool = False
    shape: Shape | None = None
    fitting_tokens: int | None = None


def classify(
    litellm: ModuleType,
    model: str,
    error: Exception,
    *,
    retries: int,
    sending: bool = False,
    api_base: str | None,
    secrets: Collection[str],
) -> Fault:
    """What an exception of `litellm.completion` means.

    `retries` is how often a fault that costs nothing is tried again: a rate limit, a server error, nobody listening.
    `sending`: nothing has come back yet, so that what cannot be encoded is the request, and nothing was sent.
    What the provider may have answered in part, or be paid for, is a `ReplyLost` without retries.
    """
    causes = list(_chain(error))
    for cause in causes:
        if isinstance(cause, SandboxUnavailable):
            return Fault(ModelUnavailable(model, cause.problem, cause.remedy))
        if isinstance(cause, LLMError):
            return Fault(cause)
        if sending and isinstance(cause, UnicodeEncodeError):
            return Fault(_unsendable(litellm, model, cause))
    said = _one_line(str(error), secrets)  # codes, which tell what it is, included
    text = _gist(said, secrets)
    answered = _status(causes)
    status = _mapped_status(error) if answered is None else answered
    kinds = litellm.exceptions
    where = scrub(api_base, secrets) if api_base else f"the provider {model.partition('/')[0]}"
    if isinstance(error, kinds.ContextWindowExceededError) or (status in (400, 413) and _TOO_LONG.search(said)):
        return Fault(
            ContextTooLong(model, f"the prompt is too long: {text}", "Choose a model with a longer context."),
            fitting_tokens=_fitting_tokens(said),
        )
    if isinstance(error, kinds.ContentPolicyViolationError) or (status == 400 and _REFUSED.search(said)):
        return Fault(LLMRefused(model, f"the provider refused the prompt: {text}"))
    if "LLM Provider NOT provided" in said or isinstance(error, kinds.LiteLLMUnknownProvider):
        remedy = "Write provider/model as LiteLLM names it, such as openai/NAME, or builtin/compiler."
        return Fault(ModelUnavailable(model, "no such provider.", remedy))
    if _NO_KEY.search(said):
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
    names = {type(cause).__name__ for cause in causes}
    if names & _BAD_ADDRESS:
        return Fault(ModelUnavailable(model, f"{where} is no address to send to: {text}", "Check --api-base."))
    if names & _NOT_CONNECTED or (answered is None and _NO_CONNECTION.search(said)):
        remedy = "Start the server, or point --api-base at it." if api_base else "Check the network."
        return Fault(ModelUnavailable(model, f"nobody answers at {where}.", remedy), retries=min(retries, 2))
    if answered in _WAITED_FOR or (answered is None and isinstance(error, kinds.Timeout)):
        return Fault(ReplyLost(model, "no answer within the time limit."))
    if status in _REJECTIONS:
        shape = _shape_after(said)
        return Fault(LLMFailed(model, f"the provider rejected the request ({status}): {text}"), shape=shape)
    if status == 429:
        if _QUOTA.search(said):
            return Fault(
                ModelUnavailable(model, f"the account is used up: {text}", "Top it up, or choose another model.")
            )
        return Fault(LLMFailed(model, f"rate limit: {text}"), retries, _retry_after_s(causes))
    if status is not None and status < 500:
        return Fault(LLMFailed(model, f"the provider rejected the request ({status}): {text}"))
    if status is not None:
        return Fault(LLMFailed(model, f"the provider failed ({status}): {text}"), retries, _retry_after_s(causes))
    unreadable = any(isinstance(cause, _UNREADABLE) for cause in causes)
    problem = f"the answer {'cannot be read' if unreadable else 'did not arrive whole'}: {text or type(error).__name__}"
    return Fault(ReplyLost(model, problem), shape=Shape.WHOLE if unreadable else None)


def shown(text: str, secrets: Collection[str]) -> str:
    """A provider's own words in one printable line, scrubbed and bounded."""
    return _bounded(_one_line(text, secrets))


def _one_line(text: str, secrets: Collection[str]) -> str:
    words = " ".join(scrub(text[:MAX_READ_CHARS], secrets).split())
    return scrub("".join(character for character in words if character.isprintable()), secrets)


def _gist(said: str, secrets: Collection[str]) -> str:
    """The provider's message without what LiteLLM and JSON put around it."""
    message = _JSON_MESSAGE.search(said)
    if message is not None:
        with contextlib.suppress(ValueError):  # else the text as it is
            return _bounded(_one_line(str(json.loads(message[1])), secrets))
    return _bounded(_SUFFIX.sub("", _PREFIX.sub("", said)))


def _bounded(line: str) -> str:
    return line if len(line) <= MAX_TEXT_CHARS else line[:MAX_TEXT_CHARS] + "…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(16):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _status(causes: Sequence[BaseException]) -> int | None:
    """The HTTP status of a failure as the server sent it, None if it sent none: LiteLLM makes up a 500 then."""
    for cause in causes:
        if type(cause).__module__.partition(".")[0] in ("openai", "httpx"):
            status = getattr(getattr(cause, "response", None), "status_code", None)
            if isinstance(status, int) and status >= 400:
                return status
    return None


def _mapped_status(error: Exception) -> int | None:
    """The status that LiteLLM gives a failure without an answer's own, less those that it makes up (408, 422, 5xx)."""
    status = getattr(error, "status_code", None)
    return status if status in (400, 401, 403, 404, 413, 429) else None


def _shape_after(text: str) -> Shape | None:
    """The way to ask that a server may take which rejected a request with these words."""
    if _NO_STREAM_OPTIONS.search(text):
        return Shape.NO_OPTIONS
    return Shape.WHOLE if _NO_STREAM.search(text) else None


def _fitting_tokens(text: str) -> int | None:
    """The reply tokens that a too small context leaves beside the prompt, None where the words do not tell."""
    context, prompt = _CONTEXT_TOKENS.search(text), _PROMPT_TOKENS.search(text)
    if context is None or prompt is None:
        return None
    left = int(context[1]) - int(prompt[1]) - SPARE_TOKENS
    return left if left >= MIN_REPLY_TOKENS else None


def _unsendable(litellm: ModuleType, model: str, error: UnicodeEncodeError) -> LLMError:
    """What it means that a request could not be encoded: a body is UTF-8, headers and addresses are ASCII."""
    if error.encoding in ("ascii", "latin-1", "idna"):
        return ModelUnavailable(
            model,
            "the key or the address holds a character that no header carries.",
            f"Check {_key_names(litellm, model)}.",
        )
    return LLMFailed(model, "the request holds characters that UTF-8 cannot encode; nothing was sent.")


def _key_names(litellm: ModuleType, model: str) -> str:
    """The environment variables that hold this model's key."""
    try:
        missing = litellm.validate_environment(model)["missing_keys"]
    except Exception:  # a helper of LiteLLM's for a hint; whatever it raises, the hint stays general
        missing = []
    return " and ".join(missing) if missing else f"{provider_of(model).upper().replace('-', '_')}_API_KEY"


def _retry_after_s(causes: Sequence[BaseException]) -> float | None:
    """The wait that a Retry-After header asks for, in seconds; None if there is none or it cannot be read."""
    for cause in causes:
        for headers in (
            getattr(cause, "litellm_response_headers", None),
            getattr(getattr(cause, "response", None), "headers", None),
        ):
            value = headers.get("retry-after") if headers is not None else None
            if value is not None:
                return _seconds(str(value))
    return None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds == seconds and seconds != float("inf") else None
