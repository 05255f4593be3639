"""The worker's cursor: a hint that never goes back, and a budget for scans from the beginning (decision 005)."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.worker.claim import CHEAP, FULL_SCAN_EVERY, FULL_SCAN_SHARE, Cursor

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(seconds: float, number: int, queue: str = "default", priority: int = 2) -> tuple[Any, ...]:
    """One row as Calls.claim answers it: of interest are id, queue, priority and run_at."""
    run_at = (NOON + timedelta(seconds=seconds)).timestamp()
    return (str(uuid.UUID(int=number)), 1, "t", "{}", 1, 5, queue, priority, None, run_at)


def places(cursor: Cursor) -> dict[str, tuple[datetime, str]]:
    """Where the next claim would begin."""
    cursor.scanned_all(0.0, 0.0)
    cursor.found(True, 0.0)
    hint = json.loads(cursor.hint(0.0) or "{}")
    return {key: (datetime.fromtimestamp(at, UTC), id_) for key, (at, id_) in hint.items()}


def place(seconds: float, number: int) -> tuple[datetime, str]:
    return NOON + timedelta(seconds=seconds), str(uuid.UUID(int=number))


def test_a_new_cursor_begins_at_the_beginning() -> None:
    cursor = Cursor()
    assert cursor.hint(0.0) is None
    cursor.scanned_all(0.0, 0.01)
    assert cursor.hint(0.1) is None


def test_a_cursor_stands_after_the_last_job_of_each_queue_and_priority() -> None:
    cursor = Cursor()
    cursor.advance([row(1, 1, "a", 0), row(2, 2, "a", 0), row(1, 3, "a", 2), row(1, 4, "b", 2)])
    assert places(cursor) == {"a/0": place(2, 2), "a/2": place(1, 3), "b/2": place(1, 4)}


def test_a_cursor_tells_ids_apart_within_one_moment() -> None:
    cursor = Cursor()
    cursor.advance([row(1, 7)])
    cursor.advance([row(1, 5)])
    assert places(cursor) == {"default/2": place(1, 7)}
    cursor.advance([row(1, 9)])
    assert places(cursor) == {"default/2": place(1, 9)}


batches = st.lists(
    st.lists(
        st.tuples(st.integers(-50, 50), st.integers(1, 50), st.sampled_from(["a", "b"]), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(batches)
def test_a_cursor_never_goes_back_and_never_beyond_what_was_claimed(given_batches: list[list[Any]]) -> None:
    cursor, before = Cursor(), {}
    furthest: dict[str, tuple[datetime, str]] = {}
    for batch in given_batches:
        # A claim answers in the order priority, run_at, id.
        rows = [row(s, n, q, p) for s, n, q, p in sorted(batch, key=lambda each: (each[3], each[0], each[1]))]
        for each, (s, n, q, p) in zip(rows, sorted(batch, key=lambda each: (each[3], each[0], each[1])), strict=True):
            assert each[6:8] == (q, p)
            key = f"{q}/{p}"
            furthest[key] = max(furthest.get(key, place(s, n)), place(s, n))
        cursor.advance(rows)
        after = places(cursor)
        for key, at in before.items():
            assert after[key] >= at
        for key, at in after.items():
            assert at <= furthest[key]
        before = after


# -- the budget of scans from the beginning


def standing() -> Cursor:
    """A cursor in the middle of a busy queue."""
    cursor = Cursor()
    cursor.advance([row(1, 1)])
    cursor.found(True, 0.0)
    return cursor


def test_a_scan_from_the_beginning_comes_about_once_a_second() -> None:
    cursor = standing()
    assert cursor.hint(100.0) is None
    cursor.scanned_all(100.0, 100.001)
    assert cursor.hint(100.001 + 0.74 * FULL_SCAN_EVERY) is not None
    assert cursor.hint(100.001 + 1.26 * FULL_SCAN_EVERY) is None


def test_a_dear_scan_comes_more_rarely() -> None:
    cursor = standing()
    cursor.scanned_all(100.0 - CHEAP, 101.0)
    assert cursor.hint(101.0 + FULL_SCAN_SHARE - 0.01) is not None
    assert cursor.hint(101.0 + FULL_SCAN_SHARE + 0.01) is None


def test_a_queue_that_looks_empty_is_scanned_as_soon_as_that_is_affordable() -> None:
    cursor = standing()
    cursor.scanned_all(100.0, 100.0)
    assert cursor.found(False, 100.3) <= 0
    assert cursor.hint(100.3) is None


def test_a_dear_scan_is_not_repeated_early_because_the_queue_looks_empty() -> None:
    cursor = standing()
    cursor.scanned_all(100.0 - CHEAP, 101.0)
    for now in (101.5, 102.0, 110.0):
        assert abs(cursor.found(False, now) - (101.0 + FULL_SCAN_SHARE - now)) < 1e-6
        assert cursor.hint(now) is not None


costs = (st.floats(0, 0.06) | st.floats(0, 3)).map(lambda x: round(x, 4))
steps = st.lists(st.tuples(st.sampled_from(["claim", "found end"]), st.floats(0, 0.3) | st.floats(0, 3)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(cost=costs, steps=steps)
@example(cost=0.04, steps=[("found end", 0.01)] * 8 + [("claim", 0.01)])
def test_scans_from_the_beginning_never_take_more_than_their_share(cost: float, steps: list[tuple[str, float]]) -> None:
    """Whatever a worker does in between, also when it is woken early: the next scan begins no sooner than twenty times
    the last one's duration after its end (docs/decisions/005)."""
    cursor = standing()
    now = 100.0
    cursor.scanned_all(now, now + cost)
    now = ended = now + cost
    for step, seconds in steps:
        now += seconds
        if step == "found end":
            cursor.found(False, now)
        elif cursor.hint(now) is None:
            assert now >= ended + FULL_SCAN_SHARE * (cost - CHEAP) - 1e-6, (
                f"{now - ended:.3f} s after a scan of {cost} s"
            )
            cursor.scanned_all(now, now + cost)
            now = ended = now + cost
