"""Make a bookmark file as Chrome exports it after years of use: nested folders, the same page again and again
with other tracking parameters, and bookmarklets. The same seed makes the same file."""

from __future__ import annotations

import html
import random
from collections.abc import Iterator

TRACKS = ["?utm_source=mail&utm_medium=web", "?fbclid=IwAR0x1", "#section-2", "?gclid=EAIaIQ", "/", "#:~:text=hello"]
BOOKMARKLETS = ["javascript:(function(){alert(1)})()", "chrome://settings/", "file:///notes.html"]
FOLDERS = [["Work"], ["Work", "Tools & tips"], ["Read later"], ["Cooking", "한식"], ["Cooking", "한식", "김치"], []]
# host, what is kept of it, how many of a hundred bookmarks
KEPT = [
    ("127.0.0.11", "page", 15),
    ("127.0.0.12", "page", 12),
    ("127.0.0.13", "page", 12),
    ("127.0.0.15", "page", 11),
    ("127.0.0.16", "page", 11),
    ("127.0.0.20", "page", 11),
    ("127.0.0.22", "page", 7),
    ("127.0.0.19", "korean", 5),
    ("127.0.0.21", "file", 4),
    ("127.0.0.14", "moved", 4),
    ("127.0.0.14", "away", 4),
    ("127.0.0.17", "slow", 1),
    ("127.0.0.12", "untitled", 1),
]
# the odd ones, with their number in a thousand bookmarks
ODD = [
    ("127.0.0.22", "flaky", 5),
    ("127.0.0.22", "broken", 2),
    ("127.0.0.23", "forbidden", 6),
    ("127.0.0.24", "captcha", 3),
    ("127.0.0.25", "private", 4),
    ("127.0.0.26", "busy", 3),
    ("127.0.0.18", "huge", 1),
    ("127.0.0.14", "circle", 1),
]


def make(links: int, port: int, seed: int = 7, name: str = "") -> str:
    """Return a file with this many links; `name` keeps one person's pages apart from another's."""
    rng = random.Random(seed)
    urls = list(_urls(links, port, rng, name))
    folders: dict[tuple[str, ...], list[str]] = {}
    for number, url in enumerate(urls):
        folders.setdefault(tuple(rng.choice(FOLDERS)), []).append(
            _line(url, f"Bookmark <{number}>", 1_600_000_000 + number)
        )
    return "".join(_file(folders))


def _urls(links: int, port: int, rng: random.Random, name: str) -> Iterator[str]:
    made: list[str] = []
    odd = [(host, kind) for host, kind, share in ODD for _ in range(max(1, share * links // 1000))]
    for number in range(links):
        if number < len(odd):
            host, kind = odd[number]
        elif number < len(odd) + len(BOOKMARKLETS):
            yield BOOKMARKLETS[number - len(odd)]
            continue
        elif rng.random() < 0.5:
            yield _again(rng.choice(made), rng)
            continue
        else:
            ((host, kind, _),) = rng.choices(KEPT, [share for *_, share in KEPT])
        # Some links carry private data.
        query = f"?session=s3cr3t-{number}" if kind in ("broken", "flaky", "forbidden") else ""
        made.append(f"http://{host}:{port}/{kind}/{name}{number}{query}")
        yield made[-1]


def _again(url: str, rng: random.Random) -> str:
    """Return the same page as another user would have kept it."""
    if "?" in url:
        return f"{url}&utm_campaign=spring"
    return url.replace("http://", "HTTP://") + rng.choice(TRACKS)


def _line(url: str, title: str, added: int) -> str:
    icon = "data:image/png;base64,iVBORw0KGgo="
    return f'<DT><A HREF="{html.escape(url)}" ADD_DATE="{added}" ICON="{icon}">{html.escape(title)}</A>\n'


def _file(folders: dict[tuple[str, ...], list[str]]) -> Iterator[str]:
    yield '<!DOCTYPE NETSCAPE-Bookmark-file-1>\n<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=UTF-8">\n'
    yield "<TITLE>Bookmarks</TITLE>\n<H1>Bookmarks</H1>\n<DL><p>\n"
    yield '<DT><H3 ADD_DATE="1600000000" PERSONAL_TOOLBAR_FOLDER="true">Bookmarks bar</H3>\n<DL><p>\n'
    yield from _folder((), folders)
    yield "</DL><p>\n</DL><p>\n"


def _folder(path: tuple[str, ...], folders: dict[tuple[str, ...], list[str]]) -> Iterator[str]:
    yield from folders.get(path, [])
    inner = dict.fromkeys(
        each[: len(path) + 1] for each in folders if len(each) > len(path) and each[: len(path)] == path
    )
    for child in inner:
        yield f'<DT><H3 ADD_DATE="1600000000">{html.escape(child[-1])}</H3>\n<DL><p>\n'
        yield from _folder(child, folders)
        yield "</DL><p>\n"
