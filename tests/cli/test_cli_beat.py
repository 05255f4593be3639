"""`holdfast import-beat`: the timetable of a Celery application, as code and as registered schedules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice, takewhile
from pathlib import Path
from typing import Any
from uuid import UUID

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
MAIN = """
from celery_shop import hf, report


@hf.task(name="shop.poll")
def poll_often() -> None: ...
"""
CODED = """

poll.schedule("poll", "0 * * * *")
report.schedule("report", "* * * * *", "full")
"""
ENTRIES = {
    "dropped": """
from celery import Celery

app = Celery("dropped", broker="memory://")
app.conf.beat_schedule = {"poll": {"task": "shop.poll", "schedule": 60, "options": {"priority": 9}}}
""",
    "plain": """
from celery import Celery

app = Celery("plain", broker="memory://")
app.conf.beat_schedule = {
    "poll": {"task": "shop.poll", "schedule": 60},
    "report": {"task": "shop.report", "schedule": 60, "args": ["full"]},
}
""",
    "arguments": """
import enum
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from celery import Celery


class Color(enum.Enum):
    RED = 1


NAME = UUID("01a1f1e3-5169-7000-8000-763c681c5e11")
TIMES = [datetime(2026, 1, 2, 3, tzinfo=UTC), [date(2026, 1, 2), Decimal("1.5")]]
app = Celery("arguments", broker="memory://")
app.conf.beat_schedule = {
    "nobody": {"schedule": 60},
    "timeless": {"task": "shop.report"},
    "names": {"task": "shop.report", "schedule": 60, "kwargs": {"class": 1, "a b": 2, "days": 3}},
    "times": {"task": "shop.report", "schedule": 60, "args": TIMES, "kwargs": {"at": {"id": NAME}}},
    "unordered": {"task": "shop.report", "schedule": 60, "args": [[{3}]]},
    "strange": {"task": "shop.report", "schedule": 60, "args": [Color.RED]},
    "keyword": {"task": "shop.import", "schedule": 60},
}
""",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both applications. Celery keeps one of each task's name in a process, so it is imported once."""
    folder = tmp_path_factory.mktemp("beat")
    (folder / "celery_proj.py").write_text(PROJECT)
    (folder / "celery_shop.py").write_text(SHOP)
    (folder / "celery_main.py").write_text(MAIN)
    (folder / "celery_coded.py").write_text(SHOP + CODED)
    for name in ("dropped", "plain", "arguments"):
        (folder / f"celery_{name}.py").write_text(ENTRIES[name])
    (folder / "celery_package").mkdir()
    (folder / "celery_package/__init__.py").touch()
    (folder / "celery_package/celery.py").write_text(ENTRIES["plain"])
    (folder / "shop.py").write_text(SHOP.replace("now: bool", "now: bool = False"))
    return folder


