"""`manual/DIR`: each prompt is written to a file in DIR and the reply is read from a file beside it.

So anybody and anything that reads and writes files can be the Coder or the Judge. A prompt is known by the digest of
what it asks, so that a job which starts again finds the reply that is there and does not ask twice. A job that asks the
same again on purpose, for another try, gets a file for each.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from agents.llm.ledger import request_digest
from agents.llm.models import MANUAL
from agents.manual.files import (
    MAX_REPLY_BYTES,
    Found,
    ReplyWatch,
    known_prompts,
    place_prompt,
    reply_names,
    reply_there,
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
_CHARACTERS_A_TOKEN = 4  # rough, as for English text and code


class ManualLLM:
    """`agents.protocols.LLM` through files.

    Args:
        on_wait: is told which file is waited for, and why an existing one does not count.
        resume_state: holds the replies that the job's ledger has already. Their files answer no other prompt.
    """

    def __init__(self, on_wait: Callable[[str], None] = ignore_fault, resume_state: ResumeState = FRESH_START) -> None:
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._taken: set[Path] = set()  # prompts that this job has asked
        self._used: dict[str, list[Reply]] = {}  # replies of the ledger whose files were not come across yet
        for key, reply in resume_state.replies.items():
            self._used.setdefault(key.rpartition(":")[2], []).append(reply)

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
        """As `LLM.complete`; waits for as long as it takes. Bounds on tokens and money have no meaning here.

        Raises:
            ModelUnavailable: no folder is named, or it cannot be used.
            LLMCancelled: `should_stop()` held while waiting.
        """
        started = time.monotonic()
        folder = _folder(model)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stem = self._place(folder, model, messages, tools)
        except OSError as error:
            raise _unusable(model, folder, error) from error
        try:
            found = self._wait(model, folder, stem, should_stop)
        except BaseException:
            self._taken.discard(folder / stem)
            raise
        text, calls = read_reply(found.text, found.kind, stem=stem, offered=tools)
        return Reply(
            text=text,
            model=model,
            prompt_tokens=sum(len(message.content) for message in messages) // _CHARACTERS_A_TOKEN,
            completion_tokens=len(found.text) // _CHARACTERS_A_TOKEN,
            cost_usd=0.0,
            latency_s=time.monotonic() - started,
            truncated=found.truncated,
            tool_calls=calls,
        )

    def price(self, model: str) -> Price | None:
        """Nothing, whoever answers."""
        return FREE

    def reply_limit(self, model: str) -> int:
        """As many tokens as the largest reply file holds."""
        return MAX_REPLY_BYTES // _CHARACTERS_A_TOKEN

    def _place(self, folder: Path, model: str, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        """The stem of a file with this prompt: one that an earlier run wrote and got no use of, or a new one."""
        digest = request_digest(model, [message.to_json() for message in messages], tools)
        with self._lock:
            for stem in known_prompts(folder, digest):
                if folder / stem not in self._taken and not self._was_used(folder, stem, digest, tools):
                    break
            else:
                text = partial(prompt_text, messages, tools)
                stem = place_prompt(folder, digest, request_of(messages), text)
            self._taken.add(folder / stem)
            return stem

    def _was_used(self, folder: Path, stem: str, digest: str, tools: Sequence[Tool]) -> bool:
        """Whether the reply to this prompt is in the ledger already; each reply there accounts for one file."""
        unmatched = self._used.get(digest, [])
        found = reply_there(folder, stem) if unmatched else None
        if found is None:
            return False
        answer = read_reply(found.text, found.kind, stem=stem, offered=tools)
        for reply in unmatched:
            if (reply.text, reply.tool_calls) == answer:
                unmatched.remove(reply)
                self._taken.add(folder / stem)
                return True
        return False

    def _wait(self, model: str, folder: Path, stem: str, should_stop: Callable[[], bool]) -> Found:
        wanted = folder / reply_names(stem)[0]
        watch = ReplyWatch(folder, stem)
        self._on_wait(f"waiting for {wanted}")
        told = None
        while not should_stop():
            try:
                found = watch.look(time.monotonic())
            except OSError as error:
                raise _unusable(model, folder, error) from error
            if isinstance(found, Found):
                return found
            if found is not None and found != told:
                self._on_wait(found)
                told = found
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
