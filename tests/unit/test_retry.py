"""Retry policies as values: what they mean, what they refuse, and their JSON form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigurationError, Retry
from holdfast.model.retry import DEFAULT

DAY = 86_400


def delays(policy: Retry, number: int = 8) -> list[float]:
    return [policy.delay(attempt) for attempt in range(1, number + 1)]


def test_a_fixed_policy_waits_the_same_time_always() -> None:
    assert delays(Retry.fixed(300, max_attempts=2), 4) == [300] * 4


def test_an_exponential_policy_doubles_up_to_its_cap() -> None:
    assert delays(Retry.exponential(base=1, cap=60)) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert delays(Retry.exponential(base=2, cap=1024), 11) == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]


def test_an_exponential_policy_may_grow_by_another_factor() -> None:
    assert delays(Retry.exponential(base=10, factor=3, cap=1000), 6) == [10, 30, 90, 270, 810, 1000]
    assert delays(Retry.exponential(base=10, factor=1), 3) == [10, 10, 10]


def test_a_table_repeats_its_last_delay() -> None:
    assert delays(Retry.table([1, 10, 60]), 5) == [1, 10, 60, 60, 60]
    assert Retry.table([1, 10, 60]).max_attempts == 4
    assert Retry.table([1, 10, 60], max_attempts=9).max_attempts == 9


def test_none_allows_one_attempt() -> None:
    assert Retry.none().max_attempts == 1
    assert Retry.none().delay(1) == 0


@pytest.mark.parametrize("policy", [Retry.fixed(5), Retry.exponential(5), Retry.table([5, 6])], ids=lambda p: p.kind)
def test_no_attempt_counts_as_the_first(policy: Retry) -> None:
    assert policy.delay(0) == policy.delay(1) == policy.delay(-3) == 5


def test_the_default_is_the_documented_one() -> None:
    assert Retry.exponential(base=2, cap=3600, max_attempts=5, jitter=0.2) == DEFAULT


@given(base=st.floats(0, 1e6), factor=st.floats(1, 100), cap=st.floats(0, 315_360_000), attempt=st.integers(0, 32_000))
def test_no_attempt_is_too_high_for_python_to_compute_its_delay(
    base: float, factor: float, cap: float, attempt: int
) -> None:
    assert 0 <= Retry.exponential(base, factor=factor, cap=cap).delay(attempt) <= cap


@given(base=st.floats(0, 1e6), factor=st.floats(1, 100), cap=st.floats(0, 315_360_000), attempt=st.integers(1, 31_999))
def test_an_exponential_policy_never_becomes_more_impatient(
    base: float, factor: float, cap: float, attempt: int
) -> None:
    policy = Retry.exponential(base, factor=factor, cap=cap)
    assert policy.delay(attempt) <= policy.delay(attempt + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Retry.fixed(5, max_attempts=0), "max_attempts must be from 1 to 32000, got 0"),
        (lambda: Retry.fixed(5, max_attempts=32_001), "max_attempts must be from 1 to 32000, got 32001"),
        (lambda: Retry.fixed(-1), "retry delays must be from 0 to .*-1"),
        (lambda: Retry.fixed(float("nan")), "retry delays must be from 0 to .*nan"),
        (lambda: Retry.fixed(float("inf")), "retry delays must be from 0 to .*inf"),
        (lambda: Retry.table([1, 2, 1e9]), "retry delays must be from 0 to .*1000000000"),
        (lambda: Retry.table([]), "needs at least one; use Retry.none"),
        (lambda: Retry.table([1], max_attempts=0), "max_attempts must be from 1 to 32000, got 0"),
        (lambda: Retry.exponential(1, cap=-1), "capped at -1"),
        (lambda: Retry.exponential(1, factor=0.5), "factor between retry delays must be from 1 to 100, got 0.5"),
        (lambda: Retry.exponential(1, factor=101), "factor between retry delays must be from 1 to 100, got 101"),
        (lambda: Retry.fixed(5, jitter=1.5), "jitter must be a number from 0 to 1, got 1.5"),
        (lambda: Retry.fixed(5, jitter=-0.1), "jitter must be a number from 0 to 1, got -0.1"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_its_value(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_a_policy_travels_as_plain_json() -> None:
    assert Retry.fixed(5, jitter=0.1).as_json() == {"kind": "fixed", "delay": 5.0, "cap": 315_360_000.0, "jitter": 0.1}
    document = Retry.exponential(1, cap=60, factor=3).as_json()
    assert document == {"kind": "exponential", "base": 1.0, "factor": 3.0, "cap": 60.0, "jitter": 0.0}
    assert Retry.table([1, 2]).as_json()["delays"] == [1.0, 2.0]
    assert Retry.none().as_json()["kind"] == "none"
    for policy in (DEFAULT, Retry.table([1]), Retry.fixed(2), Retry.none()):
        assert json.loads(json.dumps(policy.as_json())) == policy.as_json()


def test_equal_policies_are_equal_and_cannot_be_changed() -> None:
    assert Retry.fixed(5) == Retry.fixed(5.0)
    assert hash(Retry.table([1, 2])) == hash(Retry.table([1, 2]))
    with pytest.raises(AttributeError):
        Retry.fixed(5).max_attempts = 7  # type: ignore[misc]


@pytest.mark.parametrize("rule", [3, None, int, ValueError()])
def test_an_error_that_is_neither_a_type_nor_a_code_is_refused(rule: object) -> None:
    with pytest.raises(ConfigurationError, match="by exception type or by code"):
        Retry.none().on(fail=[rule])


def test_the_first_rule_that_matches_counts() -> None:
    policy = Retry.fixed(1).on(retry=[OSError], fail=[ConnectionError], dead=["GONE"])
    assert policy.outcome(TimeoutError(), None) == "error"
    assert policy.outcome(ConnectionError(), None) == "failed"
    assert policy.outcome(ConnectionError(), "GONE") == "dead"
    assert policy.outcome(ValueError(), None) == "failed"
    assert Retry.fixed(1).outcome(ValueError(), None) is None
    assert policy.as_json() == Retry.fixed(1).as_json()
