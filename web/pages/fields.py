"""Parts of addresses."""

from typing import Annotated

from fastapi import Path

JobId = Annotated[int, Path(ge=1, le=2**31 - 1)]
BatchId = Annotated[int, Path(ge=1, le=2**31 - 1)]
Digest = Annotated[str, Path(max_length=64)]
Name = Annotated[str, Path(max_length=255)]
