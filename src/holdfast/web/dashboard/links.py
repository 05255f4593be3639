"""Links in sentences: the keys, jobs and workers that a reason names lead to their pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from markupsafe import Markup

from holdfast.model.why import Reason
from holdfast.web.dashboard.render import cut
from holdfast.web.dashboard.visit import Visit

_LINK = Markup('<a href="{}">{}</a>')


def linked(visit: Visit, text: str, reasons: Iterable[Reason], most: int = 500) -> Markup:
    """Return a text as markup; what the facts of its reasons name is linked, the rest escaped."""
    pages = {name: page for each in reasons for name, page in _pages(visit, each.facts)}
    if not pages:
        return Markup("{}").format(cut(text, most))
    longest_first = sorted(pages, key=len, reverse=True)
    names = re.compile(rf"(?<![\w:-])({'|'.join(map(re.escape, longest_first))})(?![\w-])")
    parts = names.split(text if len(text) <= most else f"{text[:most]}…")
    return Markup("").join(_LINK.format(pages[part], cut(part)) if part in pages else cut(part, most) for part in parts)


def _pages(visit: Visit, facts: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each name with the URL of its page."""
    match facts.get("key"):
        case str(key):
            yield key, visit.url("/limits/key", key=key)
    match facts.get("probe"):
        case str(job):
            yield job, visit.url(f"/jobs/{job}")
    match facts.get("batch"):
        case str(batch):
            yield batch, visit.url(f"/batches/{batch}")
    holders = facts.get("holders")
    for each in holders if isinstance(holders, list) else []:
        yield each["id"], visit.url(f"/jobs/{each['id']}")
        yield from _workers(visit, each.get("worker"))
    workers = facts.get("workers")
    for each in [facts.get("worker"), facts.get("last_worker"), *(workers if isinstance(workers, list) else [])]:
        yield from _workers(visit, each)


def _workers(visit: Visit, name: object) -> Iterator[tuple[str, str]]:
    if isinstance(name, str) and name:
        yield name, f"{visit.url('/workers')}#worker-{quote(name)}"
