"""The response with a job's transcript."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Discriminator, Field

from service.transcripts.pages import Page
from service.transcripts.render import entry_json
from web.api.schemas.jobs import TAGS_DESCRIPTION


class TranscriptPart(BaseModel):
    """A part of a prompt: a message, or a section of one."""

    label: str = Field(description="A role or the name of a section; `as before`: what is left out.")
    detail: str = Field(description="More about it, such as where the text stood before.")
    text: str | None = Field(description="The text; null: the label says all.")
    form: Literal["prose", "code"]
    lasting: bool = Field(description="It is the same in all prompts of the job.")


class LedTo(BaseModel):
    """A candidate that a call led to, and its verdict; null before it has been evaluated."""

    round: int
    candidate_hash: str
    verdict: str | None
    code: str | None
    message: str
    tags: list[str] = Field(description=TAGS_DESCRIPTION)
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    repeat_of_round: int | None
    label: str


class TranscriptCall(BaseModel):
    """A call of a model."""

    entry: Literal["call"]
    number: int = Field(description="Counts the job's calls from 1.")
    round: int
    role: str = Field(examples=["coder"])
    purpose: str = Field(examples=["improve"])
    model: str
    prompt: list[TranscriptPart] = Field(description="What is new in the prompt against earlier prompts of this role.")
    messages: list[dict[str, Any]] = Field(description="All messages, if they were asked for, or else empty.")
    reasoning: str
    reply: str
    tool_calls: list[dict[str, Any]]
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None
    cost_usd: float | None = Field(description="Null: no price is known.")
    latency_s: float
    attempts: int
    truncated: bool
    rejected: str | None = Field(description="Why the reply could not be used.")
    led: LedTo | None = Field(description="The candidate that it led to; the best of several.")
    variants: list[LedTo]
    key: str | None = Field(description="The call's key in the job's ledger.")
    at: datetime | None = Field(description="When the reply was there.")


class TranscriptEvent(BaseModel):
    """An event of the job between two calls, without its large parts."""

    entry: Literal["event"]
    kind: str
    round: int
    data: dict[str, Any]
    at: datetime | None


class TranscriptPage(BaseModel):
    """A page of a job's transcript."""

    entries: list[Annotated[TranscriptCall | TranscriptEvent, Discriminator("entry")]]
    next_cursor: int | None = Field(description="The value of `?cursor=` for the next page; null on the last page.")

    @classmethod
    def of(cls, found: Page, *, messages: bool) -> Self:
        """Convert a page."""
        entries = [entry_json(entry, messages=messages) for entry in found.entries]
        return cls.model_validate({"entries": entries, "next_cursor": found.next_cursor})
