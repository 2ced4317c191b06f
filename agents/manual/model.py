"""The model `manual/DIR`: each prompt is written to a file in DIR, and its reply is read from a file beside it.

A prompt file is recognised by the digest of its prompt. A job that is resumed therefore finds the replies that exist. A
job that sends the same prompt again on purpose gets one file for each try.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from agents.llm.ledger import request_digest
from agents.llm.models import CHARS_PER_TOKEN, MANUAL
from agents.manual.files import (
    MAX_REPLY_BYTES,
    ReplyFile,
    ReplyWatch,
    find_reply,
    known_prompts,
    reply_names,
    write_prompt,
)
from agents.manual.format import prompt_text, read_reply, request_of
from agents.protocols import (
    FREE,
    FRESH_START,
    LLMCancelled,
    Message,
    ModelUnavailable,
    Price,
    Reply,
    ResumeState,
    Tool,
    ignore_fault,
)

PREFIX = f"{MANUAL}/"
POLL_S = 0.1


class ManualLLM:
    """`agents.protocols.LLM` through files.

    Args:
        on_wait: is told which file is waited for, and why an existing one does not count.
        resume_state: holds the replies that the job's ledger has already. Their files answer no other prompt.
    """

    def __init__(self, on_wait: Callable[[str], None] = ignore_fault, resume_state: ResumeState = FRESH_START) -> None:
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._claimed: set[Path] = set()  # prompt files that this job uses
        self._unmatched: dict[str, list[Reply]] = {}  # recorded replies by digest, until their file is found
        for key, reply in resume_state.replies.items():
            self._unmatched.setdefault(key.rpartition(":")[2], []).append(reply)

    def complete(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        should_stop: Callable[[], bool],
        reply_tokens: int | None = None,
        tools: Sequence[Tool] = (),
        on_fault: Callable[[str], None] = ignore_fault,
    ) -> Reply:
        """As `LLM.complete`, without a limit on time or tokens.

        Raises:
            ModelUnavailable: no folder is named, or it cannot be used.
            LLMCancelled: `should_stop()` held while waiting.
        """
        started = time.monotonic()
        folder = _folder(model)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stem = self._claim_prompt(folder, model, messages, tools)
        except OSError as error:
            raise _unusable(model, folder, error) from error
        try:
            found = self._wait(model, folder, stem, should_stop)
        except BaseException:
            self._claimed.discard(folder / stem)
            raise
        text, calls = read_reply(found.text, found.kind, stem=stem, offered=tools)
        return Reply(
            text=text,
            model=model,
            prompt_tokens=sum(len(message.content) for message in messages) // CHARS_PER_TOKEN,
            completion_tokens=len(found.text) // CHARS_PER_TOKEN,
            cost_usd=0.0,
            latency_s=time.monotonic() - started,
            truncated=found.truncated,
            tool_calls=calls,
        )

    def price(self, model: str) -> Price | None:
        """Replies from files are free."""
        return FREE

    def reply_limit(self, model: str) -> int:
        """The tokens of the largest reply file that is read."""
        return MAX_REPLY_BYTES // CHARS_PER_TOKEN

    def _claim_prompt(self, folder: Path, model: str, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        """The stem of a file with this prompt: one of an earlier run whose reply is not recorded, or a new one."""
        digest = request_digest(model, [message.to_json() for message in messages], tools)
        with self._lock:
            for stem in known_prompts(folder, digest):
                if folder / stem not in self._claimed and not self._was_used(folder, stem, digest, tools):
                    break
            else:
                text = partial(prompt_text, messages, tools)
                stem = write_prompt(folder, digest, request_of(messages), text)
            self._claimed.add(folder / stem)
            return stem

    def _was_used(self, folder: Path, stem: str, digest: str, tools: Sequence[Tool]) -> bool:
        """Whether the reply in this file is recorded already. Each recorded reply accounts for one file."""
        unmatched = self._unmatched.get(digest, [])
        found = find_reply(folder, stem) if unmatched else None
        if found is None:
            return False
        answer = read_reply(found.text, found.kind, stem=stem, offered=tools)
        for reply in unmatched:
            if (reply.text, reply.tool_calls) == answer:
                unmatched.remove(reply)
                self._claimed.add(folder / stem)
                return True
        return False

    def _wait(self, model: str, folder: Path, stem: str, should_stop: Callable[[], bool]) -> ReplyFile:
        wanted = folder / reply_names(stem)[0]
        watch = ReplyWatch(folder, stem)
        self._on_wait(f"waiting for {wanted}")
        reported = None
        while not should_stop():
            try:
                found = watch.poll(time.monotonic())
            except OSError as error:
                raise _unusable(model, folder, error) from error
            if isinstance(found, ReplyFile):
                return found
            if found is not None and found != reported:
                self._on_wait(found)
                reported = found
            time.sleep(POLL_S)
        raise LLMCancelled(model, f"cancelled while waiting for {wanted}.")


def _folder(model: str) -> Path:
    name = model.removeprefix(PREFIX)
    if not model.startswith(PREFIX) or not name.strip() or "\0" in name:
        raise ModelUnavailable(model, "no folder is named.", "Write manual/DIR, DIR being where prompts are to go.")
    path = Path(name)
    try:
        return path.expanduser()
    except RuntimeError:  # no such user
        return path


def _unusable(model: str, folder: Path, error: OSError) -> ModelUnavailable:
    in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
    why = "there is a file where a folder is needed" if in_the_way else error.strerror or type(error).__name__
    return ModelUnavailable(model, f"{folder} cannot be used: {why}.", "Name a folder that can be written: manual/DIR.")
