"""Cron text as slots: when they come, what summer time does to them, and which are fired when some were missed."""

from __future__ import annotations

import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigurationError, Cron
from holdfast.model.schedule import MOST, Due
from holdfast.store.schedules import NextSlot
from holdfast.upkeep.timetable import batches, tolerance

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def shown(cron: Cron, since: datetime, number: int) -> list[str]:
    """Return the first slots as the zone's clocks show them."""
    zone = ZoneInfo(cron.zone)
    return [f"{slot.astimezone(zone):%d %H:%M:%S%z}"[:-2] for slot in islice(cron.slots(since), number)]


# -- slots


def test_slots_are_found_at_or_after_a_moment() -> None:
    cron = Cron("*/5 * * * *")
    assert shown(cron, NOON, 3) == ["01 12:00:00+00", "01 12:05:00+00", "01 12:10:00+00"]
    assert shown(cron, NOON + timedelta(microseconds=1), 1) == ["01 12:05:00+00"]
    assert shown(cron, NOON - timedelta(microseconds=1), 1) == ["01 12:00:00+00"]


def test_a_sixth_field_in_front_is_seconds() -> None:
    assert shown(Cron("*/20 * * * * *"), NOON, 3) == ["01 12:00:00+00", "01 12:00:20+00", "01 12:00:40+00"]


def test_a_time_of_day_is_meant_in_the_schedules_zone() -> None:
    assert [slot.hour for slot in islice(Cron("0 3 * * *", "Europe/Berlin").slots(NOON), 2)] == [1, 1]
    assert [slot.hour for slot in islice(Cron("0 3 * * *", "Asia/Tokyo").slots(NOON), 2)] == [18, 18]


def test_days_of_month_and_week_may_be_named_counted_or_the_last() -> None:
    assert shown(Cron("0 0 L * *"), NOON, 2) == ["30 00:00:00+00", "31 00:00:00+00"]
    assert shown(Cron("0 9 * JUL MON#1"), NOON, 1) == ["06 09:00:00+00"]


SPRING = [datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2027, 3, 28, tzinfo=BERLIN)]
AUTUMN = [datetime(2026, 10, 25, tzinfo=BERLIN), datetime(2027, 10, 31, tzinfo=BERLIN)]


@pytest.mark.parametrize("night", SPRING, ids=str)
@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("30 2 * * *", ["03:00+02", "02:30+02"]),  # a skipped time of day comes right after the gap
        ("0,15,30 2 * * *", ["03:00+02", "02:00+02"]),  # and several of them once
        ("0 2,3 * * *", ["03:00+02", "02:00+02", "03:00+02"]),
        ("30 * * * *", ["00:30+01", "01:30+01", "03:30+02", "04:30+02"]),  # repeating slots follow the hours that exist
        ("30 */2 * * *", ["00:30+01", "04:30+02"]),
        ("0 30 2 * * *", ["02:30+02", "02:30+02"]),  # with seconds there is no slot in that night
    ],
)
def test_when_clocks_go_forward(night: datetime, text: str, times: list[str]) -> None:
    found = [f"{s.astimezone(BERLIN):%H:%M%z}"[:-2] for s in islice(Cron(text, "Europe/Berlin").slots(night), 10)]
    assert found[: len(times)] == times


@pytest.mark.parametrize("night", AUTUMN, ids=str)
@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("30 2 * * *", ["02:30+02", "02:30+01"]),  # once in that night; the second is tomorrow's
        ("0 2,3 * * *", ["02:00+02", "03:00+01", "02:00+01"]),
        ("30 * * * *", ["00:30+02", "01:30+02", "02:30+02", "02:30+01", "03:30+01"]),  # repeating: in both hours
        ("0 30 2 * * *", ["02:30+02", "02:30+01", "02:30+01"]),  # with seconds: in both hours, then tomorrow's
    ],
)
def test_when_clocks_go_back(night: datetime, text: str, times: list[str]) -> None:
    found = [f"{s.astimezone(BERLIN):%H:%M%z}"[:-2] for s in islice(Cron(text, "Europe/Berlin").slots(night), 10)]
    assert found[: len(times)] == times


@pytest.mark.parametrize(
    "night", [datetime(2026, 10, 3, 12, tzinfo=UTC), datetime(2026, 4, 4, 12, tzinfo=UTC)], ids=str
)
@pytest.mark.parametrize(
    "text",
    [
        "*/15 * * * *",
        "30 * * * *",
        "45 * * * *",
        "0 * * * *",
        "15 */2 * * *",
        "*/15 1 * * *",
        "*/15 2 * * *",
        "*/15 3 * * *",
        "*/10 5 * * *",
        "0 0 5 * * *",
        "10 45 1 * * *",
        "0 */20 2,5 * * *",
        "30 15 * * * *",
    ],
)
def test_a_repeating_schedule_loses_no_slot_where_clocks_change_by_half_an_hour(night: datetime, text: str) -> None:
    """Compared with a check of the local clock in every minute of that day."""
    zone, fields = "Australia/Lord_Howe", CronSim(text, NOON)
    minutes = [night + timedelta(minutes=n) for n in range(24 * 60)]
    local = [(each, each.astimezone(ZoneInfo(zone))) for each in minutes]
    shown = [each for each, wall in local if wall.hour in fields.hours and wall.minute in fields.minutes]
    expected = [each + second * SECOND for each in shown for second in sorted(fields.seconds)]
    found = takewhile(lambda slot: slot < night + timedelta(days=1), Cron(text, zone).slots(night))
    assert list(found) == expected


