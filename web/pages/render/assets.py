"""Style sheets and scripts. Their URLs contain a hash of the content, so that browsers can cache them for ever."""

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
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Assets:
    """The files that are served.

    Attributes:
        files: The files by name.
        digest: A hash over all files but plotly's.
        plotly_digest: The hash of plotly's script.
        plotly_styles: Ids of style elements that plotly adds to a page that lacks them (for maps, which no page has).
            Our pages have them, because the Content-Security-Policy forbids to add them.
    """

    files: Mapping[str, Path]
    digest: str
    plotly_digest: str
    plotly_styles: tuple[str, ...]

    def url(self, name: str) -> str:
        """The URL of a file."""
        return f"/assets/{self.plotly_digest if name == PLOTLY else self.digest}/{name}"


PLOTLY = "plotly.min.js"
_STYLE_ID = re.compile(rb'getElementById\("([0-9a-f]{32,64})"\)')


@cache
def assets() -> Assets:
    """Find the files and compute their hashes."""
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
    """A file. With the hash of another version the present file is sent, and must not be cached."""
    known = assets()
    path = known.files.get(name)
    if path is None:
        return PlainTextResponse("not found", status_code=404)
    current = request.url.path == known.url(name)
    headers = _CACHE_FOREVER if current else {**_CACHE_FOREVER, "Cache-Control": "no-store"}
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=headers)
