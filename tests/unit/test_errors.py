"""Errors as they are stored: whatever a handler raises, describing it cannot fail, and PostgreSQL can keep it."""

from __future__ import annotations

import enum
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import (
    Cancel,
    ConfigurationError,
    DatabaseUnavailable,
    Dead,
    DuplicateJob,
    Fail,
    HoldfastError,
    InvalidPayload,
    JobFailed,
    RetryLater,
    SchemaError,
    Snooze,
    UnknownTask,
    UsageError,
)
from holdfast.model.outcome import clean, describe

LONGEST = 16_384


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def check_storable(details: dict[str, Any]) -> None:
    """Check that jsonb accepts it: no NUL, no lone surrogate, not too long."""
    text = json.dumps(details, ensure_ascii=False)
    text.encode("utf-8")
    assert {"type", "message"} <= details.keys()
    assert ("traceback" in details) == (details["type"] != "Cancel"), "only a cancellation has nothing to trace"
    assert all(isinstance(value, str) and "\x00" not in value for value in details.values())
    assert len(details.get("traceback", "")) <= LONGEST
    assert len(details["message"]) <= LONGEST // 4
    assert len(details["type"]) <= 200


def test_an_error_is_its_type_its_text_and_its_traceback() -> None:
    details = describe(caught(ValueError("no such thing")), LONGEST)
    assert (details["type"], details["message"]) == ("ValueError", "no such thing")
    assert "Traceback (most recent call last)" in details["traceback"]
    assert "raise error" in details["traceback"]
    assert "code" not in details


def test_a_type_of_another_module_is_named_in_full() -> None:
    assert describe(json.JSONDecodeError("m", "d", 0), LONGEST)["type"] == "json.decoder.JSONDecodeError"


def test_an_error_that_was_never_raised_is_described_too() -> None:
    check_storable(describe(KeyError("x"), LONGEST))


@pytest.mark.parametrize(
    "text",
    ["\x00", "a\x00b" * 10, "\ud800", "\udfff tail", "\x00\ud800\u2028", "\\u0000", "\x1b[31m", "", "ü" * 50],
    ids=ascii,
)
def test_hostile_text_is_cleaned(text: str) -> None:
    details = describe(caught(RuntimeError(text)), LONGEST)
    check_storable(details)
    readable = "".join(c for c in text if c.isprintable() and not 0xD800 <= ord(c) <= 0xDFFF)
    assert not readable or readable[0] in details["message"]


@pytest.mark.parametrize(
    "text", ["x" * 10_000_000, "\x00" * 1_000_000, "\ud800" * 1_000_000, "ü\x00" * 500_000], ids=lambda t: ascii(t[:2])
)
def test_a_huge_text_is_cut_in_the_middle(text: str) -> None:
    details = describe(caught(RuntimeError(f"begin{text}end")), LONGEST)
    check_storable(details)
    assert details["message"].startswith("begin")
    assert details["message"].endswith("end")
    assert "characters cut" in details["message"]


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(st.characters(blacklist_categories=()) | st.just("\x00"), max_size=400), longest=st.integers(100, 300)
)
@example(text="\x00" * 100, longest=100)
@example(text="\ud800" * 300, longest=300)
def test_cleaned_text_is_never_longer_than_its_limit(text: str, longest: int) -> None:
    result = clean(text, longest)
    assert len(result) <= longest
    assert "\x00" not in result
    result.encode("utf-8")


@settings(max_examples=100)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=90))
def test_text_that_is_clean_and_short_is_left_as_it_is(text: str) -> None:
    assert clean(text, 100) == text


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text today")


class BrokenRepr(Exception):
    def __str__(self) -> str:
        return str(self.__repr__())

    def __repr__(self) -> str:
        raise ZeroDivisionError


class WrongStr(Exception):
    def __str__(self) -> str:
        return 5  # noqa: PLE0307 - broken on purpose


class EndlessStr(Exception):
    def __str__(self) -> str:
        return str(self)


