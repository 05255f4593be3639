"""The clock that tests set inside SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, UsageError
from holdfast.testing import Databases, Kit, bind

DAY = timedelta(days=1)
NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)


def near(one: datetime, other: datetime) -> bool:
    return abs(one - other) < timedelta(seconds=10)


def test_travelling_makes_delayed_jobs_due(kit: Kit) -> None:
    @kit.hf.task()
    async def remind() -> None: ...

    remind.using(delay=3 * 86_400).enqueue()
    assert kit.drain() == ()
    kit.clock.travel(2 * DAY)
    assert kit.drain() == ()
    kit.clock.travel(86_400)
    assert len(kit.drain()) == 1


def test_travelling_back_does_not_hide_what_was_enqueued(kit: Kit) -> None:
    @kit.hf.task()
    async def now() -> None: ...

    now.enqueue()
    now.using(delay=0).enqueue()
    kit.clock.travel(-365 * DAY)
    now.enqueue()
    now.enqueue_many([(), ()])
    assert len(kit.drain()) == 5


def test_the_lead_is_not_lost_to_a_time_that_lies_behind(kit: Kit) -> None:
    @kit.hf.task()
    async def soon() -> None: ...

    kit.clock.travel(365 * DAY)
    kit.drain()
    kit.clock.travel(-365 * DAY)
    soon.using(delay=60).enqueue()
    assert len(kit.drain(until=3600)) == 1


def test_every_time_of_a_job_comes_from_the_clock(kit: Kit) -> None:
    @kit.hf.task()
    async def stamp() -> None: ...

    kit.clock.freeze(NEW_YEAR)
    ids = [stamp.enqueue().id, stamp.using(delay=0).enqueue().id, *stamp.enqueue_many([()]).ids]
    kit.drain()
    for info in map(kit.hf.jobs.get, ids):
        assert info is not None
        assert {info.created_at, info.run_at, info.started_at, info.finished_at} == {NEW_YEAR}


def test_set_lets_the_clock_run_on_and_freeze_stops_it(kit: Kit) -> None:
    assert near(kit.clock.set(NEW_YEAR), NEW_YEAR)
    assert kit.clock.now() > NEW_YEAR
    stopped = kit.clock.freeze()
    assert stopped == kit.clock.now() == kit.clock.now()
    assert kit.clock.set(NEW_YEAR) == kit.clock.now() == NEW_YEAR
    assert kit.clock.travel(DAY) == kit.clock.now() == NEW_YEAR + DAY
    assert NEW_YEAR + DAY <= kit.clock.resume() < kit.clock.now()
    assert near(kit.clock.reset(), datetime.now(UTC))


def test_a_time_without_a_zone_is_refused(kit: Kit) -> None:
    with pytest.raises(UsageError, match="2031-01-01 00:00:00 has no time zone"):
        kit.clock.set(datetime(2031, 1, 1))
    with pytest.raises(UsageError, match="no time zone"):
        kit.drain(until=datetime(2031, 1, 1))


@pytest.mark.parametrize("leaves", ["travelled", "frozen"])
def test_each_test_begins_with_the_real_time(kit_dsn: str, opened: Databases, leaves: str) -> None:
    with bind(Holdfast(), kit_dsn, opened) as kit:
        kit.clock.travel(365 * DAY) if leaves == "travelled" else kit.clock.freeze(NEW_YEAR)
    with bind(Holdfast(), kit_dsn, opened) as kit:
        assert near(kit.clock.now(), datetime.now(UTC))


def test_pythons_own_time_is_left_alone(kit: Kit) -> None:
    before = datetime.now(UTC)
    kit.clock.travel(365 * DAY)
    assert near(before, datetime.now(UTC))
