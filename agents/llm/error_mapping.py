"""Maps exceptions of LiteLLM and of providers to `LLMError`s without secrets, and says what to try again."""

import contextlib
import email.utils
import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType

from agents.llm.budget import MIN_REPLY_TOKENS
from agents.llm.models import provider_of
from agents.protocols import ContextTooLong, LLMError, LLMFailed, LLMRefused, ModelUnavailable, ReplyLost
from sandbox.base import SandboxUnavailable

MAX_TEXT_CHARS = 400
MAX_READ_CHARS = 20_000
SPARE_TOKENS = 64  # some servers do not count the tokens of the chat template

REDACTED = "[removed]"
MIN_SECRET_CHARS = 6  # a shorter secret would remove parts of ordinary words
_SECRETS = (
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|r8|nvapi)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}"), REDACTED),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{6,}"), rf"\1 {REDACTED}"),
    (
        re.compile(
            r"(?i)\b((?:api[-_ ]?key|access[-_ ]?token|secret|authorization|password)(?: provided)?['\"]?\s*[:=]\s*)"
            r"['\"]?[^\s'\",}]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(?i)([?&](?:key|api[-_]?key|token)=)[^&\s]+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)(https?://)[^/\s@]+@"), rf"\1{REDACTED}@"),
)

# What LiteLLM puts around a provider's message.
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
# Of servers that count the requested reply as part of the context: vLLM, and OpenAI's older models.
_CONTEXT_TOKENS = re.compile(r"maximum context length is (\d+)", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(r"(\d+) (?:input tokens|in the messages)", re.IGNORECASE)
_NO_CONNECTION = re.compile(
    r"connection refused|all connection attempts failed|name or service not known|"
    r"name resolution|nodename nor servname|cannot connect|no route to host",
    re.IGNORECASE,
)
_NO_STREAM_OPTIONS = re.compile(r"stream_options|include_usage")
_NO_STREAM = re.compile(r"\bstream(?:ing|ed)?\b", re.IGNORECASE)
_REJECTIONS = frozenset({400, 405, 415, 422, 501})  # statuses that reject an option of the request

# Names of httpx exceptions: nothing was sent.
_NOT_CONNECTED = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})
_BAD_ADDRESS = frozenset({"UnsupportedProtocol", "InvalidURL"})
# What parsers raise, LiteLLM's parsers of streams included. Errors of providers and connections have other types.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
_GATEWAY_TIMEOUTS = frozenset({408, 504, 524})  # the model may have gone on after the gateway gave up


class ResponseMode(IntEnum):
    """How a reply is requested. A server that rejects one mode gets the next."""

    STREAM_WITH_USAGE = 0  # with `stream_options`
    STREAM = 1
    WHOLE = 2


@dataclass(frozen=True)
class Fault:
    """A failed attempt.

    Attributes:
        error: to raise if it is not tried again.
        retries: how often to try again.
        retry_after_s: the wait that the provider asks for, in seconds.
        no_key: no key is set for the provider.
        mode: the mode to use from now on, if the server rejected the one in use or its stream cannot be read.
        fitting_tokens: the reply tokens that would fit, if prompt and reply together exceed the context.
    """

    error: LLMError
    retries: int = 0
    retry_after_s: float | None = None
    no_key: bool = False
    mode: ResponseMode | None = None
    fitting_tokens: int | None = None


def classify_error(
    litellm: ModuleType,
    model: str,
    error: Exception,
    *,
    retries: int,
    sending: bool,
    api_base: str | None,
    secrets: Collection[str],
) -> Fault:
    """What an exception of `litellm.completion` means.

    A request that the provider may have answered in part, or may bill, gives a `ReplyLost` without retries.

    Args:
        litellm: the module.
        model: the model's name.
        error: the exception.
        retries: how often a fault that costs nothing is tried again: a rate limit, a server error, no connection.
        sending: nothing has come back yet. A text that cannot be encoded is then the request's, and nothing was sent.
        api_base: the address that the request went to, if it is not the provider's own.
        secrets: values to keep out of error texts.
    """
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, SandboxUnavailable):
            return Fault(ModelUnavailable(model, cause.problem, cause.remedy))
        if isinstance(cause, LLMError):
            return Fault(cause)
        if sending and isinstance(cause, UnicodeEncodeError):
            return Fault(_unsendable(litellm, model, cause))
    line = _one_line(str(error), secrets)  # with error codes
    text = _provider_message(line, secrets)
    sent_status = _sent_status(causes)
    status = _mapped_status(error) if sent_status is None else sent_status
    exceptions = litellm.exceptions
    where = redact(api_base, secrets) if api_base else f"the provider {model.partition('/')[0]}"
    if isinstance(error, exceptions.ContextWindowExceededError) or (status in (400, 413) and _TOO_LONG.search(line)):
        return Fault(
            ContextTooLong(model, f"the prompt is too long: {text}", "Choose a model with a longer context."),
            fitting_tokens=_fitting_tokens(line),
        )
    if isinstance(error, exceptions.ContentPolicyViolationError) or (status == 400 and _REFUSED.search(line)):
        return Fault(LLMRefused(model, f"the provider refused the prompt: {text}"))
    if "LLM Provider NOT provided" in line or isinstance(error, exceptions.LiteLLMUnknownProvider):
        remedy = "Write provider/model as LiteLLM names it, such as openai/NAME, or builtin/compiler."
        return Fault(ModelUnavailable(model, "no such provider.", remedy))
    if _NO_KEY.search(line):
        return Fault(ModelUnavailable(model, "no key is set.", f"Set {_key_names(litellm, model)}."), no_key=True)
    if status in (401, 403) or isinstance(error, exceptions.AuthenticationError | exceptions.PermissionDeniedError):
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
    if names & _NOT_CONNECTED or (sent_status is None and _NO_CONNECTION.search(line)):
        remedy = "Start the server, or point --api-base at it." if api_base else "Check the network."
        return Fault(ModelUnavailable(model, f"nobody answers at {where}.", remedy), retries=min(retries, 2))
    if sent_status in _GATEWAY_TIMEOUTS or (sent_status is None and isinstance(error, exceptions.Timeout)):
        return Fault(ReplyLost(model, "no answer within the time limit."))
    if status in _REJECTIONS:
        mode = _next_mode(line)
        return Fault(LLMFailed(model, f"the provider rejected the request ({status}): {text}"), mode=mode)
    if status == 429:
        if _QUOTA.search(line):
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
    return Fault(ReplyLost(model, problem), mode=ResponseMode.WHOLE if unreadable else None)


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """`text` without the given secrets and without anything that looks like a key."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, REDACTED)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def provider_text(text: str, secrets: Collection[str]) -> str:
    """A provider's text as one printable line, redacted, of at most MAX_TEXT_CHARS."""
    return _bounded(_one_line(text, secrets))


