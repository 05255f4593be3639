"""The hook of mkdocs.yml: adds pages of the root, points links out of docs/ at the repository, checks the result."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
SOURCE = "https://holdfast.example/source/blob/main"
OF_THE_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md")
MAY_BE_MISSING = ("guides/steps.md", "guides/backup.md", "compared-workflows.md")
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
ITEM = re.compile(r"- |\d\. ")
LOADS = {"script": "src", "img": "src", "source": "srcset", "link": "href", "iframe": "src", "video": "src"}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}


def on_config(config: Any) -> Any:
    """Complete the navigation: leave out pages that do not exist yet, list the files of a folder."""
    config.nav = [*_existing(config.nav, ROOT / "docs")]
    return config


def _existing(entries: list[Any], docs: Path) -> Iterator[Any]:
    for entry in entries:
        if isinstance(entry, str):
            if entry not in MAY_BE_MISSING or (docs / entry).exists():
                yield entry
            continue
        ((title, target),) = entry.items()
        if isinstance(target, list):
            yield {title: [*_existing(target, docs)]}
        elif target.endswith("/"):
            names = sorted((each.name for each in (docs / target).glob("*.md")), key=lambda it: (it != "index.md", it))
            yield {title: [f"{target}{name}" for name in names]}
        elif target not in MAY_BE_MISSING or (docs / target).exists():
            yield entry


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand in the root, where readers of the repository expect them."""
    for name in OF_THE_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point each link at the site's page, or at the repository if the site has none."""
    name = page.file.src_uri
    here = name if name in OF_THE_ROOT else f"docs/{name}"
    return "\n".join(_lines(LINK.sub(lambda found: _pointed(found, here, name), markdown)))


def _lines(markdown: str) -> Iterator[str]:
    """Yield the lines with lists as this renderer wants them: an empty line before, four spaces inside."""
    before, code, loose = "", False, True  # loose: the line before is text that an item would become part of
    for line in markdown.splitlines():
        code ^= line.startswith("```")
        item = not code and ITEM.match(line) is not None
        if item and loose and before.strip():
            yield ""
        yield f"  {line}" if not code and line.startswith("  ") else line
        loose = not item and (loose or not before.strip())
        before = line


def _pointed(found: re.Match[str], here: str, name: str) -> str:
    target, anchor = found[2], found[3] or ""
    if urlsplit(target).scheme:
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if path in OF_THE_ROOT or path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        if (ROOT / path).is_dir():
            inside += "/index.md" if (ROOT / path / "index.md").exists() else f"/{_first(ROOT / path)}"
        return f"{found[1]}{posixpath.relpath(inside, posixpath.dirname(name) or '.')}{anchor}{found[4]}"
    if not (ROOT / path).exists():
        raise PluginError(f"{here} links to {target}, which does not exist")
    return f"{found[1]}{SOURCE}/{path}{anchor}{found[4]}"


def _first(folder: Path) -> str:
    return sorted(each.name for each in folder.glob("*.md"))[0]


class Built(HTMLParser):
    """What a built page links to, loads and can be reached at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag's id, link and source."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in LOADS and given.get(LOADS[tag]) and given.get("rel") not in NOT_LOADED:
            self.loads.append(given[LOADS[tag]])


def on_post_build(config: Any) -> None:
    """Fail on a broken link, a missing picture, a foreign host, or text that should have become a list or a table."""
    site = Path(config.site_dir)
    texts = {each: each.read_text(encoding="utf-8") for each in site.rglob("*.html") if each.name != "404.html"}
    pages = {path: Built(text) for path, text in texts.items()}
    wrong = [f"{path.relative_to(site)}: {each}" for path, text in texts.items() for each in _unformatted(text)]
    for path, page in pages.items():
        wrong += [f"{path.relative_to(site)}: {each}" for each in _breaches(path, page, pages)]
    if wrong:
        raise PluginError("the site is broken:\n  " + "\n  ".join(wrong))


def _breaches(path: Path, page: Built, pages: dict[Path, Built]) -> Iterator[str]:
    for target in page.loads:
        if urlsplit(target).netloc:
            yield f"loads {target} from elsewhere"
        elif not target.startswith("data:") and not _at(path, target).exists():
            yield f"{target} does not exist"
    for link in page.links:
        target, anchor = urldefrag(link)
        if urlsplit(target).scheme:
            continue
        to = _at(path, target) if target else path
        if not to.exists() or (anchor and to in pages and unquote(anchor) not in pages[to].ids):
            yield f"links to {link}, which does not exist"


def _at(path: Path, target: str) -> Path:
    return Path(os.path.normpath(path.parent / unquote(urlsplit(target).path)))


def _unformatted(text: str) -> Iterator[str]:
    """Yield text that a reader of the source takes for a list or a table, and Markdown for a paragraph."""
    for paragraph in re.findall(r"<p>(.*?)</p>", text, re.S):
        if found := re.search(r"^(?:- |\d\. |\|).*$", paragraph, re.M):
            yield f"not a list or a table: {found[0][:80]}"
