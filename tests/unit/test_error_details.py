"""An exception's `details` are stored with the error, whatever they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import payload
from holdfast.model.outcome import describe


class Detailed(Exception):
    def __init__(self, details: Any) -> None:
        super().__init__("m")
        self.details = details


class Broken(Exception):
    @property
    def details(self) -> Any:
        raise RuntimeError("no")


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no")


def details(value: Any) -> Any:
    result = describe(Detailed(value), 1000)
    data = msgspec.json.encode(result)
    payload.check_limits(data, "an error", 80_000, 100)
    return result.get("details")


def test_a_mapping_is_kept() -> None:
    assert details({"a": 1, "b": [1.5, None, True, "x"], 3: {"c": "d"}}) == {
        "a": 1,
        "b": [1.5, None, True, "x"],
        "3": {"c": "d"},
    }


@pytest.mark.parametrize("value", [None, {}, "text", 7, [1], lambda: {"a": 1}])
def test_what_is_no_mapping_is_left_out(value: Any) -> None:
    assert details(value) is None


def test_an_error_without_details_has_none() -> None:
    assert "details" not in describe(ValueError("x"), 1000)


def test_what_cannot_be_read_is_reported_as_such() -> None:
    assert describe(Broken(), 1000)["details"] == {"left_out": "details cannot be shown: RuntimeError"}
    assert details({"a": Odd()}) == {"left_out": "details cannot be shown: RuntimeError"}


def test_what_is_too_large_is_left_out() -> None:
    assert "more than 65536" in details({"a": ["x" * 60_000] * 2})["left_out"]
    assert len(details({str(n): n for n in range(5000)})) == 1000


def test_a_circle_ends() -> None:
    round_: dict[str, Any] = {}
    round_["again"] = round_
    assert details(round_) is not None


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(st.characters()), json_like, max_size=3))
def test_all_details_can_be_stored(value: dict[str, Any]) -> None:
    details(value)
