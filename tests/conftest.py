"""Servers and databases for the tests: real PostgreSQL only.

The embedded 18 carries every test. Tests that ask for `each_hf` also run on the embedded 16, and on a local PostgreSQL
(HOLDFAST_TEST_LOCAL_DSN, default 127.0.0.1:5432) when one is reachable. Each test process has its own database on each
server; tables are emptied between tests.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.testing import Databases, Kit, bind, scratch_database

if TYPE_CHECKING:
    from holdfast.testing import Databases, Kit

# A property that holds also holds on a busy machine, only later; there, to make an input may take a minute.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")

# Where tests run in the background Ctrl-C is ignored, also by the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of programs, and to compile all modules takes each of them 0.1 to 0.3 seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent.parent
PATIENCE = 40.0  # seconds: what takes this long on a slow machine hangs
LOCAL = os.environ.get("HOLDFAST_TEST_LOCAL_DSN", "postgresql://postgres@127.0.0.1:5432/postgres?connect_timeout=2")
TABLES = (
    "live, later, dead, history, claims, workers, sleepers, dedupe, tasks, leader, "
    "cancels, progress, job_logs, batches, batch_counts, blocks, "
    "error_arrivals, error_groups, error_counts, schedules, limit_rules, limit_settings, limits, "
    "lanes, flows, rings, arrivals, releases, folds, reopenings, throttled, ticks, "
    "worker_stops, breaker_events, kept_orders, attempt_counts, minutes, snapshots, actions, "
    "webhook_endpoints, webhook_bodies, api_tokens, responses, usage_counts, steps, signals, follows, endings"
)

# A starting pytest closes its root of temporary folders to other accounts: to the servers of other tests, which
# do not run as root. So each checkout has a root of its own.
if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
    _root = Path(tempfile.gettempdir(), f"hf-{zlib.crc32(bytes(ROOT)):08x}")
    _root.mkdir(exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_root)


# Their data need not outlive a crash of the machine, and a commit without fsync takes a twentieth of the time.
IN_MEMORY = {"fsync": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def pg18() -> Iterator[str]:
    with EmbeddedPostgres(ROOT / ".holdfast" / "tests18", major=18, settings=IN_MEMORY) as server:
        yield server.dsn("postgres")


@pytest.fixture(scope="session")
def pg16() -> Iterator[str]:
    with EmbeddedPostgres(ROOT / ".holdfast" / "tests16", major=16, settings=IN_MEMORY) as server:
        yield server.dsn("postgres")


@pytest.fixture(scope="session")
def pg_local() -> str:
    try:
        psycopg.connect(LOCAL).close()
    except psycopg.OperationalError as error:
        pytest.skip(f"NO LOCAL POSTGRESQL IS REACHABLE, so these tests run on the embedded ones only: {error}")
    return LOCAL


def make_database(admin: str, name: str) -> str:
    """Create and migrate a fresh database and return its DSN."""
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        conn.execute(f"CREATE DATABASE {name}")
    dsn = psycopg.conninfo.make_conninfo(admin, dbname=name)
    with Holdfast(dsn) as hf:
        hf.migrate()
    return dsn


def drop_database(admin: str, name: str) -> None:
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


# The process id keeps two runs of the tests apart.
DATABASE = f"holdfast_test_{os.getpid()}"


@pytest.fixture(scope="session")
def database(pg18: str) -> Iterator[str]:
    """A migrated database on the embedded 18."""
    yield (dsn := make_database(pg18, DATABASE))
    _close_kept(dsn)
    drop_database(pg18, DATABASE)


@pytest.fixture(scope="session", params=["pg18", "pg16", "pg_local"])
def each_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database on each server there is."""
    admin = request.getfixturevalue(request.param)
    if request.param == "pg18":
        yield request.getfixturevalue("database")
        return
    dsn = make_database(admin, DATABASE)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {DATABASE} SET synchronous_commit = off")  # its data need not survive a crash
    yield dsn
    _close_kept(dsn)
    drop_database(admin, DATABASE)