def _one_line(text: str, secrets: Collection[str]) -> str:
    words = " ".join(redact(text[:MAX_READ_CHARS], secrets).split())
    return redact("".join(character for character in words if character.isprintable()), secrets)


def _provider_message(line: str, secrets: Collection[str]) -> str:
    """The provider's message in an error's text, without what LiteLLM and JSON put around it."""
    message = _JSON_MESSAGE.search(line)
    if message is not None:
        with contextlib.suppress(ValueError):
            return _bounded(_one_line(str(json.loads(message[1])), secrets))
    return _bounded(_SUFFIX.sub("", _PREFIX.sub("", line)))


def _bounded(line: str) -> str:
    return line if len(line) <= MAX_TEXT_CHARS else line[:MAX_TEXT_CHARS] + "…"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that led to it."""
    current: BaseException | None = error
    for _ in range(16):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _sent_status(causes: Sequence[BaseException]) -> int | None:
    """The HTTP status that the server sent; None: it sent none, and a status of the exception is LiteLLM's own."""
    for cause in causes:
        if type(cause).__module__.partition(".")[0] in ("openai", "httpx"):
            status = getattr(getattr(cause, "response", None), "status_code", None)
            if isinstance(status, int) and status >= 400:
                return status
    return None


def _mapped_status(error: Exception) -> int | None:
    """The status that LiteLLM derived from an error's text, but not one that it gives by default (408, 422, 5xx)."""
    status = getattr(error, "status_code", None)
    return status if status in (400, 401, 403, 404, 413, 429) else None


def _next_mode(text: str) -> ResponseMode | None:
    """The mode that a server may accept which rejected a request with this text; None: the mode is not the cause."""
    if _NO_STREAM_OPTIONS.search(text):
        return ResponseMode.STREAM
    return ResponseMode.WHOLE if _NO_STREAM.search(text) else None


def _fitting_tokens(text: str) -> int | None:
    """The reply tokens that the context leaves beside the prompt; None: not known, or too few."""
    context, prompt = _CONTEXT_TOKENS.search(text), _PROMPT_TOKENS.search(text)
    if context is None or prompt is None:
        return None
    left = int(context[1]) - int(prompt[1]) - SPARE_TOKENS
    return left if left >= MIN_REPLY_TOKENS else None


def _unsendable(litellm: ModuleType, model: str, error: UnicodeEncodeError) -> LLMError:
    """The error for a request that cannot be encoded: its body is UTF-8, its headers and address are ASCII."""
    if error.encoding in ("ascii", "latin-1", "idna"):
        return ModelUnavailable(
            model,
            "the key or the address holds a character that no header carries.",
            f"Check {_key_names(litellm, model)}.",
        )
    return LLMFailed(model, "the request holds characters that UTF-8 cannot encode; nothing was sent.")


def _key_names(litellm: ModuleType, model: str) -> str:
    """The names of the environment variables that hold a model's key."""
    try:
        missing = litellm.validate_environment(model)["missing_keys"]
    except Exception:  # only a hint is lost
        missing = []
    return " and ".join(missing) if missing else f"{provider_of(model).upper().replace('-', '_')}_API_KEY"


def _retry_after_s(causes: Sequence[BaseException]) -> float | None:
    """The wait that a Retry-After header asks for, in seconds; None: there is none, or it cannot be read."""
    for cause in causes:
        for headers in (
            getattr(cause, "litellm_response_headers", None),
            getattr(getattr(cause, "response", None), "headers", None),
        ):
            value = headers.get("retry-after") if headers is not None else None
            if value is not None:
                return _parse_retry_after_s(str(value))
    return None


def _parse_retry_after_s(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds == seconds and seconds != float("inf") else None
