"""Style sheets and scripts under addresses that name their content, so that browsers may keep them for ever."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse, PlainTextResponse

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Assets:
    """Files by the name under which they are served, and the hash over all of ours; that of plotly stands by itself.

    `plotly_styles` are the ids of style elements that plotly adds unless one of that id is there (for maps, which
    no page shows): our policy would refuse them, and the browser complain.
    """

    files: Mapping[str, Path]
    digest: str
    plotly_digest: str
    plotly_styles: tuple[str, ...]

    def url(self, name: str) -> str:
        """The address of a file."""
        return f"/assets/{self.plotly_digest if name == PLOTLY else self.digest}/{name}"


PLOTLY = "plotly.min.js"
_STYLE_ID = re.compile(rb'getElementById\("([0-9a-f]{32,64})"\)')


@cache
def assets() -> Assets:
    """What there is to serve."""
    own = {entry.name: Path(str(entry)) for entry in files("web").joinpath("static").iterdir()}
    own = {name: path for name, path in sorted(own.items()) if path.suffix in MEDIA_TYPES}
    digest = hashlib.sha256(b"".join(name.encode() + path.read_bytes() for name, path in own.items()))
    plotly = Path(str(files("plotly"))) / "package_data" / PLOTLY
    script = plotly.read_bytes()
    styles = tuple(sorted({found.decode() for found in _STYLE_ID.findall(script)}))
    plotly_digest = hashlib.sha256(script).hexdigest()
    return Assets({**own, PLOTLY: plotly}, digest.hexdigest()[:16], plotly_digest[:16], styles)


@router.get("/assets/{digest}/{name}")
def static_file(digest: str, name: str, request: Request) -> Response:
    """A file of ours; of another version too, but then nobody may keep it."""
    known = assets()
    path = known.files.get(name)
    if path is None:
        return PlainTextResponse("not found", status_code=404)
    current = request.url.path == known.url(name)
    headers = _FOREVER if current else {**_FOREVER, "Cache-Control": "no-store"}
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=headers)
