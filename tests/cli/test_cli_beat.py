"""`holdfast import-beat`: the timetable of a Celery application, as code and as registered schedules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.beat import NotConvertible, cron_texts
from holdfast.model.schedule import Cron
from tests.support.program import holdfast

pytest.importorskip("celery", reason="NO CELERY: pip install celery")
from celery.schedules import crontab, schedule

Sql = Callable[..., list[tuple[Any, ...]]]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROJECT = """
from datetime import timedelta

from celery import Celery
from celery.schedules import crontab

app = Celery("proj", broker="memory://")
app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {
    "nightly": {"task": "shop.report", "schedule": crontab(minute=0, hour=3), "args": ("full",), "kwargs": {"days": 7}},
    "poll": {"task": "shop.poll", "schedule": 30.0, "options": {"queue": "fast", "expires": 25, "priority": 3}},
    "often": {"task": "shop.poll", "schedule": timedelta(seconds=45)},
    "odd": {"task": "shop.poll", "schedule": timedelta(seconds=7)},
}


@app.task(name="shop.clean")
def clean(older_than): ...


@app.on_after_finalize.connect
def add(sender, **_):
    sender.add_periodic_task(crontab(day_of_week="mon-fri", hour="9-17/2", minute="*/20"), clean.s(30), name="clean")
"""
SHOP = """
from holdfast import Holdfast

hf = Holdfast()


@hf.task(name="shop.report")
def report(kind: str, *, days: int = 1) -> None: ...


@hf.task(name="jobs.poll")
def poll() -> None: ...


@hf.task(name="shop.clean")
def clean(older_than: int, now: bool) -> None: ...
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both applications. Celery keeps one of each task's name in a process, so it is imported once."""
    folder = tmp_path_factory.mktemp("beat")
    (folder / "celery_proj.py").write_text(PROJECT)
    (folder / "celery_shop.py").write_text(SHOP)
    (folder / "shop.py").write_text(SHOP.replace("now: bool", "now: bool = False"))
    return folder


@pytest.fixture
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    yield project
    for name in ("celery_shop", "shop"):
        sys.modules.pop(name, None)


def test_it_is_printed_as_code(folder: Path, dsn: str) -> None:
    done = holdfast(dsn, "import-beat", "celery_proj:app")
    assert done.exit_code == 1  # one is left out
    lines = done.stdout.splitlines()
    assert "report.schedule('nightly', Cron('0 3 * * *', zone='Europe/Berlin'), 'full', days=7)" in lines
    assert (
        "poll.using(queue='fast', deadline=25).schedule('poll', Cron('*/30 * * * * *', zone='Europe/Berlin'))" in lines
    )
    assert "# option priority=3 was left out" in lines
    assert "clean.schedule('clean', Cron('*/20 9,11,13,15,17 * * 1-5', zone='Europe/Berlin'), 30)" in lines
    assert "from shop import report" in lines
    assert "# The imports are guessed from the names of the tasks: point them at your Holdfast tasks." in lines
    assert (
        "# left out: odd: every 7 s has no cron expression, because it does not divide a day; "
        "the nearest is 6 s: '*/6 * * * * *'" in lines
    )


def test_an_interval_that_one_line_cannot_say_is_several_schedules(folder: Path, dsn: str) -> None:
    printed = holdfast(dsn, "import-beat", "celery_proj:app").stdout
    assert (
        """
# often: one cron line cannot say this interval, so it is 3 schedules
poll.schedule('often 1/3', Cron('0,45 */3 * * * *', zone='Europe/Berlin'))
poll.schedule('often 2/3', Cron('30 1-59/3 * * * *', zone='Europe/Berlin'))
poll.schedule('often 3/3', Cron('15 2-59/3 * * * *', zone='Europe/Berlin'))
"""
        in printed
    )


def test_the_printed_code_runs(folder: Path, dsn: str) -> None:
    printed = holdfast(dsn, "import-beat", "celery_proj:app").stdout
    names: dict[str, Any] = {}
    exec(printed, names)  # noqa: S102 - our own output
    registered = sys.modules["shop"].hf.registry.schedules
    assert {name: (each.job.task, each.cron.text) for name, each in registered.items()} == {
        "nightly": ("shop.report", "0 3 * * *"),
        "poll": ("jobs.poll", "*/30 * * * * *"),
        "often 1/3": ("jobs.poll", "0,45 */3 * * * *"),
        "often 2/3": ("jobs.poll", "30 1-59/3 * * * *"),
        "often 3/3": ("jobs.poll", "15 2-59/3 * * * *"),
        "clean": ("shop.clean", "*/20 9,11,13,15,17 * * 1-5"),
    }


