"""Where scans of plain jobs begin: after the last one claimed, never back, and at the start often enough."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.job import Job
from holdfast.worker.cursor import CHEAP, SCAN_EVERY, SCAN_SHARE, Cursor

FAR = 1000.0  # long after any scan from the start has become due


def job(run_at: float, number: int, queue: str = "a", priority: int = 2, lane: int = 0) -> Job:
    row = (str(uuid.UUID(int=number)), 1, "t", "{}", 1, 5, queue, priority, None, run_at, None, None, lane, None, None)
    return Job(row)


def place(run_at: float, number: int) -> list[Any]:
    return [run_at, str(uuid.UUID(int=number))]


def learned(*jobs: Job, enough: bool = True, now: float = 0.0, took: float = 0.0) -> Cursor:
    """Return a cursor after one scan from the start."""
    cursor = Cursor()
    assert cursor.hint(now) is None
    cursor.learn(jobs, enough=enough, began=now - took, now=now)
    return cursor


def hinted(cursor: Cursor, now: float = 0.0) -> Any:
    return json.loads(cursor.hint(now) or "null")


def test_a_new_worker_begins_at_the_start() -> None:
    cursor = Cursor()
    assert cursor.from_start and cursor.hint(0.0) is None and cursor.affordable_in(0.0) == 0


def test_a_claim_begins_after_the_last_job_of_each_queue_and_priority() -> None:
    cursor = learned(job(1, 1, "a", 0), job(2, 2, "a", 0), job(5, 7, "b", 0), job(1, 3, "a", 2), job(1, 4, "b", 2))
    assert hinted(cursor) == {"a/0": place(2, 2), "b/0": place(5, 7), "a/2": place(1, 3), "b/2": place(1, 4)}
    assert not cursor.from_start


def test_jobs_of_tenants_and_under_limits_have_no_cursor() -> None:
    assert hinted(learned(job(1, 1), job(9, 9, lane=7))) == {"a/2": place(1, 1)}
    assert hinted(learned(job(9, 9, lane=7))) is None


def test_a_worker_without_a_mark_begins_at_the_start() -> None:
    cursor = learned()
    assert cursor.hint(0.0) is None and cursor.from_start


def test_ids_decide_within_one_moment() -> None:
    cursor = learned(job(1, 7))
    for number, after in ((5, 7), (9, 9)):
        cursor.hint(0.0)
        cursor.learn([job(1, number)], enough=True, began=0.0, now=0.0)
        assert hinted(cursor) == {"a/2": place(1, after)}


def test_a_queue_of_which_nothing_was_found_keeps_its_place() -> None:
    cursor = learned(job(1, 1, "a"), job(1, 2, "b"))
    cursor.hint(0.0)
    cursor.learn([job(2, 3, "b")], enough=True, began=0.0, now=0.0)
    assert hinted(cursor) == {"a/2": place(1, 1), "b/2": place(2, 3)}


def test_a_scan_from_the_start_forgets_what_it_did_not_find() -> None:
    cursor = learned(job(5, 5, "a"), job(5, 6, "b"))
    assert cursor.hint(0.0, from_start=True) is None
    cursor.learn([job(1, 1, "a")], enough=True, began=0.0, now=0.0)
    assert hinted(cursor) == {"a/2": place(1, 1)}, "a job that came back is not behind the cursor again"


batches = st.lists(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 50), st.sampled_from("ab"), st.integers(0, 3)), max_size=8),
    max_size=12,
)


@settings(max_examples=150)
@given(batches)
def test_a_cursor_never_goes_back_and_never_beyond_what_was_claimed(given_batches: list[list[Any]]) -> None:
    """In whatever order a claim returns its jobs, as long as those of a queue and priority are together."""
    cursor, before = learned(job(-100, 1, "a", 0)), {"a/0": place(-100, 1)}
    claimed = {"a/0": [place(-100, 1)]}
    for batch in given_batches:
        ordered = sorted(batch, key=lambda each: (each[3], each[2], each[0], each[1]))
        for run_at, number, queue, priority in ordered:
            claimed.setdefault(f"{queue}/{priority}", []).append(place(run_at, number))
        assert cursor.hint(0.0) is not None
        cursor.learn([job(*each) for each in ordered], enough=True, began=0.0, now=0.0)
        after = hinted(cursor)
        assert after == {where: max(places) for where, places in claimed.items()}
        assert all(after[where] >= at for where, at in before.items())
        before = after


# -- how often a scan begins at the start


def test_while_claims_are_filled_the_start_is_looked_at_once_a_second() -> None:
    cursor = learned(job(1, 1))
    assert cursor.hint(SCAN_EVERY - 0.01) is not None
    assert cursor.hint(SCAN_EVERY) is None and cursor.from_start


def test_a_claim_that_found_less_than_its_limit_is_followed_by_one_from_the_start() -> None:
    cursor = learned(job(1, 1))
    assert cursor.hint(0.1) is not None
    cursor.learn([job(2, 2)], enough=False, began=0.1, now=0.1)
    assert cursor.affordable_in(0.1) == 0
    assert cursor.hint(0.1) is None and cursor.from_start


@pytest.mark.parametrize("enough", [True, False])
def test_scans_from_the_start_never_take_more_than_a_twentieth_of_the_time(enough: bool) -> None:
    took = 0.5
    cursor = learned(job(1, 1), enough=enough, now=took, took=took)
    again = took + (took - CHEAP) * SCAN_SHARE
    assert cursor.hint(again - 0.01) is not None
    assert cursor.affordable_in(again - 0.01) == pytest.approx(0.01)
    assert cursor.hint(again) is None


def test_a_scan_that_took_no_longer_than_any_claim_costs_nothing() -> None:
    cursor = learned(job(1, 1), enough=False, now=CHEAP, took=CHEAP)
    assert cursor.hint(CHEAP) is None


def test_a_claim_that_began_at_its_place_does_not_change_when_a_scan_is_due() -> None:
    cursor = learned(job(1, 1))
    for n in range(1, 10):
        assert cursor.hint(n / 10) is not None
        cursor.learn([job(n, n)], enough=True, began=0.0, now=n / 10 + FAR)
    assert cursor.hint(SCAN_EVERY) is None


def test_a_scan_from_the_start_can_be_requested_at_any_time() -> None:
    cursor = learned(job(1, 1), now=10.0, took=10.0)
    assert cursor.hint(10.0, from_start=True) is None
    assert cursor.from_start and cursor.affordable_in(10.0) == 0