def test_a_time_of_day_that_has_passed_is_not_found_again_in_the_repeated_hour() -> None:
    second = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=BERLIN)
    assert shown(Cron("30 2 * * *", "Europe/Berlin"), second, 1) == ["26 02:30:00+01"]


TEXTS = st.sampled_from(
    [
        "* * * * * *",
        "*/7 * * * * *",
        "* * * * *",
        "*/5 * * * *",
        "30 * * * *",
        "30 2 * * *",
        "0,15,30,45 2,3 * * *",
        "0 30 2 * * *",
        "15 */3 * * *",
        "0 0 * * *",
        "0 0 1 * *",
        "0 12 * * MON",
        "59 23 L * *",
        "0 0 29 2 *",
        "30 1-3 * * SUN",
        "0 9 LW * *",
    ]
)
# Clocks change at 02:00, at midnight, by half an hour, and never.
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Kolkata"]
)
POLICIES = st.sampled_from(["skip", "once", "all"])
MOMENTS = st.one_of(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),
    *(
        st.datetimes(n.replace(tzinfo=None), n.replace(tzinfo=None) + timedelta(hours=5), timezones=st.just(BERLIN))
        for n in SPRING + AUTUMN
    ),
)


@given(text=TEXTS, zone=ZONES, since=MOMENTS)
def test_slots_strictly_grow_and_none_is_before_the_moment(text: str, zone: str, since: datetime) -> None:
    found = list(islice(Cron(text, zone).slots(since), 50))
    assert found[0] >= since
    assert all(a < b for a, b in pairwise(found))


@given(text=TEXTS, zone=ZONES, since=MOMENTS, step=st.integers(0, 30), extra=st.sampled_from([0, 1, 999_999]))
def test_wherever_one_looks_from_the_same_slots_are_found(
    text: str, zone: str, since: datetime, step: int, extra: int
) -> None:
    cron = Cron(text, zone)
    found = list(islice(cron.slots(since), 40))
    start = found[step] + timedelta(microseconds=extra)
    expected = [slot for slot in found if slot >= start][:5]
    assert list(islice(cron.slots(start), 5))[: len(expected)] == expected


# -- which are fired


def due(text: str, missed: Any, since: datetime, now: datetime, late: float = 10) -> Due:
    return Cron(text, missed=missed).due(since, now, late)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_in_time_each_policy_fires_the_slot_and_goes_on_to_the_next(missed: str) -> None:
    assert due("* * * * *", missed, NOON, NOON + 0.003 * SECOND) == Due([NOON], NOON + 60 * SECOND)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_from_a_moment_that_is_no_slot_nothing_is_fired_before_the_next(missed: str) -> None:
    assert due("* * * * *", missed, NOON + 5 * SECOND, NOON + 7 * SECOND) == Due([], NOON + 60 * SECOND)


def test_after_an_hour_all_fires_each_slot_once_the_latest_and_skip_none() -> None:
    now = NOON + 3600 * SECOND + 30 * SECOND
    missed = [NOON + 60 * n * SECOND for n in range(61)]
    then = NOON + 3660 * SECOND
    assert due("* * * * *", "all", NOON, now) == Due(missed, then)
    assert due("* * * * *", "once", NOON, now) == Due(missed[-1:], then)
    assert due("* * * * *", "skip", NOON, now) == Due([], then)


def test_skip_fires_what_is_a_little_late_and_leaves_out_what_is_later() -> None:
    now = NOON + 60 * SECOND
    fired = due("* * * * * *", "skip", NOON, now, late=10).slots
    assert fired == [now - n * SECOND for n in range(10, -1, -1)]
    assert due("0 12 * * *", "skip", NOON, NOON + 10 * SECOND).slots == [NOON]
    assert due("0 12 * * *", "skip", NOON, NOON + 10.001 * SECOND).slots == []


def test_the_tolerance_of_skip_outlasts_a_change_of_leaders() -> None:
    for upkeep in (0.05, 2.0, 30.0):
        assert tolerance(upkeep) > 3 * upkeep + 1.25 * upkeep


