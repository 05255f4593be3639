"""A schema is migrated under processes of the previous release, and both releases work side by side while they die.

The previous release is the wheel in tests/releases; the next one is this source with a migration of every kind: a new
column, a concurrent index, a function with another signature, one with another text, and a view with another column.
"""

from __future__ import annotations

import os
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.store import migrations
from tests.conftest import DATABASE, ROOT, drop_database, wait_until
from tests.support.next_release import ADD, INDEX, TERMS
from tests.support.releases import Rolling, command, install, kept_wheel, make_release, source_of

KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS") or 12)
TABLES = "create table effects (job uuid); create table orders (job uuid)"
NEXT = "migrations/9999_colour.sql"
EXPAND = {
    NEXT: lambda _: TERMS.format(1, "yes") + ADD + INDEX,
    "functions/jobs/finish.sql": lambda text: text.replace(
        "default 'wait')", "default 'wait', p_colour text default null)"
    ),
    "functions/jobs/claim.sql": lambda text: text + "-- newer\n",
    "functions/jobs/settle.sql": lambda text: text + "-- newer\n",
    "views/audit.sql": lambda text: text.replace("\nfrom ", ", 1 as colour\nfrom ", 1),
}
# Drops a function that the previous release calls, and says that it works with it.
DROP = {
    NEXT: lambda _: TERMS.format(1, "yes") + "-- Step: drop it\n-- Locks: none\ndrop function enqueue;\n",
    "functions/jobs/enqueue.sql": lambda _: "",
    "grants.sql": lambda text: text.replace("function enqueue, ", "function "),
}
Rows = list[tuple[Any, ...]]
Query = Callable[[str], Rows]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = install(kept_wheel(), tmp_path_factory.mktemp("releases") / "old")
    assert source_of(release).is_relative_to(release)
    return release