class BrokenCode(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError("no code today")


class BrokenNotes(Exception):
    __notes__ = 5


class StrangeCode(Exception):
    def __init__(self, code: object) -> None:
        super().__init__("x")
        self.code = code


@pytest.mark.parametrize("kind", [BrokenStr, BrokenRepr, WrongStr, EndlessStr, BrokenCode, BrokenNotes])
def test_an_exception_that_is_broken_itself_is_described(kind: type[Exception]) -> None:
    details = describe(caught(kind("x")), LONGEST)
    check_storable(details)
    assert details["type"].endswith(kind.__name__)


class Http(enum.IntEnum):
    FORBIDDEN = 403


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("E42", "E42"),
        (403, "403"),
        (Http.FORBIDDEN, "403"),
        ("\x00", "\\x00"),
        (None, None),
        (True, None),
        (b"x", None),
    ],
    ids=ascii,
)
def test_a_code_is_kept_when_it_is_text_or_a_number(code: object, expected: str | None) -> None:
    details = describe(caught(StrangeCode(code)), LONGEST)
    check_storable(details)
    assert details.get("code") == expected


def test_the_chain_of_causes_is_kept() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        details = describe(error, LONGEST)
    assert "first" in details["traceback"]
    assert "direct cause" in details["traceback"]
    assert details["message"] == "second"


def test_an_endless_chain_of_causes_is_described() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    check_storable(describe(one, LONGEST))


def test_a_chain_of_a_thousand_causes_is_described() -> None:
    error: Exception = ValueError("root")
    for number in range(1000):
        following = ValueError(f"number {number}")
        following.__cause__ = error
        error = following
    check_storable(describe(error, LONGEST))


def test_a_deep_recursion_is_described_briefly() -> None:
    def endless() -> None:
        endless()

    try:
        endless()
    except RecursionError as error:
        details = describe(error, LONGEST)
    check_storable(details)
    assert details["type"] == "RecursionError"


def test_a_group_of_errors_is_described_with_its_members() -> None:
    details = describe(caught(ExceptionGroup("several", [ValueError("one"), KeyError("two")])), LONGEST)
    check_storable(details)
    assert "one" in details["traceback"]
    assert "two" in details["traceback"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__)
def test_even_an_exit_is_described(error: BaseException) -> None:
    details = describe(caught(error), LONGEST)
    check_storable(details)
    assert details["type"] == type(error).__name__


@pytest.mark.parametrize(
    ("verdict", "outcome", "after"),
    [
        (RetryLater(30), "error", 30),
        (Snooze(60), "snoozed", 60),
        (Fail("never", code="GONE"), "failed", None),
        (Dead("blocked", code="403"), "dead", None),
        (Cancel(), "canceled", None),
    ],
    ids=lambda v: type(v).__name__,
)
def test_each_verdict_names_its_outcome(verdict: Any, outcome: str, after: float | None) -> None:
    assert (verdict.outcome, verdict.after) == (outcome, after)
    details = describe(caught(verdict), LONGEST)
    check_storable(details)
    assert details.get("code") == verdict.code if hasattr(verdict, "code") else True
    assert details["message"]


# -- the tree


def test_every_error_is_a_holdfast_error_and_branches_by_who_must_act() -> None:
    assert issubclass(SchemaError, ConfigurationError)
    assert issubclass(UnknownTask, ConfigurationError)
    assert issubclass(InvalidPayload, UsageError)
    assert issubclass(DuplicateJob, UsageError)
    for kind in (ConfigurationError, UsageError, DatabaseUnavailable, JobFailed):
        assert issubclass(kind, HoldfastError)
        assert not issubclass(kind, tuple({ConfigurationError, UsageError, DatabaseUnavailable, JobFailed} - {kind}))


def test_an_unknown_task_suggests_the_nearest_one() -> None:
    assert re.search(r"no task named 'mial'.*did you mean 'mail'\?", str(UnknownTask("mial", ["mail", "sms"])))
    assert "did you mean" not in str(UnknownTask("zzz", ["mail", "sms"]))
    assert "'x'" in str(UnknownTask("x", []))