# Truncating all of them takes 50 ms, three thousand times. So tables without rows are skipped, and tables with few
# rows are deleted from; a test sees no difference, unless it looks at pages. Locked as by TRUNCATE: a transaction that
# a test left open fails here, and not as an unexpected row in the next test.
EMPTY = f"""
DO $$ DECLARE t regclass; BEGIN
    LOCK TABLE {TABLES} IN ACCESS EXCLUSIVE MODE;
    FOR t IN SELECT c.oid::regclass FROM pg_class c
             WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND pg_relation_size(c.oid) > 0
               AND (c.relname = ANY ('{{{TABLES.replace(" ", "")}}}') OR c.relispartition) LOOP
        EXECUTE CASE WHEN pg_relation_size(t) > 16384 THEN 'TRUNCATE ' ELSE 'DELETE FROM ' END || t;
    END LOOP;
END $$
"""


# Connecting, and compiling functions on each new connection, would take a third of a short test.
_kept: dict[tuple[str, str], psycopg.Connection] = {}


def _connection(dsn: str, options: str) -> psycopg.Connection:
    """Return a connection that is kept from test to test, as good as new; another where a test has ended it."""
    kept = _kept.get((dsn, options))
    if kept is not None:
        try:
            kept.rollback()
            kept.execute("DISCARD ALL")
        except psycopg.OperationalError:
            kept.close()
        else:
            return kept
    # Not prepared: prepared statements would not survive.
    options_ = f"-c search_path=holdfast {options}"
    made = _kept[dsn, options] = psycopg.connect(dsn, autocommit=True, options=options_, prepare_threshold=None)
    return made


def _close_kept(dsn: str) -> None:
    for key in [each for each in _kept if each[0] == dsn]:
        _kept.pop(key).close()


def _emptied(dsn: str) -> str:
    # A test that left a transaction open would keep the next one waiting forever. A statement of a process that was
    # killed runs to its end, and takes its locks in another order.
    for left in reversed(range(5)):
        try:
            _connection(dsn, "-c lock_timeout=30s").execute(EMPTY)
            break
        except psycopg.errors.DeadlockDetected:
            if not left:
                raise
    return dsn


@pytest.fixture
def dsn(database: str) -> str:
    """The embedded 18's database, emptied."""
    return _emptied(database)


@pytest.fixture
def each_dsn(each_database: str) -> str:
    return _emptied(each_database)


@pytest.fixture
def hf(dsn: str) -> Iterator[Holdfast]:
    """An application on the embedded 18, its tables empty."""
    with Holdfast(dsn) as app:
        yield app


@pytest.fixture
def each_hf(each_dsn: str) -> Iterator[Holdfast]:
    """An application on each server there is, its tables empty."""
    with Holdfast(each_dsn) as app:
        yield app


@pytest.fixture
def sql(dsn: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Run SQL with Holdfast's schema on the search path: rows = sql("select ...", [params])."""
    yield from _runner(dsn)


@pytest.fixture
def each_sql(each_dsn: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    yield from _runner(each_dsn)


def _runner(dsn: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    conn = _connection(dsn, "-c statement_timeout=60s")  # not longer than a test may take

    def run(query: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = conn.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    yield run
    with suppress(psycopg.OperationalError):  # a test has ended it
        conn.rollback()  # locks that a test has left do not delay the next one


@pytest.fixture(scope="session")
def kit_dsn(pg18: str) -> Iterator[str]:
    """A database for the test kit's own tests: the kit replaces the clock in it."""
    with scratch_database(pg18) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def opened(kit_dsn: str) -> Iterator[Databases]:
    with Databases() as databases:
        databases.made(kit_dsn)
        yield databases


@pytest.fixture
def kit(kit_dsn: str, opened: Databases) -> Iterator[Kit]:
    """A new application, bound by the kit."""
    with bind(Holdfast(), kit_dsn, opened) as bound:
        yield bound


@pytest.fixture
def seeded() -> random.Random:
    """A random generator whose seed is shown when the test fails."""
    seed = int(os.environ.get("HOLDFAST_TEST_SEED") or random.randrange(2**32))
    print(f"seed {seed}: HOLDFAST_TEST_SEED={seed} repeats its choices")
    return random.Random(seed)


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE, every: float = 0.02) -> Any:
    """Wait for a condition and return its value; fail when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {condition}")
        time.sleep(every)
