"""Behind a real PgBouncer: everything in transaction mode with HOLDFAST_POOLER, LISTEN as well in session mode."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import CONTEXT, Context, Delivery, Holdfast, Limit
from holdfast.errors import DatabaseUnavailable
from tests.conftest import wait_until
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]
PROGRAM = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="NO PGBOUNCER IS INSTALLED, so nothing is tested behind one: apt-get install pgbouncer"
)
# Few connections to the server, so that many clients share them; startup options are ignored, not refused.
CONFIG = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
ignore_startup_parameters = extra_float_digits{ignored}
"""


@pytest.fixture
def bouncer(dsn: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a PgBouncer in front of the test's database: bouncer(mode) returns its DSN."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mode: str, *, size: int, ignored: str = "") -> str:
        with psycopg.connect(dsn) as conn:
            to = {"host": conn.info.host, "port": conn.info.port}
        with socket.create_server(("127.0.0.1", 0)) as free:
            listens = free.getsockname()[1]
        config = tmp_path / "pgbouncer.ini"
        users = tmp_path / "users"
        users.write_text('"postgres" ""\n')
        config.write_text(CONFIG.format(**to, users=users, listens=listens, mode=mode, size=size, ignored=ignored))
        for folder in (tmp_path, *tmp_path.parents[:2]):  # for the account of the server, where we are root
            folder.chmod(0o755)
        # A socket directory of its own: under root, the server has another account.
        account = ["-u", Path(to["host"]).owner()] if os.geteuid() == 0 else []
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen([str(PROGRAM), *account, str(config)], stdout=log, stderr=log))
        known = {k: v for k, v in conninfo_to_dict(dsn).items() if k in ("user", "dbname", "password")}
        through = make_conninfo(host="127.0.0.1", port=listens, **known)

        def accepts() -> bool:
            assert started[-1].poll() is None, (tmp_path / "log").read_text()
            try:
                psycopg.connect(through, connect_timeout=2).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_until(accepts)
        return through

    yield start
    for each in started:
        each.terminate()
        each.wait(10)


def application(dsn: str, sent: list[str], **settings: Any) -> Holdfast:
    hf = Holdfast(dsn, **settings)

    @hf.channel("mail")
    async def mail(delivery: Delivery[int]) -> None:
        sent.append(delivery.key)

    @hf.task(name="work", limits=[Limit("key:{key}", concurrency=2)])
    async def work(n: int, key: str, *, ctx: Context = CONTEXT) -> int:
        ctx.progress(n, 100)
        async with ctx.transaction() as conn:
            await conn.execute("select 1")
            await ctx.aemit(mail, n, key=f"mail-{n}")
        return n

    return hf


async def test_a_worker_and_its_clients_share_few_connections_in_transaction_mode(
    bouncer: Callable[..., str], sql: Sql
) -> None:
    sent: list[str] = []
    with application(bouncer("transaction", size=4), sent, pooler=True) as hf:
        work: Any = hf.registry.tasks["work"]
        assert hf.migrate().migrations == []
        async with working(hf, queues="default,outbox"):
            async with hf.batch("together") as batch:
                await work.using(batch=batch).aenqueue_many([(n, f"k{n % 3}") for n in range(60)])
            for n in range(60, 80):
                work.using(dedupe=f"once-{n}").enqueue(n, "k0")
            assert (await batch.ajoin(40)).succeeded == 60
            await until(lambda: len(sent) == 80)
    assert len(set(sent)) == 80
    assert sql("select count(*) from history where task = 'work' and status = 'succeeded'") == [(80,)]


async def test_settings_of_the_database_change_nothing_in_transaction_mode(
    bouncer: Callable[..., str], dsn: str, sql: Sql
) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    for setting in (
        "default_transaction_isolation = 'serializable'",
        "datestyle = 'SQL, DMY'",
        "client_encoding = LATIN1",
    ):
        sql(f"alter database {name} set {setting}")
    sent: list[str] = []
    try:
        with application(bouncer("transaction", size=4), sent, pooler=True) as hf:
            work: Any = hf.registry.tasks["work"]
            async with working(hf, queues="default,outbox"):
                async with hf.batch("together") as batch:
                    await work.using(batch=batch).aenqueue_many([(n, f"\u65e5{n % 3}") for n in range(20)])
                assert (await batch.ajoin(40)).succeeded == 20
                job = work.using(id="018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f").enqueue(20, "k0")
                assert (await ended(hf, job.id)).status == "succeeded"
                await until(lambda: len(sent) == 21)
    finally:
        sql(f"alter database {name} reset all")


async def test_a_sleeping_worker_is_woken_in_session_mode(bouncer: Callable[..., str], sql: Sql) -> None:
    sent: list[str] = []
    through = bouncer("session", size=30, ignored=", options")
    with application(through, sent) as hf:
        work: Any = hf.registry.tasks["work"]
        async with working(hf, poll=600.0, queues="default,outbox"):
            await until(lambda: sql("select 1 from sleepers"))
            await work.aenqueue(1, "a")
            await until(lambda: sent == ["mail-1"])


async def test_a_sleeper_that_is_gone_is_forgotten_in_session_mode_though_its_backend_lives(
    bouncer: Callable[..., str], sql: Sql
) -> None:
    through = bouncer("session", size=5, ignored=", options")
    with psycopg.connect(through, autocommit=True, application_name="holdfast w claim") as conn:
        conn.execute("select holdfast.sleep('w', '{default}')")
        sql("select forget_sleepers()")
        ((backend,),) = sql("select backend from sleepers")
    await until(lambda: sql("select forget_sleepers()") and sql("select count(*) from sleepers") == [(0,)])
    assert sql("select count(*) from pg_stat_activity where pid = %s", [backend]) == [(1,)]


@pytest.mark.parametrize("ignored", ["", ", options"], ids=["options are refused", "options are ignored"])
def test_without_the_setting_the_error_says_what_to_set(bouncer: Callable[..., str], ignored: str) -> None:
    def enqueue(client: int) -> None:  # with a key, since jobs without one share a connection
        for n in range(20):
            hf.registry.tasks["work"].using(dedupe=f"{client}-{n}").enqueue(n, "a")

    with (
        application(bouncer("transaction", size=2, ignored=ignored), []) as hf,
        ThreadPoolExecutor(5) as pool,
        pytest.raises(DatabaseUnavailable, match=r"is behind a pooler: .* set HOLDFAST_POOLER=1"),
    ):
        list(pool.map(enqueue, range(5)))
