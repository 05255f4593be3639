"""Read a page's metadata from its head; nothing else of it is kept."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin

_META_CHARSET = re.compile(rb"<meta[^>]{1,200}?charset\s*=\s*[\"']?([\w-]{2,40})", re.I)
_ASKS_FOR_A_HUMAN = re.compile(r"captcha|are you (a )?(human|robot)|just a moment\.\.\.|attention required", re.I)
_CHALLENGE = re.compile(rb"cf-chl-|px-captcha|captcha-delivery\.com", re.I)


@dataclass
class Head:
    """Texts are cut: a title is not a place to store a page."""

    title: str | None = None
    description: str | None = None
    icon: str | None = None
    og_image: str | None = None
    content_type: str | None = None
    captcha: bool = False


def read_head(data: bytes, charset: str | None, url: str) -> Head:
    """Return the head of a page from its first bytes."""
    reader = _Reader()
    reader.feed(decode(data, charset))
    meta = reader.meta
    title = _short(meta.get("title") or meta.get("og:title"), 300)
    return Head(
        title=title,
        description=_short(meta.get("description") or meta.get("og:description"), 500),
        icon=_link(url, meta.get("icon", "/favicon.ico")),
        og_image=_link(url, meta.get("og:image")),
        captcha=bool(_CHALLENGE.search(data) or (title and _ASKS_FOR_A_HUMAN.search(title))),
    )


def decode(data: bytes, charset: str | None) -> str:
    """Return the text, by the first charset that fits: the header's, the page's own, UTF-8. The end may be cut."""
    own = _META_CHARSET.search(data[:2048])
    for name in filter(None, (charset, own and own[1].decode(), "utf-8")):
        try:
            text: str = codecs.getincrementaldecoder(name)().decode(data)
            return text
        except (LookupError, UnicodeDecodeError):
            continue
    return data.decode("utf-8", "replace")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.meta: dict[str, str] = {}
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_title = tag == "title" and "title" not in self.meta
        if tag == "meta":
            self.meta.setdefault((given.get("property") or given.get("name", "")).lower(), given.get("content", ""))
        elif tag == "link" and "icon" in given.get("rel", "").lower().split():
            self.meta.setdefault("icon", given.get("href", ""))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.meta["title"] = self.meta.get("title", "") + data

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False


def _short(text: str | None, most: int) -> str | None:
    """Remove NUL, which PostgreSQL does not store, and cut the text."""
    return " ".join((text or "").replace("\0", "").split())[:most] or None


def _link(url: str, given: str | None) -> str | None:
    found = urljoin(url, given.strip()) if given else ""
    return found[:2000] if found.startswith(("http://", "https://")) else None
