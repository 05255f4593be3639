"""Read the file that Chrome's "Export bookmarks" writes, and normalize links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import urlsplit, urlunsplit

LONGEST_URL = 2000
TRACKING = {"fbclid", "gclid", "dclid", "msclkid", "igshid", "mc_cid", "mc_eid"}
USUAL_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Bookmark:
    """One link of the file, with the path of folders that it lies in."""

    url: str
    title: str
    folder: str
    added_at: datetime | None


def parse(text: str) -> list[Bookmark]:
    """Return every bookmark of a Netscape bookmark file, in its order."""
    reader = _Reader()
    reader.feed(text.replace("\0", ""))
    reader.close()
    return reader.found


class _Reader(HTMLParser):
    """The format closes neither DT nor p: H3 names the folder that the next DL opens, A is a bookmark."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Bookmark] = []
        self._folders: list[str] = []
        self._folder = ""  # the name of the folder that comes next
        self._link: dict[str, str | None] = {}
        self._text: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("h3", "a"):
            self._text = []
            self._link = dict(attrs)
        elif tag == "dl":
            self._folders.append(self._folder)
            self._folder = ""

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "dl" and self._folders:
            self._folders.pop()
        elif tag in ("h3", "a") and self._text is not None:
            text, self._text = "".join(self._text).strip(), None
            if tag == "h3":
                self._folder = text
            elif url := self._link.get("href"):
                folder = "/".join(filter(None, self._folders))
                added = _time(self._link.get("add_date"))
                # A link that is too long stays too long, and fails alone.
                self.found.append(Bookmark(url[: LONGEST_URL + 1], text[:1000], folder[:1000], added))


def _time(seconds: str | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(seconds or ""), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def canonical(url: str) -> str:
    """Return the one spelling of a link. Fragment, login, default port, tracking parameters and a trailing slash
    make no difference. Raise ValueError for what is no link to a page."""
    parts = urlsplit(url.strip())
    scheme = parts.scheme.lower()
    if scheme not in USUAL_PORT or not parts.hostname or len(url) > LONGEST_URL:
        raise ValueError(f"not a link that can be fetched: it begins with {url.strip()[:12]!r}")
    host = parts.hostname.rstrip(".")
    host = f"[{host}]" if ":" in host else host.encode("idna").decode().lower()
    port = "" if parts.port in (None, USUAL_PORT[scheme]) else f":{parts.port}"
    path = parts.path.rstrip("/") or "/"
    return urlunsplit((scheme, host + port, path, "&".join(filter(_matters, parts.query.split("&"))), ""))


def _matters(parameter: str) -> bool:
    name = parameter.partition("=")[0].lower()
    return bool(parameter) and name not in TRACKING and not name.startswith("utm_")


def domain(url: str) -> str:
    """Return the host, on which the limit of two at once is counted."""
    return urlsplit(url).hostname or ""
