"""Parse what marketplaces return into listings, match listings to coins, and value coins. No I/O here."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from coins.keys import price_point_key

FIELDS = ("year", "mintmark", "denomination", "series", "title")
Query = dict[str, Any]  # the wanted value of each field, or None

_WEIGHTS = {"year": 30, "mintmark": 20, "denomination": 15, "series": 20, "title": 15}
_GOOD_MATCH = 50  # of 100; weaker matches do not count in a valuation
_LOT = re.compile(
    r'<li class="lot" data-date="(?P<day>[^"]+)" data-type="(?P<kind>\w+)">\s*'
    r'<a href="(?P<url>[^"]+)">(?P<title>[^<]+)</a>\s*<b>(?P<price>[^<]+)</b>'
)


@dataclass(frozen=True)
class Listing:
    """One price that a marketplace shows."""

    external_id: str | None
    url: str
    title: str
    price_cents: int
    price_type: str
    seen_on: str  # YYYY-MM-DD

    @property
    def dedupe_key(self) -> str:
        """Return `ext_` and the marketplace's own id, else `hash_` and 16 hex digits of the listing's text."""
        return price_point_key(
            external_id=self.external_id,
            url=self.url,
            title=self.title,
            cents=self.price_cents,
            day=self.seen_on,
            price_type=self.price_type,
        )


def read_json(text: str) -> list[Listing]:
    """Parse the response of a marketplace with an API: every listing has an id."""
    return [
        Listing(str(lot["id"]), lot["url"], lot["title"], cents(lot["price"]), lot["type"], lot["sold_at"][:10])
        for lot in json.loads(text)["listings"]
    ]


def read_html(text: str) -> list[Listing]:
    """Parse a dealer's page, which has no ids."""
    if '<ul class="lots">' not in text:
        raise ValueError("this is no page of results")  # a captcha, a login: a retry would not help
    return [
        Listing(
            None,
            html.unescape(lot["url"]),
            html.unescape(lot["title"]),
            cents(lot["price"]),
            lot["kind"],
            lot["day"][:10],
        )
        for lot in _LOT.finditer(text)
    ]


def cents(price: str) -> int:
    """Return cents: `$1,250.00` is 125000."""
    return int(Decimal(re.sub(r"[^0-9.]", "", price)) * 100)


def match_strength(query: Query, title: str) -> int:
    """Return 0 to 100: how surely a title names the wanted coin. A query with fewer fields gets less sure matches."""
    words = _words(title)
    strength = 0.0
    for field, weight in _WEIGHTS.items():
        requests = _words(str(query.get(field) or ""))
        strength += weight * len(requests & words) / len(requests) if requests else 0
    return round(strength)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


@dataclass(frozen=True)
class Valuation:
    """The value of a coin, and the range of its sale prices."""

    value_cents: int
    low_cents: int
    high_cents: int
    points: int


def value(sold: Iterable[tuple[int, int]]) -> Valuation | None:
    """Return the weighted median of the prices of good matches, (cents, match_strength) each."""
    prices = sorted((cents, strength) for cents, strength in sold if strength >= _GOOD_MATCH)
    half, passed = sum(strength for _, strength in prices) / 2, 0
    for price, strength in prices:
        passed += strength
        if passed >= half:
            return Valuation(price, prices[0][0], prices[-1][0], len(prices))
    return None