def test_it_is_registered_for_the_tasks_of_an_application(folder: Path, dsn: str, sql: Sql) -> None:
    done = holdfast(dsn, "import-beat", "celery_proj:app", "--register", "celery_shop:hf", "--dsn", dsn)
    assert done.exit_code == 1 and "registered 5 schedules" in done.stdout
    assert "left out: odd: every 7 s" in done.stderr and "left out: clean:" in done.stderr
    assert sql(
        "select name, task, cron, zone, payload from schedules where name <> all (%s) order by name", [OFTEN]
    ) == [
        ("nightly", "shop.report", "0 3 * * *", "Europe/Berlin", {"kind": "full", "days": 7}),
        ("poll", "jobs.poll", "*/30 * * * * *", "Europe/Berlin", {}),
    ]


def test_what_is_no_celery_application_is_refused(folder: Path, dsn: str) -> None:
    done = holdfast(dsn, "import-beat", "celery_shop:hf")
    assert done.exit_code == 2 and "celery_shop:hf is of type Holdfast, not a Celery application" in done.stderr


OFTEN = ["often 1/3", "often 2/3", "often 3/3"]
CRONTABS = [
    {},
    {"minute": 0, "hour": "*/5"},
    {"minute": "1,2,3", "hour": "22-3"},
    {"minute": 30, "hour": 2, "day_of_month": "*/2"},
    {"minute": 0, "hour": 0, "day_of_month": "2-30/3", "month_of_year": "*/4"},
    {"minute": 0, "hour": 7, "day_of_week": "sun,wed"},
    {"minute": 0, "hour": 7, "day_of_month": "8-14", "day_of_week": "mon,tue"},
    {"minute": 5, "hour": "0-23/6", "day_of_month": "*/10", "day_of_week": "1-5"},
]


@pytest.mark.parametrize("given", CRONTABS, ids=str)
def test_a_crontab_has_the_slots_that_celery_gives_it(given: dict[str, Any]) -> None:
    theirs = crontab(**given)

    def fits(each: datetime) -> bool:
        return (
            each.minute in theirs.minute
            and each.hour in theirs.hour
            and each.day in theirs.day_of_month
            and each.month in theirs.month_of_year
            and each.isoweekday() % 7 in theirs.day_of_week
        )

    ours = list(islice(Cron(*cron_texts(theirs)).slots(NOW), 60))
    assert all(fits(each) for each in ours)
    days = range((min(ours[-1] - NOW, timedelta(days=40))).days)
    for day in days:
        for minute in theirs.minute:
            for hour in theirs.hour:
                each = NOW + timedelta(days=day, hours=hour, minutes=minute)
                assert fits(each) == (each in ours), each


@pytest.mark.parametrize(
    ("every", "text"),
    [(1, "* * * * * *"), (30.0, "*/30 * * * * *"), (60, "* * * * *"), (timedelta(minutes=5), "*/5 * * * *"),
     (3600, "0 * * * *"), (timedelta(hours=8), "0 */8 * * *"), (86400, "0 0 * * *"), (timedelta(weeks=1), "0 0 * * 0")],
)  # fmt: skip
def test_an_interval_that_divides_the_clock_is_cron_text(every: float | timedelta, text: str) -> None:
    assert cron_texts(every) == [text] == cron_texts(schedule(every))


@pytest.mark.parametrize("every", [16, 45, 80, 90, 144, 2400, 4800, 5400, 17_280])
def test_the_lines_of_an_interval_have_its_slots_and_no_others(every: int) -> None:
    lines = cron_texts(every)
    midnight = NOW.replace(hour=0, minute=0, second=0)
    end = midnight + timedelta(days=1)
    found = sorted(slot for line in lines for slot in takewhile(lambda slot: slot < end, Cron(line).slots(midnight)))
    assert found == [midnight + timedelta(seconds=n) for n in range(0, 86_400, every)]


@pytest.mark.parametrize(
    "given", [0.5, 1.5, 7, 27, timedelta(days=2), crontab(day_of_month=13, day_of_week="fri"), object()]
)
def test_what_cron_text_cannot_say_is_refused(given: Any) -> None:
    with pytest.raises(NotConvertible, match="cron expression"):
        cron_texts(given)
