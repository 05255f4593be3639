"""The key of an observed price: what changes it and what does not."""

from __future__ import annotations

import hashlib
import json
import string
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coins.keys import price_point_key

POINT: dict[str, Any] = {
    "url": "https://example.org/item/7?utm=1#top",
    "title": "1909-S  VDB Lincoln Cent",
    "cents": 125_000,
    "day": date(2026, 1, 31),
    "price_type": "sold",
}
DIFFERENT: dict[str, list[Any]] = {
    "url": ["https://example.org/item/8", "https://example.com/item/7", "https://example.org/Item/7"],
    "title": ["1909 VDB Lincoln Cent"],
    "cents": [125_001, -125_000],
    "day": [date(2026, 2, 1)],
    "price_type": ["ask", "bid"],
}
words = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


def test_an_external_id_is_the_key() -> None:
    assert price_point_key(external_id="v1|110|0", **POINT) == "ext_v1|110|0"
    assert price_point_key(external_id=42) == "ext_42"


@pytest.mark.parametrize("none", [None, "", "  "])
def test_without_an_external_id_it_is_a_hash_of_the_facts(none: str | None) -> None:
    facts = ["https://example.org/item/7", "1909-s vdb lincoln cent", 125_000, "2026-01-31", "sold"]
    expected = "hash_" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    assert price_point_key(external_id=none, **POINT) == expected


@pytest.mark.parametrize(
    "same",
    [
        {"url": "HTTPS://Example.ORG/item/7?other=2"},
        {"title": "\t1909-S VDB LINCOLN\n cent "},
        {"day": "2026-01-31"},
        {"day": datetime(2026, 1, 31, 23, 59, tzinfo=UTC)},
        {"price_type": "SOLD"},
    ],
)
def test_what_does_not_matter_does_not_change_the_key(same: dict[str, Any]) -> None:
    assert price_point_key(**{**POINT, **same}) == price_point_key(**POINT)


@pytest.mark.parametrize("part", POINT)
def test_what_matters_changes_the_key(part: str) -> None:
    for other in DIFFERENT[part]:
        assert price_point_key(**{**POINT, part: other}) != price_point_key(**POINT)
    with pytest.raises(ValueError, match=f"no {part}"):
        price_point_key(**{**POINT, part: None})


@pytest.mark.parametrize("odd", [{"cents": 1.5}, {"cents": True}, {"day": "31.1.2026"}, {"url": "https://[x/"}])
def test_a_part_that_cannot_be_read_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(odd))):
        price_point_key(**{**POINT, **odd})


@given(st.lists(words, min_size=1, max_size=5), st.sampled_from([" ", "  ", "\n", " \t "]), st.booleans())
def test_a_titles_spacing_and_case_never_matter(title: list[str], gap: str, upper: bool) -> None:
    one = " ".join(title)
    # Characters whose upper case folds differently are another letter, not another case.
    other = one.upper() if upper and one.upper().casefold() == one.casefold() else one
    key = price_point_key(**{**POINT, "title": one})
    assert price_point_key(**{**POINT, "title": gap + gap.join(other.split(" ")) + gap}) == key
    assert len(key) == 21 and set(key[5:]) <= set(string.hexdigits.lower())


@given(words, words, words, words)
def test_no_part_can_be_taken_for_another(title: str, kind: str, other_title: str, other_kind: str) -> None:
    def key(title: str, kind: str) -> str:
        return price_point_key(**{**POINT, "title": title, "price_type": kind})

    def shown(text: str) -> str:
        return price_point_key(**{**POINT, "title": text})

    same = shown(title) == shown(other_title) and shown(kind) == shown(other_kind)
    assert (key(title, kind) == key(other_title, other_kind)) == same