def test_all_takes_a_long_time_away_in_steps_oldest_first_and_leaves_nothing_out() -> None:
    now, since, fired = NOON + 3600 * SECOND, NOON, []
    while since <= now:
        step = due("* * * * * *", "all", since, now)
        assert len(step.slots) <= MOST
        fired += step.slots
        assert step.then is not None
        since = step.then
    assert fired == [NOON + n * SECOND for n in range(3601)]


def test_once_finds_the_latest_of_years_at_once() -> None:
    since = NOON - timedelta(days=3650)
    assert due("* * * * * *", "once", since, NOON).slots == [NOON]
    assert due("0 0 29 2 *", "once", since, NOON).slots == [datetime(2024, 2, 29, tzinfo=UTC)]
    assert due("0 0 1 1 *", "once", since, NOON).slots == [datetime(2026, 1, 1, tzinfo=UTC)]


@given(text=TEXTS, zone=ZONES, missed=POLICIES, since=MOMENTS, away=st.floats(0, 400_000))
def test_what_is_fired_lies_between_and_what_follows_comes_after(
    text: str, zone: str, missed: Any, since: datetime, away: float
) -> None:
    now = since.astimezone(UTC) + timedelta(seconds=away)
    cron = Cron(text, zone, missed)
    found = cron.due(since, now, 10)
    assert found.slots == sorted(set(found.slots))
    assert all(since <= slot <= now for slot in found.slots)
    assert found.then is not None
    assert found.then > now or (missed == "all" and len(found.slots) == MOST)
    missed_slots = list(islice(takewhile(lambda slot: slot <= now, cron.slots(since)), MOST))
    if missed == "all":
        assert found.slots == missed_slots
    elif len(missed_slots) < MOST:
        in_time = [slot for slot in missed_slots if now - slot <= 10 * SECOND]
        assert found.slots == (missed_slots[-1:] if missed == "once" else in_time)


def test_moments_in_a_zone_with_summer_time_are_distinguished_in_the_repeated_hour() -> None:
    """A connection's zone may be any; Python would count by what clocks show."""
    since = datetime(2026, 10, 25, 2, 59, 59, tzinfo=BERLIN)
    now = datetime(2026, 10, 25, 2, 0, 0, fold=1, tzinfo=BERLIN)
    assert len(due("* * * * * *", "all", since, now).slots) == 2


def test_schedules_are_fired_together_as_long_as_they_make_few_jobs() -> None:
    one = NextSlot("s", "* * * * *", "UTC", "all", NOON, NOON)
    sizes = [MOST, 1, 1, MOST - 2, 1, 0, MOST, MOST]
    planned = [(one, Due([NOON] * size, None)) for size in sizes]
    assert [[len(due.slots) for _, due in batch] for batch in batches(planned)] == [
        [MOST],
        [1, 1, MOST - 2],
        [1, 0],
        [MOST],
        [MOST],
    ]
    assert list(batches([])) == []


def test_the_wait_for_a_slot_is_counted_in_hours_that_pass() -> None:
    before, after = datetime(2026, 10, 25, 1, 0, tzinfo=BERLIN), datetime(2026, 10, 25, 4, 0, tzinfo=BERLIN)
    assert NextSlot("s", "* * * * *", "UTC", "all", after, before).wait == 4 * 3600
    assert NextSlot("s", "* * * * *", "UTC", "all", before, before).wait == 0


# -- what is refused


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "61 * * * *",
        "* 24 * * *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "@daily",
        "* * * * 1L/2",
        "0 0 30 2 *",
        "every day",
        "9" * 199,
        "* " * 200,
        "\x00 * * * *",
    ],
)
def test_cron_text_that_cannot_be_read_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="cron expression") as exc_info:
        Cron(text)
    assert repr(text) in str(exc_info.value)


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="got 5"):
        Cron(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="'skip', 'once' or 'all', got 'never'"):
        Cron("* * * * *", missed="never")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "zone", ["", "Europe", "../../etc/passwd", "/etc/passwd", "x" * 5000, "a\x00b", "\ud800", None]
)
def test_an_unknown_zone_is_refused_by_name(zone: Any) -> None:
    with pytest.raises(ConfigurationError, match="there is no time zone") as exc_info:
        Cron("* * * * *", zone)
    assert repr(zone) in str(exc_info.value)


@pytest.mark.parametrize(("typed", "meant"), [("Europe/Berln", "Europe/Berlin"), ("utc", "UTC")])
def test_a_zone_mistyped_gets_a_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{meant}'"):
        Cron("* * * * *", typed)


def test_a_machine_without_zones_is_asked_to_install_them_and_still_has_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["tzdata", *(name for name in sys.modules if name.startswith("tzdata."))]:
        monkeypatch.setitem(sys.modules, name, None)  # a package of other packages here
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    try:
        with pytest.raises(ConfigurationError, match="pip install tzdata"):
            Cron("* * * * *", "Europe/Berlin")
        assert next(Cron("* * * * *").slots(NOON)) == NOON
    finally:
        zoneinfo.reset_tzpath(to=before)
