"""Payloads: hostile values are refused with InvalidPayload, all others come back equal."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidPayload
from holdfast.model import payload
from holdfast.model.signature import Signature


def untyped(value): ...


def typed(value: dict[str, float]) -> None: ...


ANY, FLOATS = Signature("any", untyped), Signature("floats", typed)
LIMITS = {"max_size": 1_048_576, "max_depth": 100}

# Everything a hostile caller can write in Python: lone surrogates, NUL, numbers without a JSON form, big integers.
characters = st.characters(blacklist_categories=()) | st.sampled_from("\x00\ud800\udfff\\u0000\"'\u2028")
texts = st.text(characters, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(10**400), 10**400) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def there_and_back(value: Any) -> Any:
    """Return what the handler gets of a value, or raise InvalidPayload."""
    data = ANY.encode((value,), {}, **LIMITS)
    assert len(data) <= LIMITS["max_size"]
    json.loads(data)
    (found,), _ = ANY.decode(data)
    return found


@settings(max_examples=400, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(values)
@example(float("nan"))
@example([float("inf")])
@example({"a": float("-inf")})
@example("\x00")
@example("\\u0000")
@example("\\\x00")
@example({"\x00": 1})
@example({"\ud800": 1})
@example(2**63)
@example(2**64 - 1)
@example(2**64)
@example(-(2**63) - 1)
@example(10**5000)
@example(True)
@example(-0.0)
@example(1e308)
def test_a_value_is_refused_or_comes_back_equal(value: Any) -> None:
    try:
        found = there_and_back(value)
    except InvalidPayload:
        return
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    ["\x00", "a\x00", "\\\x00", "\\\\\x00", ["\x00"], {"a\x00": 1}, {"a": {"b": ["c\x00d"]}}, "\x00" * 1000],
    ids=ascii,
)
def test_a_nul_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="contains a NUL character"):
        there_and_back(value)


@pytest.mark.parametrize("value", ["\\u0000", "\\\\u0000", "u0000", "\\", "\\" * 999, "0000", "\\\\\\u0000"], ids=ascii)
def test_text_that_only_looks_like_a_nul_is_carried(value: str) -> None:
    assert there_and_back(value) == value
    assert there_and_back({value: [value]}) == {value: [value]}


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('\\u0\x00a"'), max_size=12))
def test_a_text_is_refused_if_and_only_if_it_holds_a_nul(text: str) -> None:
    if "\x00" in text:
        with pytest.raises(InvalidPayload, match="NUL"):
            there_and_back(text)
    else:
        assert there_and_back(text) == text


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", ["\udc80"], {"\ud83d": 1}], ids=ascii)
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="cannot be encoded as JSON"):
        there_and_back(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_number_that_json_has_not_is_refused_by_a_typed_handler(value: float) -> None:
    with pytest.raises(InvalidPayload):
        FLOATS.encode(({"a": value},), {}, **LIMITS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_number_that_json_has_not_does_not_become_none(value: float) -> None:
    with pytest.raises(InvalidPayload):
        there_and_back(value)


def nested(depth: int, *, arrays: bool = True) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value] if arrays else {"a": value}
    return value


@pytest.mark.parametrize("arrays", [True, False], ids=["arrays", "objects"])
@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_nesting_beyond_all_bounds_is_refused(depth: int, arrays: bool) -> None:
    with pytest.raises(InvalidPayload, match="nested"):
        there_and_back(nested(depth, arrays=arrays))


@pytest.mark.parametrize("arrays", [True, False], ids=["arrays", "objects"])
def test_the_limit_of_nesting_is_exact(arrays: bool) -> None:
    # The payload itself is one level: the object of the arguments.
    assert there_and_back(nested(99, arrays=arrays)) == nested(99, arrays=arrays)
    with pytest.raises(InvalidPayload, match="is nested more than 100 levels deep"):
        there_and_back(nested(100, arrays=arrays))


def test_brackets_in_texts_are_no_nesting() -> None:
    for text in ("[" * 5000, "{" * 5000, '"[' * 500, '\\"[' * 500, "\\" * 501 + '"['):
        assert there_and_back([text]) == [text]
        assert there_and_back({text: 1}) == {text: 1}


def test_breadth_is_no_nesting() -> None:
    wide = [[1], {"a": []}] * 400
    assert there_and_back(wide) == wide


def test_the_limit_of_size_is_exact_and_named() -> None:
    fits = "x" * (LIMITS["max_size"] - len('{"value":""}'))
    assert there_and_back(fits) == fits
    with pytest.raises(
        InvalidPayload, match=r"has 1,048,577 bytes, more than the 1,048,576 allowed.*HOLDFAST_MAX_PAYLOAD"
    ):
        there_and_back(fits + "x")


def test_ten_megabytes_are_refused() -> None:
    with pytest.raises(InvalidPayload, match="10,000,012 bytes"):
        there_and_back("x" * 10_000_000)


def test_size_is_counted_in_bytes_not_in_characters() -> None:
    with pytest.raises(InvalidPayload, match="bytes, more than"):
        there_and_back("ü" * 600_000)


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: 1, 1j], ids=lambda v: type(v).__name__)
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="cannot be encoded as JSON"):
        there_and_back(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidPayload, match="nested too deeply"):
        there_and_back(value)


# -- dedupe keys


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=6))
def test_sorted_json_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    try:
        data = payload.encode(value, "x")
        back = payload.encode(dict(reversed(value.items())), "x")
    except InvalidPayload:
        return
    assert payload.sorted_json(data) == payload.sorted_json(back)
    assert json.loads(payload.sorted_json(data)) == value


def test_sorted_json_sorts_at_every_depth() -> None:
    assert payload.sorted_json(b'{"b": [{"z": 1, "a": 2}], "a": "\\u00fc"}') == '{"a":"ü","b":[{"a":2,"z":1}]}'


def test_a_key_is_task_tenant_and_text() -> None:
    assert payload.dedupe_key("mail", None, "x") == "mail::global::x"
    assert payload.dedupe_key("mail", "acme", '{"a":1}') == 'mail::acme::{"a":1}'


def test_a_long_key_text_gives_way_to_its_hash() -> None:
    short, long = payload.dedupe_key("t", None, "x" * 1000), payload.dedupe_key("t", None, "x" * 1001)
    assert short.endswith("x" * 1000)
    assert long.startswith("t::global::sha256:")
    assert len(long) < 100
    assert long != payload.dedupe_key("t", None, "x" * 1002)