@pytest.fixture
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    yield project
    for name in ("celery_shop", "celery_main", "celery_coded", "shop"):
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
    assert (
        "# The imports are guessed from the names of the tasks; --tasks MODULE:ATTRIBUTE takes them from a Holdfast "
        "application." in lines
    )
    assert (
        "# left out: odd: every 7 s has no cron expression, because it does not divide a day; "
        "the nearest single cron line is every 6 s: '*/6 * * * * *'" in lines
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


def test_imports_come_from_the_application_that_has_the_tasks(folder: Path, dsn: str) -> None:
    done = holdfast(dsn, "import-beat", "celery_proj:app", "--tasks", "celery_main:hf")
    lines = done.stdout.splitlines()
    assert [line for line in lines if "import " in line and "celery_" in line and line[0] != "#"] == [
        "from celery_main import poll_often",
        "from celery_shop import report",
    ]
    assert "guessed" not in done.stdout
    assert lines[0].startswith("# Made by `holdfast import-beat celery_proj:app --tasks celery_main:hf`.")
    assert "poll_often.schedule('often 1/3', Cron('0,45 */3 * * * *', zone='Europe/Berlin'))" in lines
    left_out = [line for line in lines if line.startswith("# left out: clean: ")]
    assert "missing a required argument: 'now'" in left_out[0], "its arguments do not fit the task"
    assert done.exit_code == 1
    names: dict[str, Any] = {}
    exec(done.stdout, names)  # noqa: S102 - our own output
    assert "poll" in sys.modules["celery_main"].hf.registry.schedules


def test_tasks_and_register_exclude_each_other(folder: Path, dsn: str) -> None:
    done = holdfast(dsn, "import-beat", "celery_proj:app", "--tasks", "celery_shop:hf", "--register", "celery_shop:hf")
    assert done.exit_code == 2 and "--tasks is for printing; --register names the application already" in done.stderr


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


def test_a_dropped_option_is_reported_and_counts_as_left_out(folder: Path, dsn: str) -> None:
    printed = holdfast(dsn, "import-beat", "celery_dropped:app", "--tasks", "celery_shop:hf")
    assert printed.exit_code == 1 and "# option priority=9 was left out\npoll.schedule('poll'" in printed.stdout
    done = holdfast(dsn, "import-beat", "celery_dropped:app", "--register", "celery_shop:hf", "--dsn", dsn)
    assert done.exit_code == 1 and "registered 1 schedule;" in done.stdout
    assert "poll: option priority=9 was left out" in done.stderr


def test_schedules_that_are_in_the_code_are_not_registered_again(folder: Path, dsn: str, sql: Sql) -> None:
    arguments = "import-beat", "celery_plain:app", "--register", "celery_coded:hf", "--dsn", dsn
    done = holdfast(dsn, *arguments)
    assert (done.exit_code, done.stderr) == (0, "poll: its line in celery_coded:hf differs, and stays\n")
    assert done.stdout == "2 schedules are already in celery_coded:hf; nothing to register\n"
    assert sql("select count(*) from schedules") == [(0,)]
    sys.modules["celery_coded"].hf.registry.schedules.pop("report")
    done = holdfast(dsn, *arguments)
    assert done.exit_code == 0
    assert done.stdout == "registered 1 schedule; 1 is already in celery_coded:hf; see: holdfast schedules\n"
    assert sql("select name from schedules") == [("report",)]


def test_arguments_are_printed_as_valid_python(folder: Path, dsn: str) -> None:
    done = holdfast(dsn, "import-beat", "celery_arguments:app", "--tasks", "celery_shop:hf")
    assert "# left out: nobody: it names no task" in done.stdout
    assert "# left out: timeless: it has no schedule" in done.stdout
    assert "# left out: unordered: argument {3} is a set, which JSON does not have; use a list" in done.stdout
    done = holdfast(dsn, "import-beat", "celery_arguments:app")
    assert "# left out: strange: argument <Color.RED: 1> of type Color cannot be written as code" in done.stdout
    called: list[tuple[Any, ...]] = []
    code = "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("from shop"))

    class Task:
        def schedule(self, *args: Any, **kwargs: Any) -> None:
            called.append((*args, kwargs))

    exec(code, {"report": Task(), "task_import": Task()})  # noqa: S102 - our own output
    moment = datetime(2026, 1, 2, 3, tzinfo=UTC)
    name = UUID("01a1f1e3-5169-7000-8000-763c681c5e11")
    assert called == [
        ("names", "* * * * *", {"class": 1, "a b": 2, "days": 3}),
        ("times", "* * * * *", moment, [moment.date(), Decimal("1.5")], {"at": {"id": name}}),
        ("keyword", "* * * * *", {}),
    ]


def test_what_is_no_celery_application_is_refused(folder: Path, dsn: str) -> None:
    done = holdfast(dsn, "import-beat", "celery_shop:hf")
    assert done.exit_code == 2 and "celery_shop:hf is of type Holdfast, not a Celery application" in done.stderr


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("celery_package:app", "no Celery application in celery_package; try celery_package.celery:app"),
        ("celery_package:celery", "celery_package.celery:app"),
        ("celery_package", "names no attribute; write MODULE:ATTRIBUTE, as in celery_package.celery:app"),
        ("celery_package.celery", "names no attribute; write MODULE:ATTRIBUTE, as in celery_package.celery:app"),
        ("celery_package.celery:xyz", "has no 'xyz'; did you mean celery_package.celery:app?"),
        ("celery_shop:xyz", "module 'celery_shop' has no 'xyz'; celery_shop holds no Celery application"),
        ("celery_shop", "names no attribute; write MODULE:ATTRIBUTE, as in celery_shop:app"),
        (":app", "names no module; write MODULE:ATTRIBUTE, as in proj.celery:app"),
    ],
)
def test_the_right_celery_application_is_suggested(folder: Path, dsn: str, target: str, expected: str) -> None:
    done = holdfast(dsn, "import-beat", target)
    assert done.exit_code == 2 and expected in done.stderr


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


@pytest.mark.parametrize(
    ("every", "why"),
    [
        (0, "^an interval must be positive, got 0 s$"),
        (-60.0, "^an interval must be positive, got -60 s$"),
        (0.5, "because it is not in whole seconds; the nearest single cron line is every 1 s"),
        (37 * 60, r"does not divide a day; the nearest single cron line is every 1800 s: '\*/30 "),
    ],
)
def test_the_reason_is_the_interval_s_own(every: float, why: str) -> None:
    with pytest.raises(NotConvertible, match=why):
        cron_texts(every)
