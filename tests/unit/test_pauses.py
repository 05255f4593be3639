"""How long a worker pauses: after claims that found nothing, while it sleeps, and between polls for cancels."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.model.clock import Clock
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.jobs import ClaimInfo
from holdfast.worker.backoff import BUSY_CLAIMS, EMPTY_CLAIMS, LONGEST, Backoff
from holdfast.worker.cancel import POLL_INTERVAL, CancelPoll
from holdfast.worker.claim_size import LEAVE_ABOVE, ClaimSize, Rate
from holdfast.worker.prefetch import Lease, PrefetchBuffer
from holdfast.worker.sleeper import SHORT_WAITS, Sleeper
from holdfast.worker.wakeup import Wakeup


class Time:
    """A clock that a test moves, without jitter."""

    def __init__(self) -> None:
        self.now = 100.0
        self.clock = Clock(lambda: self.now, lambda low, high: high)


def after(claims: int, **info: Any) -> Backoff:
    backoff = Backoff(Time().clock)
    for _ in range(claims):
        backoff.note(ClaimInfo(**info), 0)
    return backoff


# -- backoff


def test_claims_that_another_one_holds_up_pause_longer_each_time_and_never_longer_than_a_tenth_of_a_second() -> None:
    pauses = [after(claims, busy=True).pause() for claims in (0, 1, 2, 3, 50, 5000)]
    assert pauses == [0.0, 0.002, 0.004, 0.008, LONGEST, LONGEST]


def test_a_claim_with_the_ring_ends_the_backoff() -> None:
    backoff = after(5, busy=True)
    assert backoff.held_up
    backoff.note(ClaimInfo(), 0)
    assert backoff.pause() == 0 and not backoff.held_up


def test_a_ring_that_is_held_for_long_no_longer_holds_up_a_run_until_idle() -> None:
    assert after(BUSY_CLAIMS - 1, busy=True).held_up and not after(BUSY_CLAIMS, busy=True).held_up


def test_claims_that_report_more_and_find_nothing_pause_after_a_few_however_long_that_lasts() -> None:
    pauses = [after(claims, more=True).pause() for claims in (EMPTY_CLAIMS, EMPTY_CLAIMS + 1, EMPTY_CLAIMS + 3, 5000)]
    assert pauses == [0.0, 0.002, 0.008, LONGEST]
    backoff = after(100, more=True)
    backoff.note(ClaimInfo(more=True), 1)
    assert backoff.pause() == 0, "it found a job"


# -- the size of claims


def test_the_rate_follows_the_last_tenth_of_a_second() -> None:
    time = Time()
    rate = Rate(time.clock)
    time.now += 0.1
    rate.update(50)
    assert rate.value == pytest.approx(500)
    time.now += 0.01
    rate.update(60)
    assert rate.value == pytest.approx(500), "too soon to measure"
    time.now += 10
    rate.update(60)
    assert rate.value == pytest.approx(1, abs=0.5)


def test_the_first_rate_after_an_idle_time_counts_in_full() -> None:
    time = Time()
    rate = Rate(time.clock)
    time.now += 0.025
    rate.update(100)
    assert rate.value == pytest.approx(4000)
    time.now += 0.025
    rate.update(100)
    assert rate.value == pytest.approx(3000), "from then on it is an average"


def test_a_claim_fills_the_slots_and_the_prefetch_time_at_the_present_rate() -> None:
    time, buffer = Time(), PrefetchBuffer()
    size = ClaimSize(Settings(concurrency=10, prefetch=0.5, claim_size=100), buffer, time.clock)
    assert (size.room(), size.free, size.rate_is_high) == (10, 10, False)
    time.now += 0.1
    buffer.started = 100  # 1000 a second
    assert size.room() == 100 and size.rate_is_high and LEAVE_ABOVE < 1000
    assert size.held_with_room() == 10 + 400 - 100, "at most four claims ahead, and no claim for a few jobs"


# -- sleep


class Pauses(Wakeup):
    """A wake-up that records the pauses, and the calls between them."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.woken = False

    async def pause(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self.woken


class Due:
    """A connection whose calls return when the next delayed job is due."""

    def __init__(self, due: float | None = None) -> None:
        self.due = due
        self.calls = 0

    async def run(self, call: Any) -> Any:
        self.calls += 1
        return self.due


def sleeping(**settings: Any) -> tuple[Sleeper, Pauses]:
    pauses = Pauses()
    return Sleeper("w", Settings(poll=4.0, **settings), Calls("holdfast"), pauses, Time().clock), pauses


async def test_a_worker_claims_once_more_before_it_sleeps_and_its_first_waits_are_short() -> None:
    (sleeper, pauses), session = sleeping(), Due()
    assert await sleeper.enter(session) is True  # type: ignore[arg-type]
    for _ in range(4):
        assert await sleeper.enter(session) is False  # type: ignore[arg-type]
        await sleeper.sleep(math.inf)
    assert pauses.seconds == [*SHORT_WAITS, 5.0, 5.0]
    assert session.calls == 1 + len(SHORT_WAITS), "while nothing is due a poll needs no further call"


async def test_a_sleep_ends_when_the_next_job_is_due_or_a_scan_is_affordable() -> None:
    (sleeper, pauses), session = sleeping(), Due(0.5)
    await sleeper.enter(session)  # type: ignore[arg-type]
    for _ in SHORT_WAITS:
        await sleeper.sleep(math.inf)
        await sleeper.enter(session)  # type: ignore[arg-type]
    await sleeper.sleep(math.inf)
    await sleeper.sleep(0.25)
    assert pauses.seconds == [*SHORT_WAITS, 0.5, 0.001]
    calls = session.calls
    await sleeper.enter(session)  # type: ignore[arg-type]
    assert session.calls == calls + 1, "the next due time is read again"


async def test_a_worker_that_was_removed_from_the_sleepers_enters_again_unless_it_does_not_listen() -> None:
    for notify, again in ((True, True), (False, False)):
        (sleeper, _), session = sleeping(notify=notify), Due()
        await sleeper.enter(session)  # type: ignore[arg-type]
        sleeper.check(asleep=True)
        assert await sleeper.enter(session) is False  # type: ignore[arg-type]
        sleeper.check(asleep=False)
        assert await sleeper.enter(session) is again  # type: ignore[arg-type]


# -- cancels


class Requests:
    """A connection whose calls return requests to cancel."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.calls = 0

    async def run(self, call: Any) -> Any:
        self.calls += 1
        return list(self.ids)


def polling(session: Any) -> tuple[CancelPoll, Time, list[set[str]], Any]:
    time, canceled, buffer = Time(), list[set[str]](), PrefetchBuffer()
    buffer.leases[1] = Lease(1, 1, 0.0, 60.0)
    running: Any = buffer.running
    running[object()] = SimpleNamespace(id="a")
    poll = CancelPoll(session, Calls("holdfast"), buffer, lambda ids: canceled.append(set(ids)), time.clock)
    return poll, time, canceled, running


async def test_cancels_are_polled_at_intervals_and_at_once_on_request() -> None:
    session = Requests("a", "b")
    poll, time, canceled, _ = polling(session)
    await poll.look()
    assert session.calls == 0, "not due yet"
    poll.poll_soon()
    await poll.wait(60.0)
    await poll.look()
    assert canceled == [{"a", "b"}]
    time.now += POLL_INTERVAL
    await poll.look()
    await poll.look()
    assert session.calls == 2


async def test_cancels_are_polled_only_while_jobs_run() -> None:
    session = Requests()
    poll, time, canceled, running = polling(session)
    running.clear()
    time.now += POLL_INTERVAL
    await poll.look()
    assert session.calls == 0 and canceled == []