@pytest.fixture
def scratch(pg18: str) -> Iterator[str]:
    """A database of its own, which both releases migrate."""
    name = f"{DATABASE}_upgrade"
    drop_database(pg18, name)
    with psycopg.connect(pg18, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    yield psycopg.conninfo.make_conninfo(pg18, dbname=name)
    drop_database(pg18, name)


@pytest.fixture
def query(scratch: str) -> Iterator[Query]:
    with psycopg.connect(
        scratch, autocommit=True, options="-c search_path=holdfast,public", prepare_threshold=None
    ) as conn:

        def run(text: str) -> Rows:
            cursor = conn.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def rolling(scratch: str, tmp_path: Path, seeded: random.Random) -> Iterator[Rolling]:
    made = Rolling(scratch, tmp_path, seeded)
    yield made
    made.close()


def migrate(release: Path, dsn: str) -> str:
    done = command(release, dsn, "migrate")
    assert done.returncode == 0, done.stderr
    return done.stdout


def begin(rolling: Rolling, old: Path, dsn: str, query: Query, number: int) -> None:
    """Set up by the old release, and its processes under load."""
    migrate(old, dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLES)
    for role in ("worker", "enqueuer"):
        for _ in range(number):
            rolling.start(role, old)
    wait_until(lambda: query("select count(*) from history")[0][0] > 50)


def check(rolling: Rolling, query: Query) -> Counter[str]:
    """Compare what was accepted with what became of it."""
    errors = rolling.errors()
    assert not errors, f"{len(errors)} callers and workers met errors, such as: {errors[0]}"
    accepted = rolling.accepted()
    finals = {str(id_): str(status) for id_, status in query("select id, status from jobs")}
    assert len(finals) == query("select count(*) from jobs")[0][0], "no job is in two tables"
    assert {finals.get(id_, "lost") for id_ in accepted} == {"succeeded"}
    assert set(finals.values()) == {"succeeded"}
    done = "select count(*), count(distinct e.job) from jobs j left join effects e on e.job = j.id where task = 'once'"
    assert len(set(query(done)[0])) == 1, "each transactional job has its effect once"
    assert query("select count(*) from effects where job not in (select id from jobs)") == [(0,)]
    assert query("select count(*) from orders where job not in (select id from jobs)") == [(0,)]
    kinds = query("select f.type from history h, unnest(h.failures) f group by 1")
    assert set(kinds) <= {("rolling.Wanted",), ("LeaseLost",)}
    return Counter(str(task) for (task,) in query("select task from jobs"))


@pytest.mark.timeout(300)
def test_both_releases_work_on_the_new_schema_while_their_processes_die(
    rolling: Rolling, old: Path, scratch: str, query: Query, tmp_path: Path, seeded: random.Random
) -> None:
    new = make_release(tmp_path / "new", EXPAND)
    begin(rolling, old, scratch, query, 2)
    early = command(new, scratch, "jobs", "queues")
    assert early.returncode == 2 and "run: holdfast migrate" in early.stderr, early.stderr
    assert "9999_colour.sql" in migrate(new, scratch)
    assert query("select count(*) from pg_proc where starts_with(proname, 'old_finish_')") == [(1,)]
    assert "up to date" in migrate(old, scratch), "an older release has nothing to do"
    replacements = [(role, release) for role in ("worker", "enqueuer") for release in (old, new)] * (KILLS // 4)
    seeded.shuffle(replacements)
    for role, release in replacements:
        rolling.replace(role, release)
    rolling.stop("enqueuer")
    wait_until(lambda: query("select (select count(*) from live) + (select count(*) from later)") == [(0,)], 120)
    rolling.stop("worker")
    tasks = check(rolling, query)
    assert len(tasks) == 7, "every kind of job was among them"
    for damage in (
        f"delete from history where id = '{seeded.choice(rolling.accepted())}' returning 1",
        "insert into effects (job) (select job from effects limit 1) returning 1",
    ):
        query("begin")
        assert query(damage) == [(1,)]
        with pytest.raises(AssertionError):
            check(rolling, query)
        query("rollback")
    print(f"{len(rolling.accepted())} jobs accepted, {tasks.total()} ended, {dict(rolling.kills)}")


# What contract migrations have dropped since the previous release.
CONTRACTED: set[str] = set()
SIGNATURES = """
select proname::text, pg_get_function_result(oid), array(
    select coalesce(proargnames[n], '') || ' ' || format_type(proargtypes[n - 1], null)
    from generate_series(1, pronargs) n), pronargs - pronargdefaults
from pg_proc where pronamespace = 'holdfast'::regnamespace and proname !~ '^old_'
"""


def no_longer_fit(before: Rows, after: Rows) -> list[str]:
    """Return the functions that do not accept the calls they accepted before, or return something else."""
    now = {name: rest for name, *rest in after}

    def fits(name: str, result: str, arguments: list[str]) -> bool:
        found, accepted, needed = now.get(name, (None, [], 0))
        return found == result and accepted[: len(arguments)] == arguments and needed <= len(arguments)

    return [
        name for name, result, arguments, _ in before if name not in CONTRACTED and not fits(name, result, arguments)
    ]


def test_functions_accept_the_calls_of_the_previous_release(
    old: Path, scratch: str, query: Query, tmp_path: Path
) -> None:
    migrate(old, scratch)
    before = query(SIGNATURES)
    migrate(make_release(tmp_path / "new", {}), scratch)
    assert no_longer_fit(before, query(SIGNATURES)) == []
    migrate(make_release(tmp_path / "next", EXPAND), scratch)
    assert no_longer_fit(before, query(SIGNATURES)) == []
    with psycopg.connect(scratch, autocommit=True) as conn:
        conn.execute("drop function holdfast.enqueue; alter function holdfast.wake rename to waken")
    assert no_longer_fit(before, query(SIGNATURES)) == ["enqueue", "wake"]


def test_released_migrations_are_not_edited_and_changed_functions_have_a_schema_number_of_their_own() -> None:
    with zipfile.ZipFile(kept_wheel()) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("holdfast/sql/") and name.endswith(".sql")]
        released = {name.removeprefix("holdfast/sql/"): wheel.read(name).decode() for name in names}
    folder = ROOT / "src" / "holdfast" / "sql"
    now = {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in folder.rglob("*.sql")}
    frozen = [name for name in released if name.startswith("migrations/")]
    assert [name for name in frozen if now.get(name) != released[name]] == []
    changed = {name for name in {**released, **now} if released.get(name) != now.get(name)}
    if changed - {"testing.sql"}:
        assert migrations.expected_version() > len(frozen), f"add a migration, if need be an empty one, for {changed}"


@pytest.mark.timeout(120)
def test_a_migration_that_drops_what_the_previous_release_calls_is_found(
    rolling: Rolling, old: Path, scratch: str, query: Query, tmp_path: Path
) -> None:
    new = make_release(tmp_path / "new", DROP)
    begin(rolling, old, scratch, query, 1)
    migrate(new, scratch)
    wait_until(rolling.errors)
    with pytest.raises(AssertionError, match=r"function holdfast\.enqueue\(.* does not exist"):
        check(rolling, query)
