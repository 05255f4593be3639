"""The key of an observed price, by which the same price seen twice is stored once."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit


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


def _url(url: str | None) -> str:
    if not url:
        raise _missing("url")
    try:
        scheme, host, path, _, _ = urlsplit(url.strip())
    except ValueError as error:
        raise ValueError(f"url {url!r:.80} cannot be read: {error}") from None
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
        raise ValueError(f"cents must be a whole number, got {value!r}; a float's last digit would change the key")
    return value


def _day(day: date | str | None) -> str:
    if day is None:
        raise _missing("day")
    try:
        parsed = date.fromisoformat(day) if isinstance(day, str) else day
    except ValueError:
        raise ValueError(f"day must be a date, or a string such as 2026-01-31, got {day!r:.40}") from None
    return (parsed.date() if isinstance(parsed, datetime) else parsed).isoformat()


def _missing(what: str) -> ValueError:
    return ValueError(f"a price point without an external_id needs url, title, cents, day and price_type; no {what}")
