"""Lists in pages: the filter is in the URL, and a cursor leads to the next page."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.web.dashboard.visit import Visit

NOT_FILTERS = ("cursor", "limit")


def filters(visit: Visit, *names: str) -> Mapping[str, str]:
    """Return the filter's fields as they stand in the URL; an empty text for those that are left out."""
    return {name: visit.request.query_params.get(name, "") for name in names}


async def older(visit: Visit, end: str | None) -> str | None:
    """Return the URL of the next page, which begins after this id."""
    return following(visit, await visit.service.seal(visit.caller, end))


def following(visit: Visit, cursor: str | None) -> str | None:
    """Return the URL of the page at a cursor, with the same filter."""
    if cursor is None:
        return None
    kept = {name: value for name, value in visit.given() if name != "cursor"}
    return visit.url(visit.path, **kept, cursor=cursor)


def newest(visit: Visit) -> str | None:
    """Return the URL of the first page; None on the first page."""
    if not visit.request.query_params.get("cursor"):
        return None
    kept = {name: value for name, value in visit.given() if name not in NOT_FILTERS}
    return visit.url(visit.path, **kept)
