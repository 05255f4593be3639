"""Keys that identify equal things: for `task.using(dedupe=...)`, for emit, and for columns of sinks."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.errors import UsageError
from holdfast.model import payload


def price_point_key(
    *,
    external_id: str | int | None = None,
    url: str | None = None,
    title: str | None = None,
    cents: int | None = None,
    day: date | str | None = None,
    price_type: str | None = None,
) -> str:
    """Return the key of an observed price: `ext_` and the source's own id, if it has one.

    Otherwise `hash_` and 16 hex digits of SHA-256 over the URL without query and fragment, the title without regard to
    case and spacing, the price in cents, the day and the kind of price ("sold", "ask", "bid"); all five are required.
    """
    if external_id is not None and (own := str(external_id).strip()):
        return f"ext_{own}"
    parts = [_url(url), _folded(title, "title"), _cents(cents), _day(day), _folded(price_type, "price_type")]
    # As JSON, so that no two lists of parts give the same text.
    return f"hash_{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"


def job_key(type: str, org_id: str | None, arguments: Any) -> str:
    """Return `<type>::<org_id|global>::<sorted-json>`: equal payloads give equal keys, whatever the order of names.

    A task with a Dedupe derives the same key from its arguments. A payload of more than 1,000 bytes is replaced by its
    hash, and a type or org_id that contains a colon is escaped.
    """
    payload.check_text(type, "type", 200)
    if org_id is not None:
        payload.check_text(org_id, "org_id", 200)
    text = payload.sorted_json(payload.encode(arguments, "the payload"))
    return payload.dedupe_key(type, org_id, text)


def _url(url: str | None) -> str:
    if not url:
        raise _missing("url")
    try:
        scheme, host, path, _, _ = urlsplit(url.strip())
    except ValueError as error:
        raise UsageError(f"url {url!r:.80} cannot be read: {error}") from None
    return urlunsplit((scheme, host.lower(), path, "", ""))


def _folded(text: str | None, what: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text or "").casefold())
    if not (words := folded.split()):
        raise _missing(what)
    return " ".join(words)


def _cents(cents: int | None) -> int:
    if cents is None:
        raise _missing("cents")
    value: Any = cents  # not every caller has a type checker
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"cents is a whole number, got {value!r}; a float's last digit would change the key")
    return value


def _day(day: date | str | None) -> str:
    if day is None:
        raise _missing("day")
    try:
        parsed = date.fromisoformat(day) if isinstance(day, str) else day
    except ValueError:
        raise UsageError(f"day is a date, or a text such as 2026-01-31, got {day!r:.40}") from None
    return (parsed.date() if isinstance(parsed, datetime) else parsed).isoformat()


def _missing(what: str) -> UsageError:
    return UsageError(f"a price point without an external_id needs url, title, cents, day and price_type; no {what}")
