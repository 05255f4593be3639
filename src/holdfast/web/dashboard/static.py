"""The dashboard's scripts, styles and icon. Their URLs contain a hash of their contents, so browsers keep them."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from starlette.responses import Response

from holdfast.web.problems import Problem

FOLDER = Path(__file__).parent.parent / "static" / "dashboard"
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"


class StaticFiles:
    """All files, read once."""

    @cached_property
    def all(self) -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in sorted(FOLDER.iterdir()) if each.suffix in TYPES}

    @cached_property
    def version(self) -> str:
        """A hash of all files: scripts import each other by relative URLs."""
        whole = blake2b(digest_size=8)
        for name, data in self.all.items():
            whole.update(name.encode() + b"\0" + data + b"\0")
        return whole.hexdigest()

    def response(self, version: str, name: str) -> Response:
        """Return a file. One of another version, during a deployment, is not kept."""
        if name not in self.all:
            raise Problem(404, f"there is no file {name[:100]!r}")
        headers = {"Cache-Control": FOREVER} if version == self.version else {}
        return Response(self.all[name], 200, headers, TYPES[Path(name).suffix])
